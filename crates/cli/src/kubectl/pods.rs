//! The pods of a MiniCluster: label selectors, and the state of containers.

use flux_operator_plan::kubernetes::CLUSTER_LABEL;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// Selects the pods with a completion index: the current one and its predecessors.
pub(super) fn index_selector(name: &str, index: u32) -> String {
    format!("{CLUSTER_LABEL}={name},batch.kubernetes.io/job-completion-index={index}")
}

/// Selects all pods of a MiniCluster.
pub(super) fn cluster_selector(name: &str) -> String {
    format!("{CLUSTER_LABEL}={name}")
}

/// The newest pod.
pub(super) fn newest(pods: Vec<Pod>) -> Option<Pod> {
    pods.into_iter().max_by_key(ResourceExt::creation_timestamp)
}

/// One run of a container; a restart starts another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerRun {
    /// The pod's name.
    pub(super) pod: String,
    uid: Option<String>,
    created: Option<Time>,
    restarts: i32,
    /// Whether it has terminated.
    pub(super) terminated: bool,
}

impl ContainerRun {
    /// The last run of a container, if it was ever started.
    pub(super) fn of(pod: &Pod, container: &str) -> Option<ContainerRun> {
        let status = container_status(pod, container)?;
        let state = status.state.as_ref()?;
        // Between two runs, this is the previous one.
        let (restarts, terminated) = match (&state.running, &state.terminated) {
            (Some(_), _) => (status.restart_count, false),
            (None, Some(_)) => (status.restart_count, true),
            (None, None) => {
                status.last_state.as_ref()?.terminated.as_ref()?;
                (status.restart_count, true)
            }
        };
        let (uid, created) = (pod.uid(), pod.creation_timestamp());
        Some(ContainerRun { pod: pod.name_any(), uid, created, restarts, terminated })
    }

    /// Whether this is the same run as `other`, terminated or not.
    pub(super) fn is_same_run(&self, other: &ContainerRun) -> bool {
        self.uid == other.uid && self.restarts == other.restarts
    }

    /// Whether this run is later than `other`.
    pub(super) fn is_after(&self, other: &ContainerRun) -> bool {
        match self.uid == other.uid {
            true => self.restarts > other.restarts,
            false => self.created >= other.created,
        }
    }
}

/// Whether a container of the pod is running.
pub(super) fn is_running(pod: &Pod, container: &str) -> bool {
    let state = container_status(pod, container).and_then(|status| status.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

/// The names of a pod's containers, sidecars last.
pub(super) fn containers(pod: &Pod) -> Vec<&str> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    all.map(|container| container.name.as_str()).collect()
}

fn container_status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.into_iter().find(|status| status.name == container)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(uid: &str, second: u32, restarts: i32, state: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("fs-0-{uid}"), "uid": uid,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "status": { "containerStatuses": [{
                "name": "fs", "image": "", "imageID": "", "ready": false,
                "restartCount": restarts, "state": state,
            }]},
        }))
        .unwrap()
    }

    fn run(uid: &str, second: u32, restarts: i32) -> ContainerRun {
        ContainerRun::of(&pod(uid, second, restarts, json!({ "running": {} })), "fs").unwrap()
    }

    #[test]
    fn a_waiting_container_has_no_run() {
        assert_eq!(ContainerRun::of(&pod("a", 0, 0, json!({ "waiting": {} })), "fs"), None);
        assert_eq!(ContainerRun::of(&Pod::default(), "fs"), None);
        let finished = pod("a", 0, 0, json!({ "terminated": { "exitCode": 1 } }));
        assert!(ContainerRun::of(&finished, "fs").unwrap().terminated);
        assert!(!run("a", 0, 0).terminated);
    }

    #[test]
    fn runs_are_ordered_by_pod_and_restart() {
        let first = run("a", 1, 0);
        assert!(first.is_same_run(&run("a", 1, 0)) && !run("a", 1, 0).is_after(&first));
        assert!(run("a", 1, 1).is_after(&first));
        assert!(run("b", 2, 0).is_after(&run("a", 1, 3)));
        assert!(!run("a", 1, 3).is_after(&run("b", 2, 0)));
    }

    #[test]
    fn the_newest_pod_is_selected() {
        let pods =
            vec![pod("a", 1, 0, json!({})), pod("c", 3, 0, json!({})), pod("b", 2, 0, json!({}))];
        assert_eq!(newest(pods).and_then(|pod| pod.uid()).as_deref(), Some("c"));
    }
}
