//! What the API server does with writes, and what it answers.

use flux_operator_api::MiniCluster;
use flux_operator_plan::{ExistingPod, Object, ServerReply, Step, Subject};
use flux_operator_testkit::merge;
use flux_operator_wire::BootPlan;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{LENDER, LENDER_JOB, World};

impl World {
    pub(super) fn edit(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let version = self.fresh("");
        if let Some(minicluster) = self.stored.miniclusters.get_mut(name) {
            change(minicluster);
            minicluster["metadata"]["resourceVersion"] = version.into();
        }
        self.close_connections();
    }

    pub(super) fn remove_finalized(&mut self) {
        self.stored.miniclusters.retain(|_, it| {
            let metadata = &it["metadata"];
            let finalizers = metadata["finalizers"].as_array().is_some_and(|it| !it.is_empty());
            metadata["deletionTimestamp"].is_null() || finalizers
        });
    }

    /// Whether this very object exists, and not only another with its name.
    fn exists(&self, minicluster: &MiniCluster) -> bool {
        let there = self.stored.miniclusters.get(&minicluster.name_any());
        there.is_some_and(|it| it["metadata"]["uid"].as_str() == minicluster.uid().as_deref())
    }

    /// Whether a write for exactly this version is accepted.
    pub(super) fn is_current(&self, minicluster: &MiniCluster) -> bool {
        let there = self.stored.miniclusters.get(&minicluster.name_any());
        there.is_some_and(|it| {
            it["metadata"]["resourceVersion"].as_str() == minicluster.resource_version().as_deref()
        })
    }

    pub(super) fn apply(&mut self, minicluster: &MiniCluster, step: &Step) {
        let name = minicluster.name_any();
        match step {
            // The garbage collector deletes at once what has an owner that is deleted.
            Step::Create(_) | Step::CreateOrApply(_) | Step::Apply { .. }
                if !self.exists(minicluster) => {}
            Step::Create(Object::Job(job)) => {
                if !self.stored.jobs.contains_key(&name) {
                    let mut job = (**job).clone();
                    job.metadata.uid = Some(self.fresh("job"));
                    self.stored.jobs.insert(name, job);
                }
            }
            Step::CreateOrApply(Object::ConfigMap(map))
            | Step::Apply { object: Object::ConfigMap(map), .. } => {
                let plan = &map.data.as_ref().unwrap()["boot.json"];
                let plan: BootPlan = serde_json::from_str(plan).unwrap();
                if let Some(join) = plan.join {
                    self.stored.boot_plans.insert(name, join.ranks);
                }
            }
            // An operator waits until it observes its own writes, a new leader lists everything
            // first, and a former one writes nothing: it never resizes a lender whose leases it has
            // not observed. That two are active at once is tested for leases only.
            Step::Patch { target, .. }
                if target.name == LENDER && !self.is_current(minicluster) => {}
            Step::Patch { target, patch } => {
                let there = self.stored.jobs.get_mut(&target.name);
                if let Some(job) = there.filter(|job| job.uid() == target.uid) {
                    let mut value = json!(job);
                    merge(&mut value, patch);
                    *job = serde_json::from_value(value).unwrap();
                }
            }
            Step::Delete(target) => {
                let is_same =
                    self.stored.jobs.get(&target.name).map(Job::uid) == Some(target.uid.clone());
                if is_same {
                    self.stored.jobs.remove(&target.name);
                }
            }
            Step::PatchSelf(patch) => {
                if self.is_current(minicluster) {
                    let finalizers = patch["metadata"]["finalizers"].clone();
                    self.edit(&name, |it| it["metadata"]["finalizers"] = finalizers);
                    self.remove_finalized();
                }
            }
            Step::DeleteSelf => panic!("nothing is cleaned up here"),
            Step::CreateKeys(_)
            | Step::CopyCertificate(_)
            | Step::Create(_)
            | Step::CreateOrApply(_)
            | Step::Apply { .. } => {}
        }
    }

    /// The answer to a query, from the current state.
    pub(super) fn reply(&self, minicluster: &MiniCluster, subject: &Subject) -> ServerReply {
        match subject {
            Subject::JoinerPods { .. } => {
                let pods = self.stored.joiner_pods.values();
                let existing = pods.map(|pod| existing(&pod.holder, &pod.table, pod.index));
                let jobs = self.stored.jobs.iter().filter(|(name, _)| *name != LENDER);
                let to_come = jobs.filter_map(|(_, job)| ExistingPod::last_of(job));
                ServerReply::Pods(existing.chain(to_come).collect())
            }
            Subject::OwnPods { job } => {
                assert_eq!(job, LENDER_JOB);
                let pods = self.stored.lender_pods.values();
                let existing = pods.map(|pod| existing("", "", pod.index));
                let own = self.stored.jobs.get(LENDER).and_then(ExistingPod::last_of);
                ServerReply::Pods(existing.chain(own).collect())
            }
            Subject::MiniCluster => match self.exists(minicluster) {
                true => ServerReply::Exists,
                false => ServerReply::Deleted,
            },
            Subject::Namespace | Subject::Keys { .. } => ServerReply::Exists,
            Subject::Job { .. } | Subject::Pod { .. } => ServerReply::Events(Vec::new()),
        }
    }
}

fn existing(holder: &str, table: &str, index: u32) -> ExistingPod {
    ExistingPod { namespace: "hpc".into(), holder: holder.into(), table: table.into(), index }
}
