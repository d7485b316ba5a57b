//! Whether and how a cluster has finished.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::reason::AnyReason;
use flux_operator_api::{MiniClusterStatus, Reason};
use flux_operator_wire::EndingReason;
use k8s_openapi::api::batch::v1::Job;

use super::pods::{Pods, RunnerEnd};
use super::trouble::Trouble;
use crate::reason::of_ending;
use crate::verdict::find;

/// How a cluster has finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The command finished with exit code 0.
    pub(super) succeeded: bool,
    /// Exit code of the command, if it ran.
    pub(super) exit_code: Option<i32>,
    /// The condition's reason.
    pub(super) reason: AnyReason,
    /// The message of the condition.
    pub(super) message: String,
}

impl Ended {
    /// `None` while the Job is neither complete nor failed. If the Job was deleted, the
    /// result is the one in the status.
    pub(super) fn of(job: Option<&Job>, pods: &Pods, before: &MiniClusterStatus) -> Option<Ended> {
        let Some(job) = job else { return Ended::told(before) };
        let conditions = job.status.as_ref()?.conditions.as_ref()?;
        let holds = |types: [&str; 2]| {
            conditions.iter().find(|c| types.contains(&c.type_.as_str()) && c.status == "True")
        };
        if holds(["Complete", "SuccessCriteriaMet"]).is_some() {
            return Some(Ended {
                succeeded: true,
                exit_code: Some(0),
                reason: Reason::Completed.into(),
                message: "the command finished with exit code 0".into(),
            });
        }
        let failure = holds(["Failed", "FailureTarget"])?;
        if failure.reason.as_deref() == Some("DeadlineExceeded") {
            // Its pods were stopped, and their exit codes mean nothing.
            let message = "the cluster did not finish within spec.deadlineSeconds";
            return Some(Ended::without_code(Reason::DeadlineExceeded, message.into()));
        }
        let lead = pods.lead_ended.as_ref().filter(|end| end.code != 0);
        if let Some(end) = lead.or(pods.failed.as_ref()) {
            return Some(Ended::failed(end, pods.lead_killed.as_ref()));
        }
        // The pods are deleted; the exit code is kept if it was known.
        let reason = failure.reason.as_deref().map(AnyReason::read);
        let reason = reason.unwrap_or(Reason::JobFailed.into());
        let message = failure.message.clone().unwrap_or_else(|| "the Job failed".into());
        Some(Ended { succeeded: false, exit_code: before.exit_code, reason, message })
    }

    fn told(before: &MiniClusterStatus) -> Option<Ended> {
        let finished = find(&before.conditions, ConditionType::JobFinished)?;
        let succeeded = find(&before.conditions, ConditionType::Succeeded)?;
        (finished.status == "True").then(|| Ended {
            succeeded: succeeded.status == "True",
            exit_code: before.exit_code,
            reason: AnyReason::read(&succeeded.reason),
            message: succeeded.message.clone(),
        })
    }

    fn failed(end: &RunnerEnd, killed_before: Option<&Trouble>) -> Ended {
        let code = end.code;
        let reason = end.ending.as_ref().map(|ending| ending.reason);
        // The restart limit is a consequence; the cause is what the lead was lost to.
        if let (Some(EndingReason::RestartLimit), Some(killed)) = (reason, killed_before) {
            let message = format!("{}; it may not be restarted: see restart.limit", killed.message);
            return Ended::without_code(killed.reason, message);
        }
        let Some(ending) = &end.ending else {
            if let Some(killed) = &end.killed {
                return Ended::without_code(killed.reason, killed.message.clone());
            }
            return Ended {
                succeeded: false,
                exit_code: Some(code),
                reason: Reason::CommandFailed.into(),
                message: format!("the runner exited with code {code}"),
            };
        };
        // Only a program that ran has an exit code to report.
        let ran = matches!(ending.reason, EndingReason::Completed | EndingReason::CommandFailed);
        let (reason, message) = match (&end.killed, ending.message.as_str()) {
            // The command ran out of memory, and the agent could still report it.
            (Some(killed), _) => (killed.reason, killed.message.clone()),
            (None, "") => {
                let message = format!("the command finished with exit code {}", ending.exit_code);
                (of_ending(ending.reason), message)
            }
            (None, message) => (of_ending(ending.reason), message.to_owned()),
        };
        Ended {
            succeeded: false,
            exit_code: ran.then_some(i32::from(ending.exit_code)),
            reason: reason.into(),
            message,
        }
    }

    /// The command was not run to completion.
    fn without_code(reason: Reason, message: String) -> Ended {
        Ended { succeeded: false, exit_code: None, reason: reason.into(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_wire::Ending;
    use serde_json::json;

    fn end(code: i32, ending: Option<(u8, EndingReason)>, killed: Option<Reason>) -> RunnerEnd {
        let ending =
            ending.map(|(exit_code, reason)| Ending { exit_code, reason, message: String::new() });
        RunnerEnd { code, ending, killed: killed.map(|reason| Trouble::new(reason, "why")) }
    }

    /// Reason and exit code of a failed Job whose lead exited like this.
    fn told(
        job_reason: &str,
        lead_ended: RunnerEnd,
        lead_killed: Option<Reason>,
    ) -> (String, Option<i32>) {
        let job = json!({ "status": { "conditions": [
            { "type": "FailureTarget", "status": "True", "reason": job_reason, "message": "m" },
        ] } });
        let job: Job = serde_json::from_value(job).unwrap();
        let lead_killed = lead_killed.map(|reason| Trouble::new(reason, "why"));
        let pods = Pods { lead_ended: Some(lead_ended), lead_killed, ..Pods::default() };
        let ended = Ended::of(Some(&job), &pods, &MiniClusterStatus::default()).unwrap();
        (ended.reason.to_string(), ended.exit_code)
    }

    #[test]
    fn the_cause_is_told_and_not_what_followed_from_it() {
        let command = Some((7, EndingReason::CommandFailed));
        let killed = Some((137, EndingReason::CommandFailed));
        let limit = Some((1, EndingReason::RestartLimit));
        let stopped = Some((143, EndingReason::Stopped));
        let policy = "PodFailurePolicy";
        let cases = [
            (told(policy, end(7, command, None), None), "CommandFailed", Some(7)),
            (told(policy, end(9, None, None), None), "CommandFailed", Some(9)),
            // The command alone ran out of memory, or the whole container did.
            (told(policy, end(1, killed, Some(Reason::OOMKilled)), None), "OOMKilled", Some(137)),
            (told(policy, end(1, limit, None), Some(Reason::OOMKilled)), "OOMKilled", None),
            (told(policy, end(1, limit, None), None), "RestartLimit", None),
            (told(policy, end(128, None, Some(Reason::StartError)), None), "StartError", None),
            (told("DeadlineExceeded", end(143, stopped, None), None), "DeadlineExceeded", None),
        ];
        for (told, reason, code) in cases {
            assert_eq!(told, (reason.to_owned(), code));
        }
    }
}
