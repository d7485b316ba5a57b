//! Changes of a Job that exists: its size, suspension, deadline and labels.
//! Everything else of it is fixed, see [`fingerprint`](crate::fingerprint).

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::kubernetes::belongs_to_kueue;
use crate::ready_timeout::{GIVEN_BACK, Patience};
use crate::resize::{DRAINING, Resize};

/// A merge patch that changes `current` to `wanted`, or `None` if they do not differ.
pub(crate) fn job_change(
    current: &Job,
    wanted: &Job,
    patience: Patience,
    resize: &Resize,
    now: Timestamp,
) -> Option<Value> {
    let (have, want) = (current.spec.as_ref()?, wanted.spec.as_ref()?);
    let mut spec = Map::new();
    if matches!(resize, Resize::Now | Resize::Force(_)) {
        // An elastic Indexed Job needs both to change together.
        spec.insert("parallelism".into(), want.parallelism.into());
        spec.insert("completions".into(), want.completions.into());
    }
    if have.active_deadline_seconds != want.active_deadline_seconds {
        spec.insert("activeDeadlineSeconds".into(), want.active_deadline_seconds.into());
    }
    let mut annotations = Map::new();
    match resize {
        Resize::Begin(_) => annotations.insert(DRAINING.into(), now.to_string().into()),
        Resize::Keep | Resize::Wait(_) => None,
        Resize::Stay | Resize::Now | Resize::Force(_) => {
            let noted = current.annotations().contains_key(DRAINING);
            noted.then(|| annotations.insert(DRAINING.into(), Value::Null)).flatten()
        }
    };
    match patience {
        Patience::GiveBack => annotations.insert(GIVEN_BACK.into(), now.to_string().into()),
        Patience::TryAgain => annotations.insert(GIVEN_BACK.into(), Value::Null),
        Patience::Fine | Patience::Until(_) | Patience::Rests(_) => None,
    };
    let rests = matches!(patience, Patience::GiveBack | Patience::Rests(_));
    let suspend = suspended(want) || rests;
    if suspended(have) != suspend && !belongs_to_kueue(wanted) {
        spec.insert("suspend".into(), suspend.into());
    }
    let labels =
        wanted.labels().iter().filter(|(name, value)| current.labels().get(*name) != Some(value));
    let labels: Map<String, Value> =
        labels.map(|(name, value)| (name.clone(), value.clone().into())).collect();
    let mut metadata = Map::new();
    for (name, entries) in [("annotations", annotations), ("labels", labels)] {
        if !entries.is_empty() {
            metadata.insert(name.into(), entries.into());
        }
    }
    if let (Patience::GiveBack, Some(version)) = (patience, current.resource_version()) {
        // If the lead has become ready since, it has changed the Job's status: its command
        // must not be stopped because of an older observation.
        metadata.insert("resourceVersion".into(), version.into());
    }
    let parts = [("metadata", metadata), ("spec", spec)];
    let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
    let patch: Map<String, Value> =
        parts.map(|(name, part)| (name.to_owned(), part.into())).collect();
    (!patch.is_empty()).then(|| json!(patch))
}

