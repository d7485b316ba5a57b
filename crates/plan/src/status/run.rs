//! What has become of the Job of a run in an instance of its own.

use flux_operator_api::{MiniClusterStatus, Reason};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::completion::ClusterCompletion;
use super::pods::{Pods, runner_started};
use super::trouble::is_node_lost;
use crate::observed::is_lead;

/// What was observed of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunView {
    /// The lead's pod whose log has the output.
    pub lead_pod: Option<String>,
    /// When the lead's runner was started: from then on the job may have run.
    pub started: Option<Timestamp>,
    /// How it has finished, if it has.
    pub end: Option<RunEnd>,
    /// It has finished, and every pod of the lead shows that its runner was never started.
    pub never_started: bool,
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
    let ran = leads.iter().filter(|pod| losses(pod) == 0);
    let ran = ran.filter_map(|pod| Some((runner_started(pod)?, pod))).min_by_key(|(at, _)| *at);
    let started = ran.as_ref().map(|(at, _)| *at);
    let newest = leads.last();
    let are_all_known = newest.is_some_and(|pod| losses(pod).saturating_add(1) == leads.len())
        && !leads.iter().any(|pod| is_node_lost(pod));
    RunView {
        lead_pod: ran.map(|(_, pod)| pod).or(newest).map(|pod| pod.name_any()),
        never_started: end.is_some() && started.is_none() && are_all_known,
        started,
        end,
    }
}

/// How many pods of its index Kubernetes had lost before this one. A lead that replaces another one does
/// not run the job again: its agent only says that the first was lost.
fn losses(pod: &Pod) -> usize {
    let count = |kind: &str| {
        let name = format!("batch.kubernetes.io/job-index-{kind}-count");
        pod.annotations().get(&name).and_then(|count| count.parse::<usize>().ok())
    };
    ["failure", "ignored-failure"].into_iter().filter_map(count).fold(0, usize::saturating_add)
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

    /// A pod of the lead that replaces `lost` others, with this state of its runner.
    fn lead(name: &str, lost: usize, state: Value) -> Pod {
        let mut lead = pod(state);
        lead.metadata.name = Some(name.to_owned());
        let created = format!("2026-05-04T10:00:0{lost}Z");
        lead.metadata.creation_timestamp = serde_json::from_value(json!(created)).unwrap();
        let count = "batch.kubernetes.io/job-index-ignored-failure-count";
        lead.metadata.annotations.as_mut().unwrap().insert(count.to_owned(), lost.to_string());
        lead
    }

    fn refused_restart() -> Value {
        let message = "{\"exitCode\": 1, \"reason\": \"RestartLimit\", \"message\": \"lost\"}";
        json!({ "terminated": { "exitCode": 1, "startedAt": "2026-05-04T10:01:00Z",
            "message": message } })
    }

    #[test]
    fn the_output_is_that_of_the_lead_that_has_run_the_job() {
        let killed = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled",
            "startedAt": "2026-05-04T10:00:10Z" } });
        let pods = [lead("second", 1, refused_restart()), lead("first", 0, killed)];
        let view = run_view(Some(&job("Failed")), &pods);
        assert_eq!(view.lead_pod.as_deref(), Some("first"));
        assert_eq!(view.started, Some("2026-05-04T10:00:10Z".parse().unwrap()));
        assert!(!view.never_started);
        assert!(view.end.unwrap().message.contains("ran out of memory"));
    }

    /// The kubelet had no capacity for it, or its node was to be reclaimed.
    #[test]
    fn a_lead_that_was_lost_before_its_runner_was_started_has_not_run_the_job() {
        let waiting = || json!({ "waiting": {} });
        let never_started = |pods: &[Pod], is_over: bool| {
            let view = run_view(Some(&job(if is_over { "Failed" } else { "Other" })), pods);
            assert_eq!(view.started, None);
            view.never_started
        };
        let (first, second) = (lead("a", 0, waiting()), lead("b", 1, refused_restart()));
        assert!(never_started(&[first.clone(), second.clone()], true));
        assert!(never_started(std::slice::from_ref(&first), true), "a worker has failed");
        assert!(!never_started(&[first, second.clone()], false), "it may still start");
        assert!(!never_started(&[second], true), "the first may have run it");
        assert!(!never_started(&[], true));
    }

    #[test]
    fn a_lead_that_was_lost_has_no_exit_code() {
        let message = "{\"exitCode\": 1, \"reason\": \"RestartLimit\", \"message\": \"lost\"}";
        let lost = json!({ "terminated": { "exitCode": 1, "message": message } });
        let end = run_view(Some(&job("Failed")), &[pod(lost)]).end.unwrap();
        assert_eq!(end, RunEnd { exit_code: None, message: "lost".into() });
    }
}
