//! The state of a Job's pods.

use std::collections::BTreeMap;

use flux_operator_api::Reason;
use flux_operator_wire::{REPLACED_EXIT_CODES, Termination};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::trouble::{self, Trouble};
use crate::observed::{LEAD_INDEX, index, is_lead, is_terminating};

/// The state of all pods together.
#[derive(Debug, Default)]
pub(super) struct Pods {
    /// Number of pods that run or will run.
    pub(super) active: usize,
    /// Number of pods that run or have run.
    pub(super) started: usize,
    /// Number of pods that are ready.
    pub(super) ready: u32,
    /// The lead is ready: enough brokers are online.
    pub(super) lead_ready: bool,
    /// When the lead's runner was started, whether or not it has exited since.
    pub(super) lead_started: Option<Timestamp>,
    /// Since when the lead is not ready, if it was ready before.
    pub(super) lead_unready_since: Option<Timestamp>,
    /// The lead is being deleted, and may still run during its grace period.
    pub(super) lead_terminating: bool,
    /// How the lead's runner exited, if it did.
    pub(super) lead_exit: Option<RunnerExit>,
    /// Why Kubernetes killed the last lead that was ready, if it did.
    pub(super) lead_killed: Option<Trouble>,
    /// How another pod's runner failed.
    pub(super) failed: Option<RunnerExit>,
    /// What is wrong with a pod.
    pub(super) trouble: Option<Trouble>,
}

/// How a runner exited.
#[derive(Clone, Debug)]
pub(super) struct RunnerExit {
    /// Its exit code.
    pub(super) code: i32,
    /// What the agent wrote to its termination message.
    pub(super) termination: Option<Termination>,
    /// Why Kubernetes killed it, if it did.
    pub(super) killed: Option<Trouble>,
}

impl Pods {
    pub(super) fn of<'a>(pods: impl Iterator<Item = &'a Pod>) -> Pods {
        let mut result = Pods::default();
        let mut killed: BTreeMap<&str, Trouble> = BTreeMap::new();
        // The newest pod of an index has its current state.
        let mut pods: Vec<&Pod> = pods.collect();
        pods.sort_by_key(|pod| pod.creation_timestamp());
        let has_finished = |pod: &Pod| matches!(phase(pod), Some("Succeeded" | "Failed"));
        let has_started = |pod: &Pod| phase(pod) == Some("Running") || has_finished(pod);
        let is_ready = |pod: &Pod| is_ready(pod) && !is_terminating(pod);
        let count = |is: &dyn Fn(&Pod) -> bool| pods.iter().filter(|pod| is(pod)).count();
        result.started = count(&has_started);
        result.active = count(&|pod| !is_terminating(pod) && !has_finished(pod));
        result.ready = u32::try_from(count(&is_ready)).unwrap_or(u32::MAX);
        for pod in pods {
            let index = index(pod).unwrap_or_default();
            let leads = is_lead(pod);
            let (ready, terminating, over) =
                (is_ready(pod), is_terminating(pod), has_finished(pod));
            let exit = runner_exit(pod);
            match exit.as_ref().and_then(|finished| finished.killed.clone()) {
                Some(trouble) => drop(killed.insert(index, trouble)),
                // It is ready again.
                None if ready => drop(killed.remove(index)),
                None => {}
            }
            if leads {
                result.lead_ready = ready;
                result.lead_started = runner_started(pod).filter(|_| !terminating);
                result.lead_unready_since = unready_since(pod).filter(|_| !terminating);
                result.lead_terminating = terminating && !over;
                result.lead_exit = exit;
            } else if exit.as_ref().is_some_and(is_failure) {
                result.failed = exit;
            }
            if result.trouble.is_none() && !over {
                result.trouble = trouble::of_pod(pod);
            }
        }
        result.lead_killed = killed.get(LEAD_INDEX).cloned();
        result.trouble = result.trouble.or_else(|| killed.into_values().next());
        result
    }
}

/// Whether a pod's broker is ready. Sidecars do not count, but a node that does not
/// respond does: the kubelet's last status of the container is then old.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    runner(pod).is_some_and(|runner| runner.ready) && !trouble::is_node_lost(pod)
}

/// Since when a pod's broker is ready, if it is. A container that crashes beside it
/// does not make it unready, but changes the time of the pod's own condition.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = trouble::condition(pod, "Ready").filter(|ready| ready.status == "True");
    let since = ready.and_then(|ready| ready.last_transition_time.as_ref());
    is_ready(pod).then(|| since.map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// Since when a pod's broker is not ready although it was. The kubelet records when readiness
/// changes; for a pod that never was ready this is before the runner starts.
fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let unready = trouble::condition(pod, "Ready").filter(|ready| ready.status == "False")?;
    let since = unready.last_transition_time.as_ref()?.0;
    runner_started(pod).filter(|started| *started < since).map(|_| since)
}

/// Whether a worker's pod failed with an exit code for which it is not replaced.
fn is_failure(exit: &RunnerExit) -> bool {
    exit.code != 0 && !REPLACED_EXIT_CODES.iter().any(|code| exit.code == i32::from(*code))
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// The container with the name of the Job. Others may have been added to the pod.
fn runner(pod: &Pod) -> Option<&ContainerStatus> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let job = pod.labels().get("job-name");
    containers.iter().find(|container| Some(&container.name) == job).or(containers.first())
}

