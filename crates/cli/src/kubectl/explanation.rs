//! Explains the state of a job as text.

use std::fmt;

use flux_operator_api::view::{Place, Why, WhyState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The state of a job, as text for users.
pub(super) struct Explanation<'a>(pub(super) &'a Why);

/// Whether the answer is certain even if not all objects could be listed: its queue was found, or
/// it was refused and needs none.
pub(super) fn is_certain(why: &Why) -> bool {
    !why.queue.is_empty() || why.state == WhyState::Refused
}

/// Adds the state of the cluster of an admitted job, from its last reported conditions.
pub(super) fn add_cluster(why: &mut Why, conditions: &[Condition]) {
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    if let Some(ready) = ready.filter(|_| why.state == WhyState::Admitted) {
        why.cluster = format!("{}: {}", ready.reason, ready.message);
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation(why) = self;
        let Why { kind, namespace, name, state, .. } = why;
        writeln!(f, "{kind} {namespace}/{name}: {state:?}")?;
        let position =
            why.position.map(|Place { place, pending }| format!("{place} ({pending} wait)"));
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
    use super::super::view::tests::{admitted, decided, job, objects, setup};
    use super::*;
    use flux_operator_plan::view::of_job;
    use serde_json::{Value, json};

    fn explained(manifests: &[Value], name: &str) -> String {
        Explanation(&decided(manifests).view().why(&name.into()).unwrap()).to_string()
    }

    #[test]
    fn q33_why_says_what_is_missing_and_who_would_free_it() {
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
        let room = explained(&jobs, "endless");
        assert!(room.starts_with("FluxJob team/endless: Admitted\n"), "{room}");
        assert!(room.contains("team/main granted 2 nodes at 2026-01-01 00:01:00 UTC"), "{room}");
    }

    #[test]
    fn of_one_that_has_room_is_told_how_far_its_cluster_is() {
        let ready: Condition = serde_json::from_value(json!({
            "type": "Ready", "status": "False", "reason": "ImagePull",
            "message": "the image cannot be pulled", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        let told = |state| {
            let mut told = Why { state, ..Why::default() };
            add_cluster(&mut told, std::slice::from_ref(&ready));
            Explanation(&told).to_string()
        };
        let text = told(WhyState::Admitted);
        assert!(text.contains("cluster   ImagePull: the image cannot be pulled"), "{text}");
        assert!(!told(WhyState::Waiting).contains("cluster"));
    }

    #[test]
    fn what_can_never_be_freed_names_nobody() {
        let jobs = [setup(2), admitted("a", 2, json!({})), job("large", json!({ "size": 3 }))];
        let text = explained(&jobs, "large");
        assert!(text.contains("ExceedsMaxQuota: it requests 3 nodes"), "{text}");
        assert!(!text.contains("freed by"), "{text}");
    }

    #[test]
    fn what_cannot_be_queued_says_what_is_wrong() {
        let template = json!({ "spec": { "flux": { "mungeSecret": "a" }, "containers": [{}] } });
        let text = explained(&[setup(2), job("a", json!({ "template": template }))], "a");
        assert!(text.starts_with("FluxJob team/a: Refused\n"), "{text}");
        assert!(text.contains("mungeSecret"), "{text}");
    }

    #[test]
    fn what_fits_would_be_admitted() {
        let decided = decided(&[setup(2), job("a", json!({ "size": 2 }))]);
        assert_eq!(decided.view().why(&"a".into()).unwrap().state, WhyState::Admissible);
    }

    #[test]
    fn where_nothing_may_be_listed_the_status_speaks() {
        let mut waiting = job("a", json!({}));
        waiting["status"] = json!({
            "phase": "Waiting",
            "queue": "operator-system/all",
            "conditions": [{
                "type": "Admitted", "status": "False", "reason": "WaitingForQuota",
                "message": "missing 1 node", "lastTransitionTime": "2026-01-01T00:00:05Z",
            }],
        });
        let mut told = of_job(&objects(&[waiting]).jobs[0]);
        told.notes.push("you may not".into());
        let expected = "\
FluxJob team/a: Waiting
  queue     operator-system/all
  reason    WaitingForQuota: missing 1 node
  note: you may not
";
        assert_eq!(Explanation(&told).to_string(), expected);
        let mut ended = job("a", json!({}));
        let status =
            json!({ "phase": "Failed", "finishTime": "2026-01-01T00:00:05Z", "exitCode": 3 });
        ended["status"] = status;
        let told = of_job(&objects(&[ended]).jobs[0]);
        assert_eq!(told.state, WhyState::Ended);
        let text = Explanation(&told).to_string();
        assert!(text.contains("Failed: its command finished with exit code 3"), "{text}");
    }
}