fn suspended(spec: &JobSpec) -> bool {
    spec.suspend.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::Shrinking;

    fn job(value: Value) -> Job {
        serde_json::from_value(value).unwrap()
    }

    fn change(current: Value, wanted: Value, patience: Patience) -> Option<Value> {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        job_change(&job(current), &job(wanted), patience, &Resize::Keep, now)
    }

    fn spec(value: Value) -> Value {
        let mut spec = json!({ "template": {} });
        flux_operator_testkit::merge(&mut spec, &value);
        json!({ "spec": spec })
    }

    #[test]
    fn a_job_that_is_as_wanted_is_left_alone() {
        let same = spec(json!({ "parallelism": 2, "completions": 2 }));
        assert_eq!(change(same.clone(), same, Patience::Fine), None);
    }

    #[test]
    fn parallelism_and_completions_go_together_when_it_is_time() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let sized = |size| spec(json!({ "parallelism": size, "completions": size }));
        let change = |mut current: Value, size: i32, note: Option<&str>, resize: &Resize| {
            if let Some(note) = note {
                current["metadata"] = json!({ "annotations": { DRAINING: note } });
            }
            job_change(&job(current), &job(sized(size)), Patience::Fine, resize, now)
        };
        let patch = json!({ "spec": { "parallelism": 4, "completions": 4 } });
        assert_eq!(change(sized(2), 4, None, &Resize::Now), Some(patch));
        let (ranks, until) = ("2-3".parse().unwrap(), now);
        let waits = Shrinking { ranks, busy: None, until, forced: false };
        let noted = json!({ "metadata": { "annotations": { DRAINING: now.to_string() } } });
        assert_eq!(change(sized(4), 2, None, &Resize::Begin(waits.clone())), Some(noted));
        let since = Some("2026-01-01T00:00:00Z");
        assert_eq!(change(sized(4), 2, since, &Resize::Wait(waits)), None);
        let forgotten = json!({ "metadata": { "annotations": { DRAINING: null } } });
        assert_eq!(change(sized(4), 4, since, &Resize::Stay), Some(forgotten.clone()));
        let mut shrunk = json!({ "spec": { "parallelism": 2, "completions": 2 } });
        shrunk["metadata"] = forgotten["metadata"].clone();
        assert_eq!(change(sized(4), 2, since, &Resize::Now), Some(shrunk));
    }

    #[test]
    fn suspension_is_kueues_where_kueue_has_the_job() {
        let before = spec(json!({ "suspend": true }));
        let after = spec(json!({}));
        let patch = json!({ "spec": { "suspend": false } });
        assert_eq!(change(before.clone(), after.clone(), Patience::Fine), Some(patch));
        let labelled = |mut job: Value| {
            job["metadata"] = json!({ "labels": { "kueue.x-k8s.io/queue-name": "batch" } });
            job
        };
        assert_eq!(change(labelled(before), labelled(after), Patience::Fine), None);
    }

    #[test]
    fn giving_back_suspends_with_a_note_and_trying_again_undoes_both() {
        let running = spec(json!({}));
        let patch = json!({
            "metadata": { "annotations": { GIVEN_BACK: "2026-01-01T00:00:00Z" } },
            "spec": { "suspend": true },
        });
        assert_eq!(change(running.clone(), running.clone(), Patience::GiveBack), Some(patch));
        let resting = spec(json!({ "suspend": true }));
        let until = Patience::Rests("2026-01-01T00:01:00Z".parse().unwrap());
        assert_eq!(change(resting.clone(), running.clone(), until), None);
        let patch = json!({
            "metadata": { "annotations": { GIVEN_BACK: null } },
            "spec": { "suspend": false },
        });
        assert_eq!(change(resting, running, Patience::TryAgain), Some(patch));
    }

    #[test]
    fn labels_of_others_stay() {
        let before = json!({ "metadata": { "labels": { "theirs": "1", "a": "1" } }, "spec": { "template": {} } });
        let after = json!({ "metadata": { "labels": { "a": "2" } }, "spec": { "template": {} } });
        let patch = json!({ "metadata": { "labels": { "a": "2" } } });
        assert_eq!(change(before, after, Patience::Fine), Some(patch));
    }

    #[test]
    fn nodes_are_given_back_only_if_the_job_is_as_it_was_seen() {
        let mut current = spec(json!({}));
        current["metadata"] = json!({ "resourceVersion": "7" });
        let patch = change(current.clone(), spec(json!({})), Patience::GiveBack).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["spec"]["suspend"], true);
        current["spec"]["suspend"] = true.into();
        let patch = change(current, spec(json!({})), Patience::TryAgain).unwrap();
        assert!(patch["metadata"].get("resourceVersion").is_none(), "{patch}");
    }
}
