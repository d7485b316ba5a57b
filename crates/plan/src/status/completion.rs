//! Whether and how a cluster has finished.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::reason::AnyReason;
use flux_operator_api::{MiniClusterStatus, Reason};
use flux_operator_wire::TerminationReason;
use k8s_openapi::api::batch::v1::Job;

use super::pods::{Pods, RunnerExit};
use super::trouble::Trouble;
use crate::reason::of_termination;
use crate::verdict::find;

/// How a cluster has finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterCompletion {
    /// The command finished with exit code 0.
    pub(super) succeeded: bool,
    /// Exit code of the command, if it ran.
    pub(super) exit_code: Option<i32>,
    /// The condition's reason.
    pub(super) reason: AnyReason,
    /// The message of the condition.
    pub(super) message: String,
}

impl ClusterCompletion {
    /// `None` while the Job is neither complete nor failed. If the Job was deleted, the
    /// result is the one in the status.
    pub(super) fn of(
        job: Option<&Job>,
        pods: &Pods,
        before: &MiniClusterStatus,
    ) -> Option<ClusterCompletion> {
        let Some(job) = job else { return ClusterCompletion::from_status(before) };
        let conditions = job.status.as_ref()?.conditions.as_ref()?;
        let find_true = |types: [&str; 2]| {
            conditions.iter().find(|c| types.contains(&c.type_.as_str()) && c.status == "True")
        };
        if find_true(["Complete", "SuccessCriteriaMet"]).is_some() {
            return Some(ClusterCompletion {
                succeeded: true,
                exit_code: Some(0),
                reason: Reason::Completed.into(),
                message: "the command finished with exit code 0".into(),
            });
        }
        let failure = find_true(["Failed", "FailureTarget"])?;
        if failure.reason.as_deref() == Some("DeadlineExceeded") {
            // Its pods were stopped, and their exit codes mean nothing.
            let message = "the cluster did not finish within spec.deadlineSeconds";
            return Some(ClusterCompletion::without_code(Reason::DeadlineExceeded, message.into()));
        }
        let lead = pods.lead_exit.as_ref().filter(|end| end.code != 0);
        if let Some(end) = lead.or(pods.failed.as_ref()) {
            return Some(ClusterCompletion::failed(end, pods.lead_killed.as_ref()));
        }
        // The pods are deleted; the exit code is kept if it was known.
        let reason = failure.reason.as_deref().map(AnyReason::read);
        let reason = reason.unwrap_or(Reason::JobFailed.into());
        let message = failure.message.clone().unwrap_or_else(|| "the Job failed".into());
        Some(ClusterCompletion { succeeded: false, exit_code: before.exit_code, reason, message })
    }

    fn from_status(before: &MiniClusterStatus) -> Option<ClusterCompletion> {
        let finished = find(&before.conditions, ConditionType::JobFinished)?;
        let succeeded = find(&before.conditions, ConditionType::Succeeded)?;
        (finished.status == "True").then(|| ClusterCompletion {
            succeeded: succeeded.status == "True",
            exit_code: before.exit_code,
            reason: AnyReason::read(&succeeded.reason),
            message: succeeded.message.clone(),
        })
    }

    fn failed(exit: &RunnerExit, killed_before: Option<&Trouble>) -> ClusterCompletion {
        let code = exit.code;
        let reason = exit.termination.as_ref().map(|termination| termination.reason);
        // The restart limit is a consequence; the cause is why the lead was lost.
        if let (Some(TerminationReason::RestartLimit), Some(killed)) = (reason, killed_before) {
            let message = format!("{}; it may not be restarted: see restart.limit", killed.message);
            return ClusterCompletion::without_code(killed.reason, message);
        }
        let Some(termination) = &exit.termination else {
            if let Some(killed) = &exit.killed {
                return ClusterCompletion::without_code(killed.reason, killed.message.clone());
            }
            return ClusterCompletion {
                succeeded: false,
                exit_code: Some(code),
                reason: Reason::CommandFailed.into(),
                message: format!("the runner exited with code {code}"),
            };
        };
        // Only a program that ran has an exit code to report.
        let ran = matches!(
            termination.reason,
            TerminationReason::Completed | TerminationReason::CommandFailed
        );
        let (reason, message) = match (&exit.killed, termination.message.as_str()) {
            // The command ran out of memory, and the agent could still report it.
            (Some(killed), _) => (killed.reason, killed.message.clone()),
            (None, "") => {
                let message =
                    format!("the command finished with exit code {}", termination.exit_code);
                (of_termination(termination.reason), message)
            }
            (None, message) => (of_termination(termination.reason), message.to_owned()),
        };
        ClusterCompletion {
            succeeded: false,
            exit_code: ran.then_some(i32::from(termination.exit_code)),
            reason: reason.into(),
            message,
        }
    }

    /// The command was not run to completion.
    fn without_code(reason: Reason, message: String) -> ClusterCompletion {
        ClusterCompletion { succeeded: false, exit_code: None, reason: reason.into(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_wire::Termination;
    use serde_json::json;

    fn exit(
        code: i32,
        termination: Option<(u8, TerminationReason)>,
        killed: Option<Reason>,
    ) -> RunnerExit {
        let termination = termination.map(|(exit_code, reason)| Termination {
            exit_code,
            reason,
            message: String::new(),
        });
        RunnerExit { code, termination, killed: killed.map(|reason| Trouble::new(reason, "why")) }
    }

    /// Reason and exit code of a failed Job whose lead exited like this.
    fn reported(
        job_reason: &str,
        lead_exit: RunnerExit,
        lead_killed: Option<Reason>,
    ) -> (String, Option<i32>) {
        let job = json!({ "status": { "conditions": [
            { "type": "FailureTarget", "status": "True", "reason": job_reason, "message": "m" },
        ] } });
        let job: Job = serde_json::from_value(job).unwrap();
        let lead_killed = lead_killed.map(|reason| Trouble::new(reason, "why"));
        let pods = Pods { lead_exit: Some(lead_exit), lead_killed, ..Pods::default() };
        let finished =
            ClusterCompletion::of(Some(&job), &pods, &MiniClusterStatus::default()).unwrap();
        (finished.reason.to_string(), finished.exit_code)
    }

    #[test]
    fn the_cause_is_reported_and_not_its_consequence() {
        let command = Some((7, TerminationReason::CommandFailed));
        let killed = Some((137, TerminationReason::CommandFailed));
        let limit = Some((1, TerminationReason::RestartLimit));
        let stopped = Some((143, TerminationReason::Stopped));
        let policy = "PodFailurePolicy";
        let cases = [
            (reported(policy, exit(7, command, None), None), "CommandFailed", Some(7)),
            (reported(policy, exit(9, None, None), None), "CommandFailed", Some(9)),
            // The command alone ran out of memory, or the whole container did.
            (
                reported(policy, exit(1, killed, Some(Reason::OOMKilled)), None),
                "OOMKilled",
                Some(137),
            ),
            (reported(policy, exit(1, limit, None), Some(Reason::OOMKilled)), "OOMKilled", None),
            (reported(policy, exit(1, limit, None), None), "RestartLimit", None),
            (reported(policy, exit(128, None, Some(Reason::StartError)), None), "StartError", None),
            (
                reported("DeadlineExceeded", exit(143, stopped, None), None),
                "DeadlineExceeded",
                None,
            ),
        ];
        for (reported, reason, code) in cases {
            assert_eq!(reported, (reason.to_owned(), code));
        }
    }
}
