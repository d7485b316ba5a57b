use flux_operator_api::Reason;
use flux_operator_queue::{InactiveReason, SetupName, SetupProblem};
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

fn admitted(ledger: &mut OperatorLedger) -> Vec<String> {
    let admit = ledger.cycle(NOW).admit;
    admit.into_iter().map(|admitted| admitted.admit.name.to_string()).collect()
}

#[test]
fn a_panic_while_reading_a_job_affects_only_that_job() {
    let ledger = std::sync::Mutex::new(OperatorLedger::new("home", Metrics::new().queue().clone()));
    let put = |name: &str| ledger.lock().unwrap().put_job(&job(name), None);
    ledger.lock().unwrap().put_setup(&setup("default"));
    put(PANICKING_NAME);
    put("sound");
    let mut ledger = ledger.lock().expect("the panic did not poison the lock");
    assert_eq!(admitted(&mut ledger), ["sound"]);
    let facts = ledger.job(&PANICKING_NAME.into(), None, NOW).unwrap();
    let refusal = facts.eligibility.refusal().unwrap();
    assert_eq!(refusal.reason, Reason::OperatorError);
    assert!(refusal.message.contains("on purpose"), "{}", refusal.message);
}

#[test]
fn a_panic_while_reading_a_setup_affects_only_its_queue() {
    let mut ledger = OperatorLedger::new("home", Metrics::new().queue().clone());
    ledger.put_setup(&setup(PANICKING_NAME));
    ledger.put_setup(&setup("default"));
    ledger.put_job(&job("sound"), None);
    assert_eq!(admitted(&mut ledger), ["sound"]);
    let facts = ledger.setup(&SetupName::new("n", PANICKING_NAME)).unwrap();
    let unreadable = InactiveReason::Unusable(SetupProblem::Panicked);
    assert_eq!(facts.usage.inactive.unwrap().reason, unreadable);
}
