//! What the API server does with steps, and what other clients do to objects.

use flux_operator_plan::{FailureKind, Object, Step, Target, TargetKind};
use flux_operator_testkit::merge;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{INDEX, World};

impl World {
    pub(super) fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// Applies a step. One that Kubernetes would never accept fails the test.
    pub(super) fn apply_step(&mut self, step: &Step) -> Result<(), FailureKind> {
        match step {
            Step::CreateKeys(_) => self.stored.has_keys = true,
            Step::Create(Object::Job(job)) => self.create_job(job),
            Step::Create(Object::Pod(pod)) => {
                let name = pod.name_any();
                if !self.stored.pods.contains_key(&name) {
                    let pod = self.written(None, (**pod).clone(), &name);
                    self.stored.pods.insert(name, pod);
                }
            }
            Step::CreateOrApply(object) | Step::Apply { object, .. } => self.apply_object(object),
            Step::Patch { target, patch } => return self.patch(target, patch),
            Step::Delete(target) => self.delete(target),
            Step::DeleteSelf => self.stored.minicluster = None,
            Step::CopyCertificate(_) | Step::Create(_) | Step::PatchSelf(_) => {
                panic!("{step:?} is not for a MiniCluster")
            }
        }
        Ok(())
    }

    fn apply_object(&mut self, object: &Object) {
        match object {
            Object::ConfigMap(map) => {
                let before = self.stored.config_map.take();
                let map = applied(before.as_ref(), &**map);
                self.stored.config_map = Some(self.written(before.as_ref(), map, "map"));
            }
            Object::Service(service) => {
                let name = service.name_any();
                let before = self.stored.services.remove(&name);
                let service = applied(before.as_ref(), &**service);
                let service = self.written(before.as_ref(), service, &name);
                self.stored.services.insert(name, service);
            }
            other => panic!("{other:?} is never applied"),
        }
    }

    /// Changes the object that was observed, and no other with its name.
    fn patch(&mut self, target: &Target, patch: &Value) -> Result<(), FailureKind> {
        let there = match target.kind {
            TargetKind::Job => self.stored.job.as_ref().map(ResourceExt::uid),
            _ => self.stored.pods.get(&target.name).map(ResourceExt::uid),
        };
        if there.is_some_and(|there| there != target.uid) {
            return Ok(());
        }
        match target.kind {
            TargetKind::Job => self.patch_job(patch),
            TargetKind::Pod => {
                let version = self.next_version();
                // One that was deleted needs no label.
                if let Some(pod) = self.stored.pods.get_mut(&target.name) {
                    let label = patch["metadata"]["labels"]["job-index"].as_str().unwrap();
                    pod.labels_mut().insert("job-index".into(), label.to_owned());
                    pod.metadata.resource_version = Some(version);
                }
                Ok(())
            }
            other => panic!("no {other:?} is patched"),
        }
    }

    /// Deletes the object that was observed, and no other with its name.
    fn delete(&mut self, target: &Target) {
        assert!(target.uid.is_some(), "what is deleted was observed");
        let is_meant = |uid: Option<String>| uid == target.uid;
        match target.kind {
            TargetKind::Job if self.stored.job.as_ref().is_some_and(|it| is_meant(it.uid())) => {
                self.delete_job();
            }
            TargetKind::Service => {
                let there = self.stored.services.get(&target.name);
                if there.is_some_and(|it| is_meant(it.uid())) {
                    self.stored.services.remove(&target.name);
                }
            }
            TargetKind::Job => {}
            other => panic!("no {other:?} is deleted"),
        }
    }

    /// An object as the API server stores it: a write that changes nothing keeps its version.
    fn written<K>(&mut self, before: Option<&K>, mut object: K, name: &str) -> K
    where
        K: kube::Resource + PartialEq + Clone,
    {
        if before == Some(&object) {
            return object;
        }
        let version = self.next_version();
        let metadata: &mut ObjectMeta = object.meta_mut();
        metadata.uid.get_or_insert_with(|| format!("{name}-{version}"));
        metadata.resource_version = Some(version);
        object
    }

