//! Whether and how a cluster has ended.

use flux_operator_api::MiniClusterStatus;
use flux_operator_api::condition::ConditionType;
use flux_operator_wire::{Ending, EndingReason};
use k8s_openapi::api::batch::v1::Job;

use super::find;
use super::pods::Pods;

/// How a cluster has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The command ended with 0.
    pub(super) succeeded: bool,
    /// Exit code of the command, if it ran.
    pub(super) exit_code: Option<i32>,
    /// One word.
    pub(super) reason: String,
    /// A sentence.
    pub(super) message: String,
}

impl Ended {
    /// `None` while the Job is neither complete nor failed. A Job that is gone has
    /// ended as the status said when it was there.
    pub(super) fn of(
        job: Option<&Job>,
        pods: &Pods<'_>,
        before: &MiniClusterStatus,
    ) -> Option<Ended> {
        let Some(job) = job else { return Ended::told(before) };
        let conditions = job.status.as_ref()?.conditions.as_ref()?;
        let holds = |types: [&str; 2]| {
            conditions.iter().find(|c| types.contains(&c.type_.as_str()) && c.status == "True")
        };
        if holds(["Complete", "SuccessCriteriaMet"]).is_some() {
            return Some(Ended {
                succeeded: true,
                exit_code: Some(0),
                reason: EndingReason::Completed.as_str().into(),
                message: "the command ended with exit code 0".into(),
            });
        }
        let failure = holds(["Failed", "FailureTarget"])?;
        let lead = pods.lead_ended.as_ref().filter(|(code, _)| *code != 0);
        if let Some((code, ending)) = lead.or(pods.failed.as_ref()) {
            return Some(Ended::failed(*code, ending.as_ref()));
        }
        // The pods are gone; what was known of the code stays known.
        let reason = failure.reason.clone().unwrap_or_else(|| "JobFailed".into());
        let message = failure.message.clone().unwrap_or_else(|| "the Job failed".into());
        Some(Ended { succeeded: false, exit_code: before.exit_code, reason, message })
    }

    fn told(before: &MiniClusterStatus) -> Option<Ended> {
        let finished = find(&before.conditions, ConditionType::JobFinished)?;
        let succeeded = find(&before.conditions, ConditionType::Succeeded)?;
        (finished.status == "True").then(|| Ended {
            succeeded: succeeded.status == "True",
            exit_code: before.exit_code,
            reason: succeeded.reason.clone(),
            message: succeeded.message.clone(),
        })
    }

    fn failed(code: i32, ending: Option<&Ending>) -> Ended {
        let Some(ending) = ending else {
            return Ended {
                succeeded: false,
                exit_code: Some(code),
                reason: EndingReason::CommandFailed.as_str().into(),
                message: format!("the runner ended with exit code {code}"),
            };
        };
        // Only a program that ran has an exit code to tell.
        let ran = matches!(ending.reason, EndingReason::Completed | EndingReason::CommandFailed);
        let message = match ending.message.as_str() {
            "" => format!("the command ended with exit code {}", ending.exit_code),
            message => message.to_owned(),
        };
        Ended {
            succeeded: false,
            exit_code: ran.then_some(i32::from(ending.exit_code)),
            reason: ending.reason.as_str().into(),
            message,
        }
    }
}
