use flux_operator_api::FluxJob;
use serde_json::{Value, json};

use super::*;
use crate::decision::Outcome;
use crate::queueing::{setup, workload};
use crate::step::Step;

const NOW: Millis = 1_800_000_000_000;

/// A ledger with a queue of one node.
fn ledger() -> Ledger {
    let mut ledger = Ledger::new("home");
    assert!(ledger.put_setup(&one_node()));
    ledger
}

/// A queue of one node.
fn one_node() -> FluxSetup {
    let setup = json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxSetup",
        "metadata": { "name": "default", "namespace": "n", "uid": "s", "generation": 1 },
        "spec": { "quota": { "nodes": "1" } },
    });
    serde_json::from_value(setup).unwrap()
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
fn with_quota() -> Value {
    let admission = json!({ "queue": "n/default", "size": 1, "resources": { "nodes": "1" },
        "time": "2026-01-01T00:00:01Z" });
    json!({ "admission": admission })
}

fn put(ledger: &mut Ledger, name: &str, version: u64, status: Value) {
    ledger.put_job(&job(name, version, status), None, NOW);
}

/// The jobs that are admitted now, each with the resource version that was decided on.
fn admitted(ledger: &mut Ledger) -> Vec<(String, u64)> {
    let name = |admitted: AdmissionWrite| (admitted.admit.name.to_string(), admitted.version);
    ledger.cycle(NOW).admit.into_iter().map(name).collect()
}

#[test]
fn q8_a_refused_admission_is_reverted_when_the_watch_shows_why() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 1, json!({}));
    assert_eq!(admitted(&mut ledger), [("a".to_owned(), 1)]);
    ledger.admission_refused(&"a".into());
    assert_eq!(admitted(&mut ledger), [], "it was tried again with the same version");
    put(&mut ledger, "a", 2, json!({}));
    assert_eq!(admitted(&mut ledger), [("a".to_owned(), 2)]);
    // The watch may be faster than the answer.
    put(&mut ledger, "a", 3, json!({}));
    assert_eq!(admitted(&mut ledger), []);
    ledger.admission_refused(&"a".into());
    assert_eq!(admitted(&mut ledger), [("a".to_owned(), 3)]);
}

#[test]
fn q8_a_refusal_after_a_successful_write_reverts_nothing() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 1, json!({}));
    admitted(&mut ledger);
    // The first attempt succeeded and its response was lost; the second is refused.
    ledger.admission_refused(&"a".into());
    put(&mut ledger, "a", 2, with_quota());
    put(&mut ledger, "b", 3, json!({}));
    assert_eq!(admitted(&mut ledger), []);
}

#[test]
fn q16_an_eviction_that_the_api_server_refused_is_decided_again() {
    let spec = json!({ "quota": { "nodes": "1" }, "stopPolicy": "HoldAndDrain" });
    let (mut ledger, _) = with_setups(&[("q", &[], spec)]);
    put(&mut ledger, "a", 1, admitted_by("q"));
    let evicted = |ledger: &mut Ledger| -> Vec<u64> {
        ledger.cycle(NOW).evict.iter().map(|evicted| evicted.version).collect()
    };
    assert_eq!(evicted(&mut ledger), [1]);
    assert_eq!(evicted(&mut ledger), [0_u64; 0]);
    assert!(!ledger.record_write_failed(&"a".into(), 1));
    assert_eq!(evicted(&mut ledger), [0_u64; 0], "it was tried again with the same version");
    put(&mut ledger, "a", 2, admitted_by("q"));
    assert_eq!(evicted(&mut ledger), [2]);
    // The watch may be faster than the answer.
    put(&mut ledger, "a", 3, admitted_by("q"));
    assert!(ledger.record_write_failed(&"a".into(), 2));
    assert_eq!(evicted(&mut ledger), [3]);
}

#[test]
fn q13_quota_is_granted_again_as_soon_as_a_job_has_finished() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 1, with_quota());
    put(&mut ledger, "b", 2, json!({}));
    assert_eq!(admitted(&mut ledger), []);
    let mut finished = with_quota();
    finished["finishTime"] = json!("2026-01-01T00:00:09Z");
    put(&mut ledger, "a", 3, finished);
    let admit = ledger.cycle(NOW).admit;
    assert_eq!(&*admit[0].admit.name, "b");
    assert_eq!(admit[0].freed_at, Some(NOW), "the time at which quota became free is not known");
}