pub(super) fn runner_started(pod: &Pod) -> Option<Timestamp> {
    let state = runner(pod)?.state.as_ref()?;
    let running = state.running.as_ref().and_then(|it| it.started_at.as_ref());
    let terminated = state.terminated.as_ref().and_then(|it| it.started_at.as_ref());
    running.or(terminated).map(|time| time.0)
}

fn runner_exit(pod: &Pod) -> Option<RunnerExit> {
    let terminated = runner(pod)?.state.as_ref()?.terminated.as_ref()?;
    Some(RunnerExit {
        code: terminated.exit_code,
        termination: terminated.message.as_deref().and_then(Termination::parse),
        killed: killed(pod, terminated),
    })
}

/// Why Kubernetes terminated a runner, if it did not exit by itself.
fn killed(pod: &Pod, finished: &ContainerStateTerminated) -> Option<Trouble> {
    let name = pod.name_any();
    let status = pod.status.as_ref();
    if let Some("Evicted") = status.and_then(|status| status.reason.as_deref()) {
        let why = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
        return Some(Trouble::new(
            Reason::Evicted,
            format!("pod {name:?} was evicted: {}", why.trim()),
        ));
    }
    match finished.reason.as_deref()? {
        "OOMKilled" => Some(Trouble::new(
            Reason::OOMKilled,
            format!(
                "pod {name:?} ran out of memory: raise resources.limits.memory of its container"
            ),
        )),
        "StartError" => {
            let why = finished.message.as_deref().unwrap_or_default();
            let message = format!("the runner of pod {name:?} cannot be started: {why}");
            Some(Trouble::new(Reason::StartError, message))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_testkit::merge;
    use serde_json::{Value, json};

    fn pod(index: u32, created: u32, patch: Value) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": format!("fs-{index}-{created}"),
                "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z"),
                "labels": { "job-name": "fs" },
                "annotations": { crate::observed::INDEX_ANNOTATION: index.to_string() },
            },
        });
        merge(&mut pod, &patch);
        serde_json::from_value(pod).unwrap()
    }

    fn runner(ready: bool, state: Value) -> Value {
        json!([{ "name": "fs", "image": "a", "imageID": "", "ready": ready, "restartCount": 0, "state": state }])
    }

    fn running() -> Value {
        json!({ "status": { "phase": "Running", "containerStatuses": runner(true, json!({ "running": {} })) } })
    }

    fn finished(code: i32, reason: &str) -> Value {
        let state = json!({ "terminated": { "exitCode": code, "reason": reason } });
        json!({ "status": { "phase": "Failed", "containerStatuses": runner(false, state) } })
    }

    fn of(pods: &[Pod]) -> Pods {
        Pods::of(pods.iter())
    }

    #[test]
    fn a_crashing_sidecar_does_not_make_the_broker_unready() {
        let unready = json!([
            { "type": "Ready", "status": "False", "reason": "ContainersNotReady" },
            { "type": "ContainersReady", "status": "False", "reason": "ContainersNotReady" },
        ]);
        let mut patch = running();
        patch["status"]["conditions"] = unready;
        assert!(of(&[pod(0, 1, patch)]).lead_ready);
    }

    #[test]
    fn an_injected_container_is_not_the_runner() {
        let mut patch = running();
        let proxy = json!({ "name": "proxy", "image": "a", "imageID": "", "ready": false, "restartCount": 0 });
        patch["status"]["containerStatuses"].as_array_mut().unwrap().insert(0, proxy);
        assert!(of(&[pod(0, 1, patch)]).lead_ready);
    }

    #[test]
    fn a_lead_that_ran_out_of_memory_is_reported_until_it_is_ready_again() {
        let lost = pod(0, 1, finished(137, "OOMKilled"));
        let starts = pod(0, 2, json!({ "status": { "phase": "Pending" } }));
        let pods = of(&[lost.clone(), starts]);
        assert_eq!(pods.trouble.unwrap().reason, Reason::OOMKilled);
        let back = pod(0, 2, running());
        let pods = of(&[lost, back]);
        assert!(pods.lead_ready && pods.trouble.is_none() && pods.lead_killed.is_none());
    }

    #[test]
    fn an_evicted_pod_says_why() {
        let mut patch = finished(137, "Error");
        let why = "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ";
        merge(&mut patch, &json!({ "status": { "reason": "Evicted", "message": why } }));
        let killed = of(&[pod(0, 1, patch)]).lead_killed.unwrap();
        assert_eq!(killed.reason, Reason::Evicted);
        assert!(killed.message.ends_with("containers 5Mi."), "{}", killed.message);
    }

    #[test]
    fn a_worker_that_is_replaced_has_not_failed() {
        for code in [0, 75, 137, 143] {
            assert!(of(&[pod(1, 1, finished(code, "Error"))]).failed.is_none(), "{code}");
        }
        assert_eq!(of(&[pod(1, 1, finished(9, "Error"))]).failed.unwrap().code, 9);
    }
}
