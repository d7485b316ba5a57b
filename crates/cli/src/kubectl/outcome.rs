//! The outcome of a MiniCluster, from its status.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::reason::{BlockingCondition, blocking_condition};
use flux_operator_api::{MiniCluster, MiniClusterStatus, Reason};
use flux_operator_plan::{Cluster, Mode, Valid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The outcome of a MiniCluster, for a command that waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClusterOutcome {
    /// It is still in progress.
    InProgress,
    /// It is ready and accepts jobs; it has no command of its own.
    Ready,
    /// All its brokers are online in the instance of another MiniCluster, as this says. It never
    /// runs a command.
    Joined(String),
    /// Its manifest is not accepted.
    Refused(FailureCause),
    /// It was accepted, but does not start until the user acts.
    Blocked(FailureCause),
    /// Its command exited with this code.
    Exited(i32, String),
    /// It failed, without an exit code of its command.
    Failed(FailureCause),
}

/// Why a MiniCluster does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FailureCause {
    /// What is wrong.
    pub(super) message: String,
    /// What to do; None for a reason that this version does not know.
    pub(super) remedy: Option<&'static str>,
}

/// The current outcome.
pub(super) fn outcome(minicluster: &MiniCluster) -> ClusterOutcome {
    let Some(status) = current(minicluster) else { return ClusterOutcome::InProgress };
    let is_true = |kind| condition(status, kind).is_some_and(|c| c.status == "True");
    if is_true(ConditionType::JobFinished) {
        let succeeded = condition(status, ConditionType::Succeeded);
        let message = succeeded.map(describe).unwrap_or_default();
        return match status.exit_code {
            Some(code) => ClusterOutcome::Exited(code, message),
            None if is_true(ConditionType::Succeeded) => ClusterOutcome::Exited(0, message),
            None => {
                let reason = succeeded.and_then(|c| c.reason.parse().ok());
                ClusterOutcome::Failed(FailureCause { message, remedy: reason.map(Reason::remedy) })
            }
        };
    }
    if minicluster.spec.is_joiner() {
        let joined = condition(status, ConditionType::Joined).filter(|c| c.status == "True");
        if let Some(joined) = joined {
            return ClusterOutcome::Joined(joined.message.clone());
        }
    } else if is_true(ConditionType::Ready) && is_interactive(minicluster) {
        return ClusterOutcome::Ready;
    }
    match blocking_condition(&status.conditions) {
        None => ClusterOutcome::InProgress,
        Some(BlockingCondition { condition, reason }) => {
            let remedy = reason.map(Reason::remedy);
            // For an invalid manifest the message is enough without the reason.
            match condition.type_ == ConditionType::Accepted.as_str() {
                true => ClusterOutcome::Refused(FailureCause {
                    message: condition.message.clone(),
                    remedy,
                }),
                false => {
                    ClusterOutcome::Blocked(FailureCause { message: describe(condition), remedy })
                }
            }
        }
    }
}

/// The status in one line: phase, online brokers, and what it is waiting for.
pub(super) fn status_line(minicluster: &MiniCluster) -> String {
    let Some(status) = current(minicluster) else {
        return "waiting for the operator to process it".into();
    };
    let MiniClusterStatus { phase, ready, .. } = status;
    match waiting_reason(status) {
        Some(reason) => format!("{phase}, {ready} ready: {reason}"),
        None => format!("{phase}, {ready} ready"),
    }
}

/// Why a MiniCluster does not accept jobs now; `None` if it does.
pub(super) fn not_ready_reason(minicluster: &MiniCluster) -> Option<String> {
    let ready = current(minicluster).and_then(|status| condition(status, ConditionType::Ready));
    match ready {
        Some(ready) if ready.status == "True" => None,
        _ => Some(status_line(minicluster)),
    }
}

/// Whether it stays up instead of running a command. The command of a joiner is not run.
pub(super) fn is_interactive(minicluster: &MiniCluster) -> bool {
    minicluster.spec.is_joiner()
        || cluster(minicluster).is_some_and(|cluster| cluster.mode == Mode::Interactive)
}