#[test]
fn a_finished_job_is_counted_once_and_only_if_it_was_known_before() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 1, with_quota());
    let mut status = with_quota();
    status["finishTime"] = json!("2026-01-01T00:00:09Z");
    let finished = |name: &str| job(name, 2, status.clone());
    let queue = SetupName::new("n", "default");
    assert_eq!(ledger.put_job(&finished("a"), None, NOW), LedgerChange::Finished(Some(queue)));
    assert_eq!(ledger.put_job(&finished("a"), None, NOW), LedgerChange::None);
    assert_eq!(ledger.put_job(&finished("before"), None, NOW), LedgerChange::None);
}

#[test]
fn q29_an_older_object_does_not_undo_a_record() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 5, with_quota());
    put(&mut ledger, "a", 4, json!({}));
    put(&mut ledger, "b", 6, json!({}));
    assert_eq!(admitted(&mut ledger), []);
}

#[test]
fn objects_deleted_unobserved_are_removed_when_all_are_listed_again() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 1, with_quota());
    put(&mut ledger, "b", 2, json!({}));
    ledger.retain(Kind::FluxJob, &["b".into()].into(), NOW);
    assert_eq!(admitted(&mut ledger), [("b".to_owned(), 2)]);
    ledger.retain_setups(&HashSet::new());
    put(&mut ledger, "c", 3, json!({}));
    admitted(&mut ledger);
    let why = ledger.job(&"c".into(), None, NOW).unwrap().waiting.unwrap();
    assert_eq!(why.reason, flux_operator_queue::WaitReason::NoQueue);
}

#[test]
fn a_refused_job_is_reported_and_uses_no_quota() {
    let mut ledger = ledger();
    let mut bad = job("bad", 1, json!({}));
    bad.spec.priority_class_name = "none".into();
    ledger.put_job(&bad, None, NOW);
    assert_eq!(admitted(&mut ledger), []);
    let stage = |ledger: &Ledger| ledger.job(&"bad".into(), None, NOW).unwrap().eligibility;
    assert!(matches!(stage(&ledger), Eligibility::Refused(_)));
    ledger.put_priority_class("none", Some(7));
    ledger.put_job(&bad, None, NOW);
    assert_eq!(stage(&ledger), Eligibility::Queued);
    assert_eq!(admitted(&mut ledger).len(), 1);
}

