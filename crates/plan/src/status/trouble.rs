//! What is wrong with a cluster: a reason, and a message that says what to do or what the
//! cluster waits for.

use flux_operator_api::Reason;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::ResourceExt;

use crate::observed::is_terminating;

/// Something that keeps a cluster from being complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The condition's reason.
    pub reason: Reason,
    /// The message of the condition.
    pub message: String,
}

impl Trouble {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Trouble {
        Trouble { reason, message: message.into() }
    }
}

/// What is wrong with a pod that has not finished.
pub(crate) fn of_pod(pod: &Pod) -> Option<Trouble> {
    if is_node_lost(pod) {
        return Some(lost_node(pod));
    }
    if is_terminating(pod) {
        return disrupted(pod);
    }
    unschedulable(pod)
        .or_else(|| containers(pod).find_map(|container| of_container(pod, container)))
}

/// Whether the node of a pod does not respond any more. Kubernetes then sets the pod's
/// readiness to false itself, and leaves the kubelet's last status of the containers.
pub(super) fn is_node_lost(pod: &Pod) -> bool {
    let ready = condition(pod, "Ready");
    let gates = ready.is_some_and(|c| c.reason.as_deref() == Some("ReadinessGatesNotReady"));
    let containers = condition(pod, "ContainersReady");
    ready.is_some_and(|c| c.status == "False")
        && containers.is_some_and(|c| c.status == "True")
        && !gates
}

/// A condition of a pod.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

fn lost_node(pod: &Pod) -> Trouble {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let name = pod.name_any();
    Trouble::new(
        Reason::NodeLost,
        format!(
            "node {node:?} does not answer: pod {name:?} on it is replaced when the node is back or deleted"
        ),
    )
}

/// Why a pod is deleted, if not by us: eviction, preemption, a drained node.
fn disrupted(pod: &Pod) -> Option<Trouble> {
    let target = condition(pod, "DisruptionTarget").filter(|c| c.status == "True")?;
    let why = target.message.as_deref().or(target.reason.as_deref()).unwrap_or_default();
    Some(Trouble::new(Reason::Evicted, format!("pod {:?} is evicted: {why}", pod.name_any())))
}

/// Why the scheduler finds no node for a pod, in its own words.
fn unschedulable(pod: &Pod) -> Option<Trouble> {
    let placed = condition(pod, "PodScheduled").filter(|c| c.status == "False")?;
    let known = [Reason::Unschedulable, Reason::SchedulingGated];
    let reason =
        known.into_iter().find(|known| placed.reason.as_deref() == Some(known.as_str()))?;
    let message = placed.message.clone().unwrap_or_default();
    Some(Trouble::new(reason, format!("pod {:?} cannot be scheduled: {message}", pod.name_any())))
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let sidecars = status.and_then(|status| status.init_container_statuses.as_ref());
    let others = status.and_then(|status| status.container_statuses.as_ref());
    sidecars.into_iter().chain(others).flatten()
}

fn of_container(pod: &Pod, container: &ContainerStatus) -> Option<Trouble> {
    let state = container.state.as_ref()?;
    let (name, pod) = (&container.name, pod.name_any());
    if let Some(finished) = &state.terminated {
        // A container that is about to be restarted.
        return (container.restart_count > 0)
            .then(|| crash_loop(&pod, name, Some(finished.exit_code)));
    }
    let waiting = state.waiting.as_ref()?;
    let said = waiting.message.as_deref().unwrap_or_default();
    Some(match waiting.reason.as_deref()? {
        // The first two alternate. With one reason for both, the condition does not change.
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "RegistryUnavailable" => {
            let why = said.split_once("ErrImagePull: ").map_or(said, |(_, why)| why);
            // If the image of a volume cannot be pulled, the container that mounts it fails.
            let image = image_in(said).unwrap_or(&container.image);
            Trouble::new(
                Reason::ErrImagePull,
                format!(
                    "image {image:?} cannot be pulled for container {name:?} of pod {pod:?}: check its name and imagePullSecret: {why}"
                ),
            )
        }
        "InvalidImageName" => Trouble::new(
            Reason::InvalidImageName,
            format!("image {:?} of container {name:?} is not valid: {said}", container.image),
        ),
        "CreateContainerConfigError" => Trouble::new(
            Reason::CreateContainerConfigError,
            format!("container {name:?} of pod {pod:?} cannot be configured: {said}"),
        ),
        "CreateContainerError" => {
            Trouble::new(Reason::CreateContainerError, start_failure_message(name, &pod, said))
        }
        "RunContainerError" => {
            Trouble::new(Reason::RunContainerError, start_failure_message(name, &pod, said))
        }
        "CrashLoopBackOff" => {
            let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
            crash_loop(&pod, name, last.map(|last| last.exit_code))
        }
        _ => return None,
    })
}

fn start_failure_message(container: &str, pod: &str, said: &str) -> String {
    format!("container {container:?} of pod {pod:?} cannot be started: {said}")
}

fn crash_loop(pod: &str, container: &str, code: Option<i32>) -> Trouble {
    let code = code.map(|code| format!(", last with exit code {code}")).unwrap_or_default();
    Trouble::new(
        Reason::CrashLoopBackOff,
        format!(
            "container {container:?} of pod {pod:?} exits again and again{code}: see `kubectl logs {pod} -c {container}`"
        ),
    )
}

