//! Explains the state of a job as text.

use std::fmt;

use flux_operator_api::view::{AdmissionState, JobExplanation, QueuePosition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::outcome::readiness;

/// The state of a job, as text for users.
pub(super) struct Explanation<'a>(pub(super) &'a JobExplanation);

/// Whether the answer is certain even if not all objects could be listed: its queue was found, or
/// it was refused and needs none.
pub(super) fn is_certain(why: &JobExplanation) -> bool {
    !why.queue.is_empty() || why.state == AdmissionState::Refused
}

/// Adds the state of the cluster of an admitted job, from its last reported conditions.
pub(super) fn add_cluster(why: &mut JobExplanation, conditions: &[Condition]) {
    let ready = readiness(conditions).filter(|_| why.state == AdmissionState::Admitted);
    if let Some(ready) = ready {
        why.cluster = format!("{}: {}", ready.reason, ready.message);
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation(why) = self;
        let JobExplanation { kind, namespace, name, state, .. } = why;
        writeln!(f, "{kind} {namespace}/{name}: {state:?}")?;
        let position = why
            .position
            .map(|QueuePosition { place, pending }| format!("{place} ({pending} wait)"));
        let reason = match (why.reason.as_str(), why.message.as_str()) {
            ("", message) => message.to_owned(),
            (reason, "") => reason.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        for (label, text) in [
            ("asks for", why.asks.as_str()),
            ("queue", &why.queue),
            ("position", position.as_deref().unwrap_or_default()),
            ("reason", &reason),
            ("missing", &why.missing),
            ("cluster", &why.cluster),
            ("freed by", &why.freed_by.join(", ")),
        ] {
            if !text.is_empty() {
                writeln!(f, "  {label:<9} {text}")?;
            }
        }
        why.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{admitted, job, objects, setup, snapshot};
    use super::*;
    use flux_operator_plan::view::of_job;
    use serde_json::{Value, json};

    fn explained(manifests: &[Value], name: &str) -> String {
        Explanation(&snapshot(manifests).view().explain(&name.into()).unwrap()).to_string()
    }

    #[test]
    fn q33_why_names_what_is_missing_and_which_jobs_would_free_it() {
        let jobs = [
            setup(4),
            admitted("endless", 2, json!({})),
            admitted("limited", 2, json!({ "maxRuntimeSeconds": 600 })),
            job("other", json!({ "size": 4, "priority": 1 })),
            job("asked", json!({ "size": 3 })),
        ];
        let expected = "\
FluxJob team/asked: Waiting
  asks for  3 nodes, 3 pods
  queue     team/main (BestEffortFIFO)
  position  1 (2 wait)
  reason    WaitingForQuota: missing 3 nodes
  missing   3 nodes
  freed by  limited (2 nodes by 2026-01-01 00:11:00 UTC), endless (2 nodes)
";
        assert_eq!(explained(&jobs, "asked"), expected);
        let queues = snapshot(&jobs);
        let freed_by = |namespace| {
            queues.view().for_namespace(namespace).explain(&"asked".into()).unwrap().freed_by
        };
        assert_eq!(freed_by("team").len(), 2);
        assert_eq!(freed_by("other"), ["2 jobs of other namespaces"]);
        let quota = explained(&jobs, "endless");
        assert!(quota.starts_with("FluxJob team/endless: Admitted\n"), "{quota}");
        assert!(quota.contains("team/main granted 2 nodes at 2026-01-01 00:01:00 UTC"), "{quota}");
    }

    #[test]
    fn an_admitted_job_shows_the_state_of_its_cluster() {
        let condition = |kind: &str, reason: &str, message: &str| -> Condition {
            serde_json::from_value(json!({
                "type": kind, "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }))
            .unwrap()
        };
        let reported = |state, conditions: &[Condition]| {
            let mut reported = JobExplanation { state, ..JobExplanation::default() };
            add_cluster(&mut reported, conditions);
            Explanation(&reported).to_string()
        };
        let ready = condition("Ready", "ImagePull", "the image cannot be pulled");
        let text = reported(AdmissionState::Admitted, std::slice::from_ref(&ready));
        assert!(text.contains("cluster   ImagePull: the image cannot be pulled"), "{text}");
        assert!(
            !reported(AdmissionState::Waiting, std::slice::from_ref(&ready)).contains("cluster")
        );
        let joined = condition("Joined", "NoFreeRanks", "2 more are missing");
        let text = reported(AdmissionState::Admitted, &[joined, ready]);
        assert!(text.contains("cluster   NoFreeRanks: 2 more are missing"), "{text}");
    }

    #[test]
    fn a_job_that_exceeds_the_quota_names_no_jobs_to_wait_for() {
        let jobs = [setup(2), admitted("a", 2, json!({})), job("large", json!({ "size": 3 }))];
        let text = explained(&jobs, "large");
        assert!(text.contains("ExceedsMaxQuota: it requests 3 nodes"), "{text}");
        assert!(!text.contains("freed by"), "{text}");
    }

    #[test]
    fn a_job_that_cannot_be_queued_shows_what_is_wrong() {
        let autoscale = json!({ "maxSize": 4 });
        let template = json!({ "spec": { "autoscale": autoscale, "containers": [{}] } });
        let text = explained(&[setup(2), job("a", json!({ "template": template }))], "a");
        assert!(text.starts_with("FluxJob team/a: Refused\n"), "{text}");
        assert!(text.contains("autoscale"), "{text}");
    }

    #[test]
    fn a_job_that_fits_would_be_admitted() {
        let decided = snapshot(&[setup(2), job("a", json!({ "size": 2 }))]);
        assert_eq!(decided.view().explain(&"a".into()).unwrap().state, AdmissionState::Admissible);
    }

    #[test]
    fn without_permission_to_list_the_status_is_shown() {
        let mut waiting = job("a", json!({}));
        waiting["status"] = json!({
            "phase": "Waiting",
            "queue": "operator-system/all",
            "conditions": [{
                "type": "Admitted", "status": "False", "reason": "WaitingForQuota",
                "message": "missing 1 node", "lastTransitionTime": "2026-01-01T00:00:05Z",
            }],
        });
        let mut reported = of_job(&objects(&[waiting]).jobs[0]);
        reported.notes.push("you may not".into());
        let expected = "\
FluxJob team/a: Waiting
  queue     operator-system/all
  reason    WaitingForQuota: missing 1 node
  note: you may not
";
        assert_eq!(Explanation(&reported).to_string(), expected);
        let mut finished = job("a", json!({}));
        let status =
            json!({ "phase": "Failed", "finishTime": "2026-01-01T00:00:05Z", "exitCode": 3 });
        finished["status"] = status;
        let reported = of_job(&objects(&[finished]).jobs[0]);
        assert_eq!(reported.state, AdmissionState::Ended);
        let text = Explanation(&reported).to_string();
        assert!(text.contains("Failed: its command finished with exit code 3"), "{text}");
    }
}