/// A ledger with these setups, each with those it replaces and the rest of its spec.
fn with_setups(setups: &[(&str, &[&str], Value)]) -> (Ledger, Vec<FluxSetup>) {
    let mut ledger = Ledger::new("home");
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

/// The first step of a setup's decision.
fn step(ledger: &Ledger, setup: &FluxSetup) -> Option<Step> {
    let facts = ledger.setup(&setup_name(setup)).unwrap();
    let now = k8s_openapi::jiff::Timestamp::from_millisecond(NOW).unwrap();
    let SetupQueueState { rules: read, usage, running } = &facts;
    let queue = Some(setup::QueuedSetup { rules: read, usage, running: *running });
    setup::decide(setup::ObservedSetup { setup, queue, now }).steps.into_iter().next()
}

/// The setups that are deleted when all are idle.
fn deleted(setups: &[(&str, &[&str], Value)]) -> Vec<String> {
    let (ledger, setups) = with_setups(setups);
    let is_deleted = |it: &&FluxSetup| step(&ledger, it) == Some(Step::DeleteSelf);
    setups.iter().filter(is_deleted).map(|it| it.name_any()).collect()
}

/// The status that a reconciliation writes.
fn reconciled(ledger: &Ledger, job: &FluxJob) -> Value {
    let recorded = job.status.as_ref().and_then(|it| it.admission.as_ref()?.queue.parse().ok());
    let facts = ledger.job(&uid_of(job), recorded.as_ref(), NOW).unwrap();
    let observed = crate::queueing::job::ObservedJob {
        job,
        minicluster: None,
        has_unobserved_cluster: false,
        setup: facts.setup.as_ref().map(|setup| &setup.spec),
        recorded_setup: facts.record.as_ref(),
        refusal: facts.eligibility.refusal(),
        waiting: facts.waiting.as_ref(),
        evicted: facts.evicted,
        runs_jobs: true,
        jitter: 0.0,
        now: k8s_openapi::jiff::Timestamp::from_millisecond(NOW).unwrap(),
    };
    let decision = crate::queueing::job::decide(observed);
    let conclusion = decision.conclude(&Outcome::all(&decision.steps));
    serde_json::to_value(conclusion.status).unwrap()
}

/// The status of a job that has one node of a setup.
fn admitted_by(setup: &str) -> Value {
    let mut status = with_quota();
    status["admission"]["queue"] = json!(format!("n/{setup}"));
    status
}

#[test]
fn q19_quota_in_use_is_counted_when_replaces_is_removed() {
    let one = || json!({ "quota": { "nodes": "1" } });
    let (mut ledger, setups) = with_setups(&[("old", &[], one()), ("new", &["old"], one())]);
    put(&mut ledger, "a", 1, admitted_by("old"));
    let rename = |ledger: &mut Ledger| ledger.cycle(NOW).rewrite;
    let to_rename = rename(&mut ledger);
    assert_eq!((&*to_rename[0].name, to_rename[0].version), ("a", 1));
    assert_eq!(to_rename[0].queue, SetupName::new("n", "new"));
    assert_eq!(step(&ledger, &setups[0]), None, "a record names it");
    assert_eq!(rename(&mut ledger), [], "it was decided");
    // The first write fails, because the job has changed; the next one succeeds.
    put(&mut ledger, "a", 2, admitted_by("old"));
    assert_eq!(rename(&mut ledger).len(), 1);
    let status = reconciled(&ledger, &job("a", 2, admitted_by("old")));
    assert_eq!(status["admission"]["queue"], "n/new");
    put(&mut ledger, "a", 3, status);
    assert_eq!(rename(&mut ledger), []);
    assert_eq!(step(&ledger, &setups[0]), Some(Step::DeleteSelf));
    ledger.remove_setup(&SetupName::new("n", "old"));
    let mut new = setups[1].clone();
    (new.spec.replaces, new.metadata.generation) = (Vec::new(), Some(2));
    ledger.put_setup(&new);
    put(&mut ledger, "b", 4, json!({}));
    assert_eq!(admitted(&mut ledger), [], "the only node is in use");
    assert_eq!(ledger.setup(&SetupName::new("n", "new")).unwrap().usage.admitted, 1);
}

#[test]
fn q19_a_chain_of_setups_is_deleted_from_its_oldest_and_loses_no_job() {
    let one = || json!({ "quota": { "nodes": "1" } });
    let chain = [("a", &[][..], one()), ("b", &["a"], one()), ("c", &["b"], one())];
    let (mut ledger, setups) = with_setups(&chain);
    put(&mut ledger, "runs", 1, admitted_by("a"));
    let mut waits = job("waits", 2, json!({}));
    waits.spec.queue = "a".into();
    ledger.put_job(&waits, None, NOW);
    let steps = |ledger: &Ledger| [0, 1].map(|number| step(ledger, &setups[number]));
    assert_eq!(steps(&ledger), [None, None]);
    put(&mut ledger, "runs", 3, admitted_by("c"));
    assert_eq!(steps(&ledger), [Some(Step::DeleteSelf), None]);
    ledger.remove_setup(&SetupName::new("n", "a"));
    let decided = ledger.cycle(NOW);
    assert!(decided.changed.contains(&SetupName::new("n", "b")));
    assert_eq!(step(&ledger, &setups[1]), None, "a waiting job reaches the last setup through it");
    ledger.remove(&"waits".into(), NOW);
    assert!(ledger.cycle(NOW).changed.contains(&SetupName::new("n", "b")));
    assert_eq!(step(&ledger, &setups[1]), Some(Step::DeleteSelf));
}

#[test]
fn a_finished_job_is_kept_for_as_long_as_the_successor_of_its_setup_says() {
    let kept = json!({ "retentionSeconds": 60 });
    let (mut ledger, _) = with_setups(&[("old", &[], json!({})), ("new", &["old"], kept)]);
    ledger.remove_setup(&SetupName::new("n", "old"));
    ledger.cycle(NOW);
    let mut finished = admitted_by("old");
    finished["finishTime"] = json!("2026-01-01T00:00:09Z");
    put(&mut ledger, "a", 1, finished);
    let facts = ledger.job(&"a".into(), Some(&SetupName::new("n", "old")), NOW).unwrap();
    assert_eq!(facts.setup.unwrap().name_any(), "new");
}

#[test]
fn q19_setups_that_replace_each_other_or_themselves_stay() {
    let spec = || json!({ "quota": { "nodes": "1" } });
    assert_eq!(deleted(&[("a", &["a"], spec())]), [""; 0]);
    assert_eq!(deleted(&[("a", &["b"], spec()), ("b", &["a"], spec())]), [""; 0]);
}

#[test]
fn q19_a_setup_with_a_conflict_or_a_problem_deletes_no_other() {
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

/// Catches panics, as the operator does. Reading an object called `panics` panics; reading its
/// record, which comes next, does not.
#[derive(Default)]
struct Panicking(std::cell::Cell<bool>);

impl Guard for Panicking {
    fn read<T>(
        &self,
        object: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
        read: impl FnOnce() -> T,
    ) -> Result<T, String> {
        let is_sound = object.name.as_deref() != Some("panics") || self.0.get();
        self.0.set(!is_sound);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert!(is_sound, "it panics");
            read()
        }));
        caught.map_err(|_| "it panics".to_owned())
    }
}