/// The image that a kubelet's message is about.
fn image_in(message: &str) -> Option<&str> {
    message.split_once("image \"")?.1.split_once('"').map(|(image, _)| image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_testkit::merge;
    use serde_json::{Value, json};

    /// A pod as the API server shows it, changed by `patch`.
    fn pod(patch: Value) -> Pod {
        let mut pod = json!({
            "metadata": { "name": "fs-0-abcde" },
            "spec": { "nodeName": "node-4", "containers": [] },
            "status": { "phase": "Pending" },
        });
        merge(&mut pod, &patch);
        serde_json::from_value(pod).unwrap()
    }

    fn container(name: &str, image: &str, state: Value) -> Value {
        json!({ "name": name, "image": image, "imageID": "", "ready": false, "restartCount": 0, "state": state })
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({ "waiting": { "reason": reason, "message": message } })
    }

    fn runner(state: Value) -> Pod {
        let container = container("fs", "flux-operator.test/busybox:1", state);
        pod(json!({ "status": { "containerStatuses": [container] } }))
    }

    /// Reason and message of the trouble of a pod.
    fn reason_and_message(pod: &Pod) -> (Reason, String) {
        let trouble = of_pod(pod).unwrap();
        (trouble.reason, trouble.message)
    }

    #[test]
    fn pods_as_they_start_and_run_are_in_no_trouble() {
        let conditions = |ready: &str| json!([{ "type": "Ready", "status": ready }, { "type": "ContainersReady", "status": ready }]);
        let cases = [
            json!({}),
            json!({ "conditions": [{ "type": "PodScheduled", "status": "True" }] }),
            json!({ "containerStatuses": [container("fs", "a", json!({ "waiting": { "reason": "ContainerCreating" } }))] }),
            json!({ "containerStatuses": [container("fs", "a", json!({ "waiting": { "reason": "PodInitializing" } }))] }),
            json!({ "phase": "Running", "conditions": conditions("False") }),
            json!({ "phase": "Running", "conditions": conditions("True") }),
        ];
        for status in cases {
            assert_eq!(of_pod(&pod(json!({ "status": status }))), None, "{status}");
        }
    }

    #[test]
    fn the_image_that_cannot_be_pulled_is_named_in_every_state() {
        let why = "failed to pull and unpack image \"r.test/missing:1\": not found";
        let back_off = format!("Back-off pulling image \"r.test/missing:1\": ErrImagePull: {why}");
        // The image of a volume is meant, not the container's own, which is fine.
        let fails = reason_and_message(&runner(waiting("ErrImagePull", why)));
        let waits = reason_and_message(&runner(waiting("ImagePullBackOff", &back_off)));
        assert_eq!(fails, waits, "the two alternate, which is not a change");
        assert_eq!(fails.0, Reason::ErrImagePull);
        assert!(fails.1.starts_with("image \"r.test/missing:1\" cannot be pulled"), "{}", fails.1);
        let silent = runner(json!({ "waiting": { "reason": "ErrImagePull" } }));
        assert!(
            reason_and_message(&silent).1.contains("busybox:1"),
            "the container's own image, by default"
        );
    }

    #[test]
    fn what_a_container_lacks_is_named() {
        let pod = runner(waiting("CreateContainerConfigError", "secret \"nosecret\" not found"));
        let (reason, message) = reason_and_message(&pod);
        assert_eq!(reason, Reason::CreateContainerConfigError);
        assert!(message.contains("secret \"nosecret\" not found"), "{message}");
    }

    #[test]
    fn the_schedulers_message_is_included() {
        let said = "0/1 nodes are available: 1 Insufficient cpu.";
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said });
        let (reason, message) =
            reason_and_message(&pod(json!({ "status": { "conditions": [condition] } })));
        assert_eq!(reason, Reason::Unschedulable);
        assert!(message.contains(said), "{message}");
    }

    #[test]
    fn a_crashing_sidecar_is_reported_while_it_waits_and_when_it_has_just_exited() {
        let finished = json!({ "terminated": { "exitCode": 3, "reason": "Error" } });
        let side = |state: Value, last: Value, restarts: i32| {
            let mut side = container("side", "a", state);
            side["lastState"] = last;
            side["restartCount"] = restarts.into();
            pod(json!({ "status": { "phase": "Running", "initContainerStatuses": [side] } }))
        };
        let waits = reason_and_message(&side(
            waiting("CrashLoopBackOff", "back-off 10s"),
            finished.clone(),
            2,
        ));
        assert_eq!(waits, reason_and_message(&side(finished.clone(), finished.clone(), 2)));
        assert_eq!(waits.0, Reason::CrashLoopBackOff);
        assert!(waits.1.contains("exit code 3") && waits.1.contains("-c side"), "{}", waits.1);
        assert_eq!(of_pod(&side(finished, json!({}), 0)), None, "one exit is not a loop");
    }

    #[test]
    fn a_node_is_lost_if_its_pod_is_unready_and_the_containers_are_ready() {
        let conditions = |ready: Value| json!({ "status": { "phase": "Running", "conditions": [ready, { "type": "ContainersReady", "status": "True" }] } });
        let lost = pod(conditions(json!({ "type": "Ready", "status": "False" })));
        let (reason, message) = reason_and_message(&lost);
        assert_eq!(reason, Reason::NodeLost);
        assert!(message.contains("node \"node-4\" does not answer"), "{message}");
        let gate = "ReadinessGatesNotReady";
        let gated = pod(conditions(json!({ "type": "Ready", "status": "False", "reason": gate })));
        assert_eq!(of_pod(&gated), None, "a readiness gate is not a lost node");
    }

    #[test]
    fn an_eviction_is_reported_and_our_own_deletion_is_not() {
        let terminating = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        assert_eq!(of_pod(&pod(terminating.clone())), None);
        let mut evicted = terminating;
        evicted["status"] = json!({ "conditions": [{ "type": "DisruptionTarget", "status": "True",
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting" }] });
        let (reason, message) = reason_and_message(&pod(evicted));
        assert_eq!(reason, Reason::Evicted);
        assert!(message.contains("Eviction API: evicting"), "{message}");
    }
}