/// The directory of Flux and its files in the pods.
pub(super) fn mount_path(minicluster: &MiniCluster) -> Option<String> {
    cluster(minicluster).map(|cluster| cluster.mount)
}

/// The cluster that the manifest describes, if it is valid.
fn cluster(minicluster: &MiniCluster) -> Option<Cluster> {
    Cluster::of(&Valid::check(minicluster.clone()).ok()?).ok()
}

/// The status, unless it is of an older generation.
fn current(minicluster: &MiniCluster) -> Option<&MiniClusterStatus> {
    let status = minicluster.status.as_ref()?;
    (status.observed_generation == minicluster.metadata.generation).then_some(status)
}

/// Reason and message of a condition.
fn describe(condition: &Condition) -> String {
    format!("{}: {}", condition.reason, condition.message)
}

fn condition(status: &MiniClusterStatus, kind: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// The condition that says why it is ready or not: Ready; or Joined, while it is the lender that
/// keeps a joiner's brokers from being online. Once ranks are leased, Ready says more: it has the
/// problems of the pods.
pub(super) fn readiness(conditions: &[Condition]) -> Option<&Condition> {
    let find = |kind: ConditionType| conditions.iter().find(|it| it.type_ == kind.as_str());
    let is_cause =
        |joined: &&Condition| joined.status == "False" && joined.reason != Reason::Joining.as_str();
    find(ConditionType::Joined).filter(is_cause).or_else(|| find(ConditionType::Ready))
}

/// Why it is not ready and has not succeeded: how it failed, or the first of the conditions
/// Accepted, Admitted, and Joined or Ready that is not True.
pub(super) fn waiting_reason(status: &MiniClusterStatus) -> Option<String> {
    let finished = condition(status, ConditionType::Succeeded).filter(|c| c.status != "Unknown");
    let required = [ConditionType::Accepted, ConditionType::Admitted];
    let required = required.into_iter().filter_map(|kind| condition(status, kind));
    let mut way = required.chain(readiness(&status.conditions));
    let blocking = match finished {
        Some(finished) => Some(finished).filter(|condition| condition.status != "True"),
        None => way.find(|condition| condition.status != "True"),
    }?;
    Some(describe(blocking))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A MiniCluster with this status, in which `conditions` is a map from type to status, reason
    /// and message.
    pub(in crate::kubectl) fn minicluster(spec: Value, mut status: Value) -> MiniCluster {
        let mut conditions = Vec::new();
        for (kind, words) in status["conditions"].as_object().into_iter().flatten() {
            conditions.push(json!({
                "type": kind, "status": words[0], "reason": words[1], "message": words[2],
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }));
        }
        status["conditions"] = conditions.into();
        status["observedGeneration"] = 1.into();
        serde_json::from_value(json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "MiniCluster",
            "metadata": { "name": "fs", "generation": 1 },
            "spec": spec,
            "status": status,
        }))
        .unwrap()
    }

    fn command() -> Value {
        json!({ "size": 4, "containers": [{ "command": "hostname" }] })
    }

    fn shown(status: Value) -> (ClusterOutcome, String) {
        let minicluster = minicluster(command(), status);
        (outcome(&minicluster), status_line(&minicluster))
    }

    #[test]
    fn the_status_line_follows_the_conditions() {
        let waiting = json!({ "phase": "Pending", "ready": "0/4", "conditions": {
            "Accepted": ["True", "Accepted", ""],
            "Admitted": ["True", "NotQueued", ""],
            "Ready": ["False", "Unschedulable", "0/1 nodes are available"],
        }});
        let expected = "Pending, 0/4 ready: Unschedulable: 0/1 nodes are available";
        assert_eq!(shown(waiting), (ClusterOutcome::InProgress, expected.into()));
        let running = json!({ "phase": "Running", "ready": "4/4", "conditions": {
            "Ready": ["True", "Quorum", ""],
        }});
        assert_eq!(shown(running), (ClusterOutcome::InProgress, "Running, 4/4 ready".into()));
        let suspended = json!({ "phase": "Suspended", "ready": "0/4", "conditions": {
            "Admitted": ["False", "Suspended", "spec.suspend is true"],
            "Ready": ["False", "NotCreated", "the Job does not exist yet"],
        }});
        let expected = "Suspended, 0/4 ready: Suspended: spec.suspend is true";
        assert_eq!(shown(suspended), (ClusterOutcome::InProgress, expected.into()));
    }

    #[test]
    fn a_finished_cluster_has_an_exit_code_or_a_reason() {
        let finished = json!({ "exitCode": 7, "phase": "Failed", "ready": "0/4", "conditions": {
            "JobFinished": ["True", "", ""],
            "Ready": ["False", "CommandFailed", "the cluster has finished"],
            "Succeeded": ["False", "CommandFailed", "with 7"],
        }});
        let (outcome, line) = shown(finished);
        assert_eq!(outcome, ClusterOutcome::Exited(7, "CommandFailed: with 7".into()));
        assert_eq!(line, "Failed, 0/4 ready: CommandFailed: with 7");
        let succeeded = json!({ "phase": "Succeeded", "ready": "0/4", "conditions": {
            "JobFinished": ["True", "", ""],
            "Ready": ["False", "Completed", "the cluster has finished"],
            "Succeeded": ["True", "Completed", ""],
        }});
        assert_eq!(shown(succeeded).1, "Succeeded, 0/4 ready");
        let failed = json!({ "conditions": {
            "JobFinished": ["True", "", ""],
            "Succeeded": ["False", "FluxMissing", "no flux"],
        }});
        let remedy = Some(Reason::FluxMissing.remedy());
        let cause = FailureCause { message: "FluxMissing: no flux".into(), remedy };
        assert_eq!(shown(failed).0, ClusterOutcome::Failed(cause));
    }

    #[test]
    fn reasons_that_need_the_user_end_the_wait_and_transient_ones_do_not() {
        let status =
            |kind: &str, reason: &str| json!({ "conditions": { kind: ["False", reason, "why"] } });
        let cause = |message: &str, reason: Reason| {
            let remedy = Some(reason.remedy());
            FailureCause { message: message.into(), remedy }
        };
        for reason in [Reason::Invalid, Reason::NotOurs, Reason::TooLarge] {
            let outcome = shown(status("Accepted", reason.as_str())).0;
            assert_eq!(outcome, ClusterOutcome::Refused(cause("why", reason)));
        }
        for reason in [Reason::InvalidImageName, Reason::PodSecurity, Reason::KeysLost] {
            let outcome = shown(status("Ready", reason.as_str())).0;
            assert_eq!(outcome, ClusterOutcome::Blocked(cause(&format!("{reason}: why"), reason)));
        }
        for (kind, reason) in [
            ("Accepted", "ApplyFailed"),
            ("Admitted", "WaitingForQueue"),
            ("Ready", "ErrImagePull"),
            ("Ready", "Unschedulable"),
        ] {
            assert_eq!(shown(status(kind, reason)).0, ClusterOutcome::InProgress, "{reason}");
        }
        let from_the_future = shown(status("Accepted", "FromTheFuture")).0;
        let cause = FailureCause { message: "why".into(), remedy: None };
        assert_eq!(from_the_future, ClusterOutcome::Refused(cause));
    }

    #[test]
    fn a_refused_change_does_not_end_the_wait_for_a_running_command() {
        let immutable = ["False", "Immutable", "spec.x cannot change"];
        let runs = json!({ "conditions": {
            "Accepted": immutable, "Running": ["True", "CommandStarted", ""],
        }});
        assert_eq!(shown(runs).0, ClusterOutcome::InProgress);
        let finished = json!({ "exitCode": 0, "conditions": {
            "Accepted": immutable,
            "Succeeded": ["True", "Completed", "done"],
            "JobFinished": ["True", "Completed", "done"],
        }});
        assert_eq!(shown(finished).0, ClusterOutcome::Exited(0, "Completed: done".into()));
    }

    #[test]
    fn a_cluster_without_a_command_is_up_when_it_is_ready() {
        let ready = json!({ "conditions": { "Ready": ["True", "Quorum", ""] } });
        let interactive = minicluster(json!({ "containers": [{}] }), ready.clone());
        assert_eq!(
            (outcome(&interactive), not_ready_reason(&interactive)),
            (ClusterOutcome::Ready, None)
        );
        assert_eq!(outcome(&minicluster(command(), ready)), ClusterOutcome::InProgress);
    }

    /// A joiner whose manifest has a command, with these conditions.
    fn joiner(conditions: Value) -> MiniCluster {
        let mut spec = command();
        spec["flux"] = json!({ "join": { "name": "first" } });
        let status = json!({ "phase": "Waiting", "ready": "0/4", "conditions": conditions });
        minicluster(spec, status)
    }

    #[test]
    fn a_joiner_is_done_when_it_has_joined_even_if_it_has_a_command() {
        let joined = ["True", "Joined", "ranks 2-5 of \"first\" are online"];
        let joined = joiner(json!({ "Joined": joined, "Ready": joined }));
        let outcome_of_joined = ClusterOutcome::Joined(r#"ranks 2-5 of "first" are online"#.into());
        assert!(is_interactive(&joined));
        assert_eq!((outcome(&joined), not_ready_reason(&joined)), (outcome_of_joined, None));
    }

    #[test]
    fn a_joiner_is_waited_for_unless_its_user_has_to_act() {
        let missing = ["False", "LenderMissing", "no such MiniCluster"];
        let waits = joiner(json!({ "Joined": missing, "Ready": missing }));
        let expected = "Waiting, 0/4 ready: LenderMissing: no such MiniCluster";
        assert_eq!(
            (outcome(&waits), status_line(&waits)),
            (ClusterOutcome::InProgress, expected.into())
        );
        let refused = joiner(json!({
            "Joined": ["False", "VersionMismatch", "0.70, not 0.88"],
            "Ready": ["False", "CrashLoopBackOff", "it exits"],
        }));
        let message: String = "VersionMismatch: 0.70, not 0.88".into();
        assert_eq!(status_line(&refused), format!("Waiting, 0/4 ready: {message}"));
        let remedy = Some(Reason::VersionMismatch.remedy());
        assert_eq!(outcome(&refused), ClusterOutcome::Blocked(FailureCause { message, remedy }));
    }

    #[test]
    fn the_problems_of_pods_are_shown_once_ranks_are_leased() {
        let starting = joiner(json!({
            "Joined": ["False", "Joining", "0 of 4 brokers are online"],
            "Ready": ["False", "ErrImagePull", "no such image"],
        }));
        let expected = "Waiting, 0/4 ready: ErrImagePull: no such image";
        assert_eq!(status_line(&starting), expected);
    }

    #[test]
    fn a_status_of_an_older_generation_is_ignored() {
        let mut changed =
            minicluster(command(), json!({ "conditions": { "JobFinished": ["True", "", ""] } }));
        changed.metadata.generation = Some(2);
        assert_eq!(outcome(&changed), ClusterOutcome::InProgress);
        assert!(not_ready_reason(&changed).is_some());
    }

    #[test]
    fn files_are_below_the_mount_of_the_manifest() {
        let flux = json!({ "container": { "mountPath": "/opt/flux" } });
        let moved = minicluster(json!({ "containers": [{}], "flux": flux }), json!({}));
        assert_eq!(mount_path(&moved).as_deref(), Some("/opt/flux"));
        assert_eq!(mount_path(&minicluster(command(), json!({}))).as_deref(), Some("/mnt/flux"));
    }
}
