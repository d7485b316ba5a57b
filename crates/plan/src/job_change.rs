//! Changes of a Job that exists: its size, suspension, deadline and labels.
//! Everything else of it is fixed, see [`fingerprint`](crate::fingerprint).

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::kubernetes::belongs_to_kueue;
use crate::ready_timeout::{RELEASED_AT_ANNOTATION, ReadyTimeout};
use crate::resize::{DRAINING_ANNOTATION, Resize};

/// A merge patch that changes `current` to `wanted`, or `None` if they do not differ.
pub(crate) fn job_change(
    current: &Job,
    wanted: &Job,
    timeout: ReadyTimeout,
    resize: &Resize,
    now: Timestamp,
) -> Option<Value> {
    let (have, want) = (current.spec.as_ref()?, wanted.spec.as_ref()?);
    let mut spec = Map::new();
    if matches!(resize, Resize::Apply | Resize::Force(_)) {
        // An elastic Indexed Job needs both to change together.
        spec.insert("parallelism".into(), want.parallelism.into());
        spec.insert("completions".into(), want.completions.into());
    }
    if have.active_deadline_seconds != want.active_deadline_seconds {
        spec.insert("activeDeadlineSeconds".into(), want.active_deadline_seconds.into());
    }
    let mut annotations = Map::new();
    match resize {
        Resize::Begin(_) => annotations.insert(DRAINING_ANNOTATION.into(), now.to_string().into()),
        Resize::Keep | Resize::Wait(_) => None,
        Resize::Cancel | Resize::Apply | Resize::Force(_) => {
            let noted = current.annotations().contains_key(DRAINING_ANNOTATION);
            noted.then(|| annotations.insert(DRAINING_ANNOTATION.into(), Value::Null)).flatten()
        }
    };
    match timeout {
        ReadyTimeout::Release => {
            annotations.insert(RELEASED_AT_ANNOTATION.into(), now.to_string().into())
        }
        ReadyTimeout::Retry => annotations.insert(RELEASED_AT_ANNOTATION.into(), Value::Null),
        ReadyTimeout::NotApplicable | ReadyTimeout::Until(_) | ReadyTimeout::BackingOff(_) => None,
    };
    let releases_nodes = matches!(timeout, ReadyTimeout::Release | ReadyTimeout::BackingOff(_));
    let suspend = is_suspended(want) || releases_nodes;
    if is_suspended(have) != suspend && !belongs_to_kueue(wanted) {
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
    if let (ReadyTimeout::Release, Some(version)) = (timeout, current.resource_version()) {
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

fn is_suspended(spec: &JobSpec) -> bool {
    spec.suspend.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::Shrinking;

    fn job(value: Value) -> Job {
        serde_json::from_value(value).unwrap()
    }

    fn change(current: Value, wanted: Value, timeout: ReadyTimeout) -> Option<Value> {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        job_change(&job(current), &job(wanted), timeout, &Resize::Keep, now)
    }

    fn spec(value: Value) -> Value {
        let mut spec = json!({ "template": {} });
        flux_operator_testkit::merge(&mut spec, &value);
        json!({ "spec": spec })
    }

    #[test]
    fn a_job_that_is_as_wanted_is_left_alone() {
        let same = spec(json!({ "parallelism": 2, "completions": 2 }));
        assert_eq!(change(same.clone(), same, ReadyTimeout::NotApplicable), None);
    }

    #[test]
    fn parallelism_and_completions_change_together() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let sized = |size| spec(json!({ "parallelism": size, "completions": size }));
        let change = |mut current: Value, size: i32, note: Option<&str>, resize: &Resize| {
            if let Some(note) = note {
                current["metadata"] = json!({ "annotations": { DRAINING_ANNOTATION: note } });
            }
            job_change(&job(current), &job(sized(size)), ReadyTimeout::NotApplicable, resize, now)
        };
        let patch = json!({ "spec": { "parallelism": 4, "completions": 4 } });
        assert_eq!(change(sized(2), 4, None, &Resize::Apply), Some(patch));
        let (ranks, until) = ("2-3".parse().unwrap(), now);
        let waits = Shrinking { ranks, busy: None, until, forced: false };
        let noted =
            json!({ "metadata": { "annotations": { DRAINING_ANNOTATION: now.to_string() } } });
        assert_eq!(change(sized(4), 2, None, &Resize::Begin(waits.clone())), Some(noted));
        let since = Some("2026-01-01T00:00:00Z");
        assert_eq!(change(sized(4), 2, since, &Resize::Wait(waits)), None);
        let forgotten = json!({ "metadata": { "annotations": { DRAINING_ANNOTATION: null } } });
        assert_eq!(change(sized(4), 4, since, &Resize::Cancel), Some(forgotten.clone()));
        let mut shrunk = json!({ "spec": { "parallelism": 2, "completions": 2 } });
        shrunk["metadata"] = forgotten["metadata"].clone();
        assert_eq!(change(sized(4), 2, since, &Resize::Apply), Some(shrunk));
    }

    #[test]
    fn suspension_of_a_kueue_job_is_left_to_kueue() {
        let before = spec(json!({ "suspend": true }));
        let after = spec(json!({}));
        let patch = json!({ "spec": { "suspend": false } });
        assert_eq!(change(before.clone(), after.clone(), ReadyTimeout::NotApplicable), Some(patch));
        let labelled = |mut job: Value| {
            job["metadata"] = json!({ "labels": { "kueue.x-k8s.io/queue-name": "batch" } });
            job
        };
        assert_eq!(change(labelled(before), labelled(after), ReadyTimeout::NotApplicable), None);
    }

    #[test]
    fn releasing_nodes_suspends_with_a_note_and_a_retry_undoes_both() {
        let running = spec(json!({}));
        let patch = json!({
            "metadata": { "annotations": { RELEASED_AT_ANNOTATION: "2026-01-01T00:00:00Z" } },
            "spec": { "suspend": true },
        });
        assert_eq!(change(running.clone(), running.clone(), ReadyTimeout::Release), Some(patch));
        let resting = spec(json!({ "suspend": true }));
        let until = ReadyTimeout::BackingOff("2026-01-01T00:01:00Z".parse().unwrap());
        assert_eq!(change(resting.clone(), running.clone(), until), None);
        let patch = json!({
            "metadata": { "annotations": { RELEASED_AT_ANNOTATION: null } },
            "spec": { "suspend": false },
        });
        assert_eq!(change(resting, running, ReadyTimeout::Retry), Some(patch));
    }

    #[test]
    fn labels_of_others_stay() {
        let before = json!({ "metadata": { "labels": { "theirs": "1", "a": "1" } }, "spec": { "template": {} } });
        let after = json!({ "metadata": { "labels": { "a": "2" } }, "spec": { "template": {} } });
        let patch = json!({ "metadata": { "labels": { "a": "2" } } });
        assert_eq!(change(before, after, ReadyTimeout::NotApplicable), Some(patch));
    }

    #[test]
    fn nodes_are_released_only_if_the_job_has_not_changed() {
        let mut current = spec(json!({}));
        current["metadata"] = json!({ "resourceVersion": "7" });
        let patch = change(current.clone(), spec(json!({})), ReadyTimeout::Release).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["spec"]["suspend"], true);
        current["spec"]["suspend"] = true.into();
        let patch = change(current, spec(json!({})), ReadyTimeout::Retry).unwrap();
        assert!(patch["metadata"].get("resourceVersion").is_none(), "{patch}");
    }
}
