use flux_operator_queue::Reason;
use serde_json::{Value, json};

use super::*;
use crate::metrics::Metrics;

const NOW: Millis = 1_800_000_000_000;

/// A ledger with a queue of one node.
fn ledger() -> Ledger {
    let mut ledger = Ledger::new("home", Metrics::new().queue().clone());
    let setup = json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxSetup",
        "metadata": { "name": "default", "namespace": "n", "uid": "s", "generation": 1 },
        "spec": { "quota": { "nodes": "1" } },
    });
    assert!(ledger.put_setup(&serde_json::from_value(setup).unwrap()));
    ledger
}

fn job(name: &str, version: u64, status: Value) -> FluxJob {
    serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxJob",
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "command": "hostname" },
        "status": status,
    }))
    .unwrap()
}

/// The status of a job that has the only node.
fn with_room() -> Value {
    let admission = json!({ "queue": "n/default", "size": 1, "resources": { "nodes": "1" },
        "time": "2026-01-01T00:00:01Z" });
    json!({ "admission": admission })
}

fn put(ledger: &mut Ledger, name: &str, version: u64, status: Value) {
    ledger.put_job(&job(name, version, status), None);
}

/// Who is admitted now, and as of which version.
fn admitted(ledger: &mut Ledger) -> Vec<(String, u64)> {
    let name = |admitted: Admitted| (admitted.admit.name.to_string(), admitted.version);
    ledger.cycle(NOW).admit.into_iter().map(name).collect()
}

#[test]
fn q8_an_admission_that_is_refused_is_taken_back_when_the_watch_shows_why() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 1, json!({}));
    assert_eq!(admitted(&mut ledger), [("a".to_owned(), 1)]);
    ledger.refused(&"a".into());
    assert_eq!(admitted(&mut ledger), [], "it was tried again with the same version");
    put(&mut ledger, "a", 2, json!({}));
    assert_eq!(admitted(&mut ledger), [("a".to_owned(), 2)]);
    // The watch may be faster than the answer.
    put(&mut ledger, "a", 3, json!({}));
    assert_eq!(admitted(&mut ledger), []);
    ledger.refused(&"a".into());
    assert_eq!(admitted(&mut ledger), [("a".to_owned(), 3)]);
}

#[test]
fn q8_a_refusal_of_what_was_written_all_the_same_takes_nothing_back() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 1, json!({}));
    admitted(&mut ledger);
    // The first try was taken and its answer lost; the second is refused.
    ledger.refused(&"a".into());
    put(&mut ledger, "a", 2, with_room());
    put(&mut ledger, "b", 3, json!({}));
    assert_eq!(admitted(&mut ledger), []);
}

#[test]
fn q13_room_is_given_on_as_soon_as_a_job_has_ended() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 1, with_room());
    put(&mut ledger, "b", 2, json!({}));
    assert_eq!(admitted(&mut ledger), []);
    let mut ended = with_room();
    ended["finishTime"] = json!("2026-01-01T00:00:09Z");
    put(&mut ledger, "a", 3, ended);
    let admit = ledger.cycle(NOW).admit;
    assert_eq!(&*admit[0].admit.name, "b");
    assert!(admit[0].freed.is_some(), "nobody knows since when there was room");
}

#[test]
fn q29_what_is_older_than_a_record_does_not_undo_it() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 5, with_room());
    put(&mut ledger, "a", 4, json!({}));
    put(&mut ledger, "b", 6, json!({}));
    assert_eq!(admitted(&mut ledger), []);
}

#[test]
fn what_went_unseen_is_forgotten_when_all_is_listed_again() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 1, with_room());
    put(&mut ledger, "b", 2, json!({}));
    ledger.retain(Kind::FluxJob, &["b".into()].into());
    assert_eq!(admitted(&mut ledger), [("b".to_owned(), 2)]);
    ledger.retain_setups(&HashSet::new());
    put(&mut ledger, "c", 3, json!({}));
    admitted(&mut ledger);
    let why = ledger.job(&"c".into(), None, NOW).unwrap().waiting.unwrap();
    assert_eq!(why.reason, Reason::NoQueue);
}

#[test]
fn a_mistake_is_told_and_takes_no_room() {
    let mut ledger = ledger();
    let mut bad = job("bad", 1, json!({}));
    bad.spec.priority_class_name = "none".into();
    ledger.put_job(&bad, None);
    assert_eq!(admitted(&mut ledger), []);
    let standing = |ledger: &Ledger| ledger.job(&"bad".into(), None, NOW).unwrap().standing;
    assert!(matches!(standing(&ledger), Standing::Mistaken(_)));
    ledger.put_class("none", Some(7));
    ledger.put_job(&bad, None);
    assert_eq!(standing(&ledger), Standing::Queued);
    assert_eq!(admitted(&mut ledger).len(), 1);
}

/// A ledger that has read these setups, each with those it replaces and the rest of its spec.
fn with_setups(setups: &[(&str, &[&str], Value)]) -> (Ledger, Vec<FluxSetup>) {
    let mut ledger = Ledger::new("home", Metrics::new().queue().clone());
    let setups = setups.iter().zip(1..).map(|((name, replaces, spec), second)| {
        let mut setup = json!({
            "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxSetup",
            "metadata": {
                "name": name, "namespace": "n", "uid": name, "generation": 1,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
                "finalizers": [setup::FINALIZER],
            },
            "spec": spec,
        });
        setup["spec"]["replaces"] = json!(replaces);
        serde_json::from_value(setup).unwrap()
    });
    let setups: Vec<FluxSetup> = setups.collect();
    for setup in &setups {
        assert!(ledger.put_setup(setup));
    }
    ledger.cycle(NOW);
    (ledger, setups)
}

/// Which of these setups are deleted, when all are idle.
fn deleted(setups: &[(&str, &[&str], Value)]) -> Vec<String> {
    let (ledger, setups) = with_setups(setups);
    let is_deleted = |it: &&FluxSetup| {
        let facts = ledger.setup(&setup_name(*it)).unwrap();
        let seen = setup::SetupSeen {
            setup: it,
            read: &facts.read,
            usage: &facts.usage,
            running: facts.running,
            now: k8s_openapi::jiff::Timestamp::from_millisecond(NOW).unwrap(),
        };
        setup::plan(seen).step == Some(setup::SetupStep::Delete)
    };
    setups.iter().filter(is_deleted).map(|it| it.name_any()).collect()
}

#[test]
fn q19_setups_that_replace_each_other_or_themselves_stay() {
    let spec = || json!({ "quota": { "nodes": "1" } });
    assert_eq!(deleted(&[("a", &["a"], spec())]), [""; 0]);
    assert_eq!(deleted(&[("a", &["b"], spec()), ("b", &["a"], spec())]), [""; 0]);
}

#[test]
fn q19_a_setup_with_a_conflict_or_a_mistake_deletes_nobody() {
    let spec = || json!({ "quota": { "nodes": "1" } });
    let conflict = [
        ("old", &[][..], spec()),
        ("victim", &[], spec()),
        ("first", &["old"], spec()),
        ("second", &["old", "victim"], spec()),
    ];
    assert_eq!(deleted(&conflict), ["old"]);
    let unknown = json!({ "quotaFromNodes": {} });
    assert_eq!(deleted(&[("old", &[], spec()), ("new", &["old"], unknown)]), [""; 0]);
}
