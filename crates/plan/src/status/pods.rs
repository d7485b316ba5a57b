//! What the pods of a Job show.

use flux_operator_wire::Ending;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use crate::seen::{index, is_going};

/// What the pods show, taken together.
#[derive(Debug, Default)]
pub(super) struct Pods<'a> {
    /// How many run or will run.
    pub(super) living: usize,
    /// How many run or have run.
    pub(super) started: usize,
    /// How many are ready.
    pub(super) ready: u32,
    /// The lead is ready: enough brokers are online.
    pub(super) lead_ready: bool,
    /// How the lead's runner ended, if it did: its code, and what it left behind.
    pub(super) lead_ended: Option<(i32, Option<Ending>)>,
    /// How another pod's runner failed.
    pub(super) failed: Option<(i32, Option<Ending>)>,
    /// Why a pod cannot be placed or started: a word and a sentence.
    pub(super) held: Option<(&'a str, String)>,
}

impl<'a> Pods<'a> {
    pub(super) fn of(pods: impl Iterator<Item = &'a Pod>) -> Pods<'a> {
        let mut seen = Pods::default();
        // The newest pod of an index says how it is now.
        let mut pods: Vec<&Pod> = pods.collect();
        pods.sort_by_key(|pod| pod.creation_timestamp());
        for pod in pods {
            let leads = index(pod) == Some("0");
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if matches!(phase, Some("Running" | "Succeeded" | "Failed")) {
                seen.started += 1;
            }
            let going = is_going(pod);
            let over = matches!(phase, Some("Succeeded" | "Failed"));
            seen.living += usize::from(!going && !over);
            let ready = is_ready(pod) && !going;
            seen.ready += u32::from(ready);
            let ended = runner_ended(pod);
            if leads {
                seen.lead_ready = ready;
                seen.lead_ended = ended;
            } else if ended.as_ref().is_some_and(|(code, _)| !matches!(code, 0 | 75 | 137 | 143)) {
                seen.failed = ended;
            }
            if seen.held.is_none() && !going {
                seen.held = why_held(pod);
            }
        }
        seen
    }
}

/// Whether Kubernetes holds a pod for ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The runner is a pod's only container that is not a sidecar.
fn runner(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

fn runner_ended(pod: &Pod) -> Option<(i32, Option<Ending>)> {
    let ended = runner(pod)?.state.as_ref()?.terminated.as_ref()?;
    Some((ended.exit_code, ended.message.as_deref().and_then(Ending::parse)))
}

/// Why a pod waits, when waiting will not help by itself.
fn why_held(pod: &Pod) -> Option<(&str, String)> {
    let status = pod.status.as_ref()?;
    let unplaced = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unplaced {
        return Some(("Unschedulable", condition.message.clone().unwrap_or_default()));
    }
    let containers =
        status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut waiting = containers
        .filter_map(|container| Some((container, container.state.as_ref()?.waiting.as_ref()?)));
    waiting.find_map(|(container, waiting)| {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let known = [
            "ErrImagePull",
            "ImagePullBackOff",
            "InvalidImageName",
            "CreateContainerConfigError",
            "CreateContainerError",
            "RunContainerError",
        ];
        let reason = known.into_iter().find(|known| *known == reason)?;
        let message = waiting.message.clone().unwrap_or_default();
        Some((reason, format!("container {:?}: {message}", container.name)))
    })
}
