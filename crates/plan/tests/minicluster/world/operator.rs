//! What the operator does.

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{CLUSTER_LABEL, DeliveryMethod, Rendering, Settings};
use flux_operator_plan::queueing::merge_patch;
use flux_operator_plan::status::{Outcome, news, status, urgency};
use flux_operator_plan::{Cluster, Plan, Seen, Step, Valid, as_booted, plan};
use flux_operator_testkit::merge;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::server::Failure;
use super::{Objects, World};

/// What one reconciliation has done and said.
#[derive(Clone, Debug, Default)]
pub struct Reconciliation {
    /// The steps that were to be done.
    pub steps: Vec<Step>,
    /// All of it, for a record.
    pub said: Value,
}

impl World {
    /// Reconciles once.
    pub fn reconcile(&mut self) -> Reconciliation {
        if std::mem::take(&mut self.expects) {
            // Nothing is decided before the watches show what was written.
            self.catch_up();
        }
        let Some(minicluster) = self.parsed() else { return Reconciliation::default() };
        let seen = self.seen();
        let plan = self.plan();
        self.work.clone_from(&plan.drain);
        let failing = self.failing.take_if(|_| !plan.steps.is_empty());
        let (mut created, mut failure, mut again) = (false, None, plan.look_again);
        for (index, step) in plan.steps.iter().enumerate() {
            let fails = failing.filter(|(at, _)| *at == index).map(|(_, how)| how);
            let fails = fails.filter(|how| can_fail(step, *how));
            let done = match fails {
                None => self.take(step),
                Some(Failure::Unknown) => self.take(step).and(Err(Failure::Unknown)),
                Some(how) => Err(how),
            };
            match done {
                Ok(()) => self.expects = true,
                Err(Failure::Transient | Failure::Conflict) => {
                    again = Some(self.now + SignedDuration::from_millis(250));
                    break;
                }
                Err(how) => {
                    failure = Some(format!("{how:?}"));
                    break;
                }
            }
            created |= matches!(step, Step::CreateJob(_));
        }
        let outcome = Outcome {
            refusal: None,
            hold: plan.hold.as_ref(),
            shrinking: plan.shrinking.as_ref(),
            failure: failure.as_deref(),
            created,
        };
        let before = minicluster.status.clone().unwrap_or_default();
        let status = status(&minicluster, &seen, &outcome);
        let events: Vec<String> = news(&before.conditions, &status.conditions)
            .iter()
            .map(|news| format!("{} {} {}", news.good, news.reason, news.note))
            .collect();
        let said = json!({
            "steps": plan.steps.iter().map(shown).collect::<Vec<_>>(),
            "work": plan.drain,
            "failure": failure,
            "status": status,
            "urgency": format!("{:?}", urgency(minicluster.status.as_ref(), &status)),
            "events": events,
            "again": again.map(|again| again.to_string()),
        });
        if let Some(patch) = merge_patch(&before, &status) {
            self.write_own_status(&minicluster, &patch);
        }
        Reconciliation { steps: plan.steps, said }
    }

    /// Does the first of these steps, and then the operator ends.
    pub fn crash_after(&mut self, steps: &[Step]) {
        for step in steps {
            let _ = self.take(step);
        }
        self.catch_up();
    }

    /// What the operator would do now.
    pub fn plan(&self) -> Plan {
        let Some(minicluster) = self.parsed() else { return Plan::default() };
        let seen = self.seen();
        let valid = as_booted(Valid::check(minicluster.clone()).unwrap(), &seen);
        let cluster = Cluster::of(&valid).unwrap();
        let settings = Settings {
            agent_image: "example.org/flux-operator:1".into(),
            cluster_domain: "cluster.local".into(),
            report_url: Some("http://10.0.0.1:8080".into()),
            delivery: DeliveryMethod::ImageVolume,
        };
        let rendering = Rendering { minicluster: &valid, cluster: &cluster, settings: &settings };
        plan(&minicluster, &rendering, &seen)
    }

    fn parsed(&self) -> Option<MiniCluster> {
        Some(serde_json::from_value(self.view().minicluster.clone()?).unwrap())
    }

    fn view(&self) -> &Objects {
        self.shown.as_ref().unwrap_or(&self.there)
    }

    /// What the watches show: only what carries the label.
    fn seen(&self) -> Seen {
        let view = self.view();
        let services = view.services.values().filter(|service| is_labelled(*service));
        let report = self.report.as_ref().filter(|(uid, _)| {
            view.pods.values().any(|pod| {
                pod.uid().as_ref() == Some(uid) && pod.metadata.deletion_timestamp.is_none()
            })
        });
        Seen {
            job: view.job.clone().map(Arc::new),
            pods: view.pods.values().cloned().map(Arc::new).collect(),
            config_map: view.config_map.clone().filter(is_labelled).map(Arc::new),
            services: services.cloned().map(Arc::new).collect(),
            report: report.map(|(_, report)| report.clone()),
            watching_since: self.start,
            ..Seen::nothing(self.now)
        }
    }

    fn write_own_status(&mut self, computed_from: &MiniCluster, patch: &Value) {
        let Some(there) = &self.there.minicluster else { return };
        let version = there["metadata"]["resourceVersion"].as_str();
        if self.strict && version != computed_from.metadata.resource_version.as_deref() {
            return;
        }
        self.expects = true;
        let version = self.next_version();
        if let Some(minicluster) = &mut self.there.minicluster {
            merge(&mut minicluster["status"], patch);
            minicluster["metadata"]["resourceVersion"] = version.into();
        }
    }
}

/// Whether a step can fail like this.
fn can_fail(step: &Step, how: Failure) -> bool {
    match how {
        Failure::Conflict => matches!(step, Step::PatchJob(_) | Step::LabelPod { .. }),
        Failure::NotOurs | Failure::Transient => {
            matches!(step, Step::CreateKeys | Step::CreatePod(_) | Step::CreateJob(_))
        }
        Failure::Refused | Failure::Unknown => true,
    }
}

/// A step in a few words, with a digest of what it writes.
fn shown(step: &Step) -> String {
    let digest = |object: &Value| {
        let text = object.to_string();
        let digest = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{digest:016x}")
    };
    let of = |kind: &str, name: String, object: Value| format!("{kind} {name} {}", digest(&object));
    match step {
        Step::CreateKeys => "create keys".into(),
        Step::CreateConfigMap(map) => of("create ConfigMap", map.name_any(), json!(map)),
        Step::ApplyConfigMap(map) => of("apply ConfigMap", map.name_any(), json!(map)),
        Step::CreateService(it) => of("create Service", it.name_any(), json!(it)),
        Step::ApplyService { service, manager } => {
            of(&format!("apply Service as {manager}"), service.name_any(), json!(service))
        }
        Step::CreatePod(pod) => of("create Pod", pod.name_any(), json!(pod)),
        Step::CreateJob(job) => of("create Job", job.name_any(), json!(job)),
        Step::PatchJob(patch) => format!("patch Job {patch}"),
        Step::LabelPod { pod, index } => format!("label Pod {pod} {index}"),
        Step::DeleteJob => "delete Job".into(),
        Step::DeleteService(name) => format!("delete Service {name}"),
        Step::DeleteMiniCluster => "delete MiniCluster".into(),
    }
}

fn is_labelled<K: ResourceExt>(object: &K) -> bool {
    object.labels().contains_key(CLUSTER_LABEL)
}
