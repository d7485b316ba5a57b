//! What has become of the Job of a run in an instance of its own.

use flux_operator_api::{MiniClusterStatus, Reason};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::completion::ClusterCompletion;
use super::pods::{Pods, runner_started};
use crate::observed::is_lead;

/// What was observed of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunView {
    /// The lead's newest pod, whose log has the output.
    pub lead_pod: Option<String>,
    /// When the lead's runner was started first: from then on the job may have run.
    pub started: Option<Timestamp>,
    /// How it has finished, if it has.
    pub end: Option<RunEnd>,
}

/// How a run has finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The job's exit code, if it has run to its end.
    pub exit_code: Option<i32>,
    /// Why it has failed, if it has none.
    pub message: String,
}

/// What has become of a run, by its Job and pods, which may be terminating.
pub fn run_view(job: Option<&Job>, pods: &[Pod]) -> RunView {
    let mut leads: Vec<&Pod> = pods.iter().filter(|pod| is_lead(pod)).collect();
    leads.sort_by_key(|pod| pod.creation_timestamp());
    let state = Pods::of(pods.iter());
    let completion =
        job.and_then(|job| ClusterCompletion::of(Some(job), &state, &MiniClusterStatus::default()));
    let end = completion.map(|completion| {
        let is_late = completion.reason == Reason::DeadlineExceeded;
        let message = match is_late {
            true => "it did not finish within the lifetime of its Burst".to_owned(),
            false => completion.message,
        };
        RunEnd { exit_code: completion.exit_code, message }
    });
    RunView {
        lead_pod: leads.last().map(|pod| pod.name_any()),
        started: leads.iter().filter_map(|pod| runner_started(pod)).min(),
        end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(kind: &str) -> Job {
        let failed = json!([{ "type": kind, "status": "True" }]);
        serde_json::from_value(json!({ "status": { "conditions": failed } })).unwrap()
    }

    fn pod(state: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "burst-1-0-x", "labels": { "job-name": "burst-1" },
                "annotations": { "batch.kubernetes.io/job-completion-index": "0" } },
            "status": { "containerStatuses": [{ "name": "burst-1", "image": "", "imageID": "",
                "ready": false, "restartCount": 0, "state": state }] },
        }))
        .unwrap()
    }

    #[test]
    fn the_exit_code_is_that_of_the_termination_message() {
        let started = "2026-05-04T10:00:00Z";
        let message = "{\"exitCode\": 75, \"reason\": \"CommandFailed\"}";
        let exited = json!({ "terminated": { "exitCode": 1, "startedAt": started,
            "message": message } });
        let view = run_view(Some(&job("Failed")), &[pod(exited.clone())]);
        assert_eq!(view.end.unwrap().exit_code, Some(75));
        assert_eq!(view.started, Some(started.parse().unwrap()));
        assert_eq!(view.lead_pod.as_deref(), Some("burst-1-0-x"));
        assert_eq!(run_view(Some(&job("Other")), &[pod(exited)]).end, None);
        let complete = run_view(Some(&job("Complete")), &[]);
        assert_eq!(complete.end.unwrap().exit_code, Some(0));
        let waiting = run_view(Some(&job("Other")), &[pod(json!({ "waiting": {} }))]);
        assert_eq!((waiting.started, waiting.end), (None, None));
    }

    #[test]
    fn a_lead_that_was_lost_has_no_exit_code() {
        let message = "{\"exitCode\": 1, \"reason\": \"RestartLimit\", \"message\": \"lost\"}";
        let lost = json!({ "terminated": { "exitCode": 1, "message": message } });
        let end = run_view(Some(&job("Failed")), &[pod(lost)]).end.unwrap();
        assert_eq!(end, RunEnd { exit_code: None, message: "lost".into() });
    }
}
