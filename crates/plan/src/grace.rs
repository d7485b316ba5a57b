//! How long a cluster has to stop.

use flux_operator_api::MiniClusterSpec;

/// Seconds between SIGTERM and SIGKILL for an agent's child processes. Users who delete a
/// cluster wait for this; a Flux instance without jobs stops a little sooner.
const GRACE_SECONDS: u32 = 1;

/// The same if Flux writes an archive when it stops.
const ARCHIVE_GRACE_SECONDS: u32 = 25;

/// How many seconds before the kubelet's SIGKILL an agent kills its child processes, so that it
/// can still report.
const REPORT_MARGIN_SECONDS: i64 = 2;

/// Seconds that a pod has by default. It is more than [`GRACE_SECONDS`] for slow machines.
const POD_GRACE_SECONDS: i64 = 5;

/// Seconds that an agent's child processes have: nearly as many as the user gives the pod.
pub(crate) fn agent_seconds(spec: &MiniClusterSpec) -> u32 {
    match user_seconds(spec) {
        Some(seconds) => u32::try_from(seconds.saturating_sub(REPORT_MARGIN_SECONDS))
            .unwrap_or_default()
            .max(GRACE_SECONDS),
        None if has_archive(spec) => ARCHIVE_GRACE_SECONDS,
        None => GRACE_SECONDS,
    }
}

/// Seconds that a pod has. None is Kubernetes' default of 30: for writing an archive,
/// and for a `preStopExec` command of the user.
pub(crate) fn pod_seconds(spec: &MiniClusterSpec) -> Option<i64> {
    let waits = spec.containers.iter().any(|container| {
        container.life_cycle.as_ref().is_some_and(|hooks| !hooks.pre_stop_exec.is_empty())
    });
    user_seconds(spec).or_else(|| (!waits && !has_archive(spec)).then_some(POD_GRACE_SECONDS))
}

fn user_seconds(spec: &MiniClusterSpec) -> Option<i64> {
    spec.pod.as_ref().and_then(|pod| pod.termination_grace_period_seconds)
}

/// Whether Flux writes an archive when it stops.
pub(crate) fn has_archive(spec: &MiniClusterSpec) -> bool {
    spec.archive.as_ref().is_some_and(|archive| !archive.path.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_stops_soon_unless_it_has_something_to_do() {
        let cases = [
            (json!({}), GRACE_SECONDS, Some(POD_GRACE_SECONDS)),
            (json!({ "archive": { "path": "/state.tgz" } }), ARCHIVE_GRACE_SECONDS, None),
            (json!({ "pod": { "terminationGracePeriodSeconds": 60 } }), 58, Some(60)),
            (json!({ "pod": { "terminationGracePeriodSeconds": 0 } }), GRACE_SECONDS, Some(0)),
            (
                json!({ "containers": [{ "lifeCycle": { "preStopExec": "sleep 10" } }] }),
                GRACE_SECONDS,
                None,
            ),
        ];
        for (mut spec, agent, pod) in cases {
            if spec["containers"].is_null() {
                spec["containers"] = json!([{}]);
            }
            let spec: MiniClusterSpec = serde_json::from_value(spec).unwrap();
            assert_eq!((agent_seconds(&spec), pod_seconds(&spec)), (agent, pod), "{spec:?}");
        }
    }
}
