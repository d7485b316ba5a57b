use flux_operator_api::Reason;
use flux_operator_queue::{InactiveReason, SetupMistake, SetupName};
use serde_json::{Value, json};

use super::*;
use crate::metrics::Metrics;

const NOW: Millis = 1_800_000_000_000;

fn object<K: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: Value) -> K {
    serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": kind,
        "metadata": { "name": name, "namespace": "n", "uid": name, "resourceVersion": "1",
            "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": spec,
    }))
    .unwrap()
}

fn job(name: &str) -> FluxJob {
    object("FluxJob", name, json!({ "command": "hostname" }))
}

/// A queue with this name and a quota of one node.
fn setup(name: &str) -> flux_operator_api::FluxSetup {
    object("FluxSetup", name, json!({ "quota": { "nodes": "1" } }))
}

fn admitted(ledger: &mut Ledger) -> Vec<String> {
    let admit = ledger.cycle(NOW).admit;
    admit.into_iter().map(|admitted| admitted.admit.name.to_string()).collect()
}

#[test]
fn a_job_that_panics_when_it_is_read_costs_that_job_alone() {
    let ledger = std::sync::Mutex::new(Ledger::new("home", Metrics::new().queue().clone()));
    let put = |name: &str| ledger.lock().unwrap().put_job(&job(name), None);
    ledger.lock().unwrap().put_setup(&setup("default"));
    put(PANICS);
    put("sound");
    let mut ledger = ledger.lock().expect("the lock is poisoned");
    assert_eq!(admitted(&mut ledger), ["sound"]);
    let facts = ledger.job(&PANICS.into(), None, NOW).unwrap();
    let mistake = facts.standing.mistake().unwrap();
    assert_eq!(mistake.reason, Reason::OperatorError);
    assert!(mistake.message.contains("on purpose"), "{}", mistake.message);
}

#[test]
fn a_setup_that_panics_when_it_is_read_costs_its_own_queue_alone() {
    let mut ledger = Ledger::new("home", Metrics::new().queue().clone());
    ledger.put_setup(&setup(PANICS));
    ledger.put_setup(&setup("default"));
    ledger.put_job(&job("sound"), None);
    assert_eq!(admitted(&mut ledger), ["sound"]);
    let facts = ledger.setup(&SetupName::new("n", PANICS)).unwrap();
    let unreadable = InactiveReason::Mistaken(SetupMistake::Unreadable);
    assert_eq!(facts.usage.inactive.unwrap().reason, unreadable);
}