    fn create_job(&mut self, job: &Job) {
        assert!(self.stored.has_keys || job_names_secret(job), "a Job before its keys");
        assert!(self.stored.config_map.is_some(), "a Job before its ConfigMap");
        assert!(!self.stored.services.is_empty(), "a Job before its Service");
        // One that exists stays as it is.
        if self.stored.job.is_none() {
            self.jobs_created += 1;
            let mut job = job.clone();
            job.metadata.uid = Some(format!("job-{}", self.jobs_created));
            job.metadata.resource_version = Some(self.next_version());
            let spec = job.spec.as_mut().unwrap();
            spec.suspend.get_or_insert(false);
            self.stored.job = Some(job);
        }
    }

    fn patch_job(&mut self, patch: &Value) -> Result<(), FailureKind> {
        let changeable = ["parallelism", "completions", "suspend", "activeDeadlineSeconds"];
        for field in patch["spec"].as_object().into_iter().flatten().map(|(name, _)| name) {
            assert!(changeable.contains(&field.as_str()), "spec.{field} of a Job is immutable");
        }
        let Some(job) = &self.stored.job else { return Ok(()) };
        let computed_from = patch["metadata"]["resourceVersion"].as_str();
        if computed_from.is_some() && computed_from != job.metadata.resource_version.as_deref() {
            return Err(FailureKind::Conflict);
        }
        let kueue = job.labels().contains_key("kueue.x-k8s.io/queue-name");
        for field in ["suspend", "parallelism", "completions"] {
            assert!(!kueue || patch["spec"][field].is_null(), "spec.{field} is Kueue's");
        }
        let mut value = serde_json::to_value(job).unwrap();
        merge(&mut value, patch);
        let patched: Job = serde_json::from_value(value).unwrap();
        let spec = patched.spec.as_ref().unwrap();
        assert_eq!(spec.parallelism, spec.completions, "an elastic Job takes both together");
        let before = self.stored.job.take();
        self.stored.job = Some(self.written(before.as_ref(), patched, "job"));
        Ok(())
    }

    /// Deletes in the background: its pods still exist for a while.
    fn delete_job(&mut self) {
        let now = self.now;
        self.stored.job = None;
        let version = self.next_version();
        let of_job = |pod: &&mut _| ResourceExt::annotations(*pod).contains_key(INDEX);
        for pod in self.stored.pods.values_mut().filter(of_job) {
            pod.metadata.deletion_timestamp = Some(Time(now));
            pod.metadata.resource_version = Some(version.clone());
        }
    }

    /// A user deletes an object.
    pub fn delete_by_user(&mut self, kind: &str) {
        match kind {
            "ConfigMap" => self.stored.config_map = None,
            "Service" => self.stored.services.clear(),
            "Job" => self.delete_job(),
            "MiniCluster" => self.stored.minicluster = None,
            other => panic!("no {other} to lose"),
        }
    }

    /// A user changes an object.
    pub fn change_by_user(&mut self, kind: &str) {
        let version = self.next_version();
        match kind {
            "ConfigMap" => {
                let theirs = [("boot.json", "{}"), ("theirs", "1")];
                let theirs = theirs.map(|(key, value)| (key.to_owned(), value.to_owned()));
                if let Some(map) = &mut self.stored.config_map {
                    map.data.get_or_insert_default().extend(theirs);
                    map.metadata.resource_version = Some(version);
                }
            }
            "Service" => {
                let port = json!({ "port": 8080, "name": "theirs" });
                for service in self.stored.services.values_mut() {
                    let spec = service.spec.get_or_insert_default();
                    spec.selector = None;
                    spec.ports = Some(vec![serde_json::from_value(port.clone()).unwrap()]);
                    service.metadata.resource_version = Some(version.clone());
                }
            }
            "labels" => {
                if let Some(map) = &mut self.stored.config_map {
                    map.labels_mut().clear();
                }
                for service in self.stored.services.values_mut() {
                    service.labels_mut().clear();
                }
            }
            other => panic!("no {other} to spoil"),
        }
    }
}

/// Server-side apply, as far as plans can tell: maps are merged, and what others have set
/// is kept.
fn applied<K>(there: Option<&K>, wanted: &K) -> K
where
    K: serde::Serialize + serde::de::DeserializeOwned,
{
    let mut value = serde_json::to_value(there).unwrap();
    merge(&mut value, &serde_json::to_value(wanted).unwrap());
    serde_json::from_value(value).unwrap()
}

/// Whether the keys are the user's own.
fn job_names_secret(job: &Job) -> bool {
    serde_json::to_string(job).unwrap().contains("\"mine\"")
}
