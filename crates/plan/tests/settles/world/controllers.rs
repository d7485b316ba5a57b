//! What Kubernetes' own controllers do.

use flux_operator_testkit::merge;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{INDEX, Objects, PodState, World};

impl World {
    /// Runs Kubernetes' own controllers.
    pub fn control(&mut self) {
        if self.stored.minicluster.is_none() {
            // The garbage collector.
            (self.stored, self.work) = (Objects::default(), None);
        }
        self.stored.pods.retain(|_, pod| pod.metadata.deletion_timestamp.is_none());
        let Some(mut job) = self.stored.job.clone() else { return };
        self.run(&mut job);
        if self.stored.job.as_ref() != Some(&job) {
            job.metadata.resource_version = Some(self.next_version());
            self.stored.job = Some(job);
        }
    }

    fn run(&mut self, job: &mut Job) {
        let mut status = serde_json::to_value(&job.status).unwrap();
        let spec = job.spec.clone().unwrap();
        let pods = &mut self.stored.pods;
        let finished = has(&status, "Complete") || has(&status, "Failed");
        if finished {
            pods.retain(|_, pod| pod.annotations().get(INDEX).is_none_or(|index| index == "0"));
            return;
        }
        if spec.suspend == Some(true) {
            merge(&mut status, &json!({ "conditions": [condition("Suspended")] }));
            pods.retain(|_, pod| !pod.annotations().contains_key(INDEX));
        } else {
            // The start time is that of the last resumption, once the controller has noticed it.
            if status["startTime"].is_null() || has(&status, "Suspended") {
                let resumed = json!({ "conditions": [], "startTime": self.now.to_string() });
                merge(&mut status, &resumed);
            }
            let count = usize::try_from(spec.parallelism.unwrap()).unwrap();
            let index = |pod: &Pod| pod.annotations().get(INDEX)?.parse::<usize>().ok();
            pods.retain(|_, pod| index(pod).is_none_or(|index| index < count));
            for index in 0..count {
                self.start_pod(job, index);
            }
            if let PodState::Ended(code) = self.lead {
                let condition = condition(if code == 0 { "Complete" } else { "Failed" });
                merge(&mut status, &json!({ "conditions": [condition] }));
                let version = self.next_version();
                let pod = self.pod_of_index(0).expect("made above");
                let end = json!({ "terminated": { "exitCode": code } });
                pod.status = serde_json::from_value(json!({
                    "phase": if code == 0 { "Succeeded" } else { "Failed" },
                    "containerStatuses": [{ "name": "fs", "state": end, "image": "", "imageID": "", "ready": false, "restartCount": 0 }],
                }))
                .unwrap();
                pod.metadata.resource_version = Some(version);
            }
        }
        job.status = serde_json::from_value(status).unwrap();
    }

    /// Creates a pod of the Job, unless it exists.
    fn start_pod(&mut self, job: &Job, index: usize) {
        if self.pod_of_index(index).is_none() {
            self.pods_created += 1;
            let name = format!("{}-{index}-{}", job.name_any(), self.pods_created);
            let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "controller": true,
                "name": job.name_any(), "uid": job.uid() });
            let template = job.spec.as_ref().unwrap().template.metadata.clone().unwrap();
            let pod = json!({ "metadata": {
                "name": name,
                "uid": format!("pod-{}", self.pods_created),
                "resourceVersion": self.next_version(),
                "labels": template.labels,
                "annotations": { INDEX: index.to_string() },
                "ownerReferences": [owner],
                "creationTimestamp": self.now.to_string(),
            } });
            self.stored.pods.insert(name, serde_json::from_value(pod).unwrap());
        }
        let (now, version) = (self.now, self.version + 1);
        if let PodState::Is(phase) = self.lead {
            let pod = self.pod_of_index(index).expect("made above");
            let status = serde_json::from_value(pod_status(pod, phase, now)).unwrap();
            if pod.status != status {
                pod.status = status;
                pod.metadata.resource_version = Some(version.to_string());
                self.version = version;
            }
        }
    }

    pub(super) fn pod_of_index(&mut self, index: usize) -> Option<&mut Pod> {
        let index = index.to_string();
        self.stored.pods.values_mut().find(|pod| pod.annotations().get(INDEX) == Some(&index))
    }
}

/// The status that the kubelet reports of a pod that reached `phase`.
fn pod_status(pod: &Pod, phase: &str, now: Timestamp) -> Value {
    if phase == "Pending" {
        return json!({ "phase": phase });
    }
    let ready = phase == "Ready";
    let status = if ready { "True" } else { "False" };
    // The time changes with the status; of a pod that was never ready it is the creation time.
    let before = pod.status.as_ref().and_then(|status| status.conditions.as_ref()?.first());
    let created = pod.creation_timestamp().unwrap();
    let since = match before {
        Some(before) if before.status == status => before.last_transition_time.clone().unwrap(),
        None if !ready => created.clone(),
        Some(_) | None => Time(now),
    };
    let state = json!({ "running": { "startedAt": created } });
    json!({
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": status, "lastTransitionTime": since }],
        "containerStatuses": [{ "name": "fs", "state": state, "image": "", "imageID": "",
            "ready": ready, "restartCount": 0 }],
    })
}

fn condition(kind: &str) -> Value {
    json!({ "type": kind, "status": "True" })
}

fn has(status: &Value, kind: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == kind)
}