/// A ledger with a queue of one node; objects called `panics` panic when they are read.
fn panicking() -> Ledger<Panicking> {
    let mut ledger = Ledger::guarded("home", Panicking::default());
    ledger.put_setup(&one_node());
    ledger
}

#[test]
fn a_job_that_panics_when_it_is_read_is_reported_once_and_uses_no_quota() {
    let mut ledger = panicking();
    let change = ledger.put_job(&job("panics", 1, json!({})), None, NOW);
    assert_eq!(change, LedgerChange::Panicked(workload::panic_refusal("it panics").message),);
    assert_eq!(ledger.put_job(&job("panics", 2, json!({})), None, NOW), LedgerChange::None);
    assert!(matches!(ledger.eligibility(&"panics".into()), Some(Eligibility::Panicked(_))));
    ledger.put_job(&job("a", 3, json!({})), None, NOW);
    assert_eq!(ledger.cycle(NOW).admit.len(), 1);
}

#[test]
fn quota_of_a_job_that_panics_when_it_is_read_is_counted_until_it_has_finished() {
    let mut ledger = panicking();
    ledger.put_job(&job("panics", 1, with_quota()), None, NOW);
    ledger.put_job(&job("a", 2, json!({})), None, NOW);
    assert!(ledger.cycle(NOW).admit.is_empty(), "the only node is in use");
    let mut finished = with_quota();
    finished["finishTime"] = json!("2026-01-01T00:00:09Z");
    ledger.put_job(&job("panics", 3, finished), None, NOW);
    assert_eq!(ledger.cycle(NOW).admit.len(), 1);
}

#[test]
fn a_job_that_becomes_invalid_while_it_is_admitted_counts_until_the_write_is_refused() {
    let mut ledger = ledger();
    put(&mut ledger, "a", 1, json!({}));
    assert_eq!(admitted(&mut ledger).len(), 1);
    let mut mistaken = job("a", 2, json!({}));
    mistaken.spec.priority_class_name = "none".into();
    ledger.put_job(&mistaken, None, NOW);
    put(&mut ledger, "b", 3, json!({}));
    assert_eq!(admitted(&mut ledger), [], "the write may still arrive");
    ledger.admission_refused(&"a".into());
    assert_eq!(admitted(&mut ledger), [("b".to_owned(), 3)]);
}
