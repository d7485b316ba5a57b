//! Setups as the scheduler sees them, and their status.

use std::collections::BTreeMap;

use flux_operator_api::{FluxSetup, FluxSetupStatus, validate};
use flux_operator_plan::queueing::setup::{
    FINALIZER, ObservedSetup, QueuedSetup, SetupContext, decide, read,
};
use flux_operator_plan::reason::of_inactive;
use flux_operator_plan::{Outcome, Step};
use flux_operator_queue::{
    Inactive, InactiveReason, OverQuota, Resource, Resources, ServedNamespaces, Setup, SetupName,
    Stop, Strategy, Usage,
};
use flux_operator_testkit::bad::{self, InvalidManifest};
use serde_json::{Value, json};

use crate::objects::{after, nodes, setup};

/// Reads a setup, with this capacity of nodes.
fn read_with(setup: &FluxSetup, nodes: Option<&Resources>) -> Setup {
    let labels = |team: &str| BTreeMap::from([("team".to_owned(), team.to_owned())]);
    let namespaces = BTreeMap::from([("a".into(), labels("x")), ("b".into(), labels("y"))]);
    read(
        setup,
        SetupContext {
            operator_namespace: "flux-operator",
            namespaces: &namespaces,
            node_capacity: nodes,
        },
    )
}

fn read_alone(patch: Value) -> Setup {
    read_with(&setup(patch), None)
}

fn reason(setup: &Setup) -> Option<&'static str> {
    setup.problem.as_ref().map(|mistake| of_inactive(mistake.reason).as_str())
}

#[test]
fn q1_every_field_of_a_setup_reaches_the_queue() {
    let spec = json!({ "quota": { "nodes": null, "cpu": "8", "memory": "4Gi" }, "maxSize": 3,
        "miniCluster": { "size": 2 }, "queueingStrategy": "Backfill", "patienceSeconds": 9,
        "stopPolicy": "Hold", "overQuota": "Evict", "replaces": ["old"] });
    let expected = Setup {
        name: SetupName::new("hpc", "batch"),
        created: after(0).as_millisecond(),
        quota: Resources::of([(Resource::Cpu, 8000), (Resource::Memory, 4 << 30)]),
        max_size: Some(3),
        default_size: 2,
        serves: ServedNamespaces::None,
        strategy: Strategy::Backfill,
        patience: 9000,
        stop: Stop::Hold,
        over_quota: OverQuota::Evict,
        replaces: vec![SetupName::new("hpc", "old")],
        terminating: false,
        problem: None,
    };
    assert_eq!(read_alone(json!({ "spec": spec })), expected);
}

#[test]
fn q1_old_field_names_are_read() {
    let spec = json!({ "quota": null, "max-size": 20, "mini-cluster": { "size": 3 } });
    let read = read_alone(json!({ "spec": spec }));
    assert_eq!((read.max_size, read.default_size), (Some(20), 3));
    assert_eq!(read.quota, Resources::of([(Resource::Nodes, 20)]), "without quota it is the quota");
}

#[test]
fn q20_the_effective_quota_is_quota_or_nodes_or_the_lesser() {
    let nodes = Resources::of([(Resource::Nodes, 3), (Resource::Cpu, 9000)]);
    let quota = |spec: Value, nodes: Option<&Resources>| {
        let read = read_with(&setup(json!({ "spec": spec })), nodes);
        (reason(&read), read.quota.amount(&Resource::Nodes), read.quota.amount(&Resource::Cpu))
    };
    assert_eq!(quota(json!({}), Some(&nodes)), (None, 4, 0));
    let from_nodes = json!({ "quotaFromNodes": {} });
    assert_eq!(quota(from_nodes.clone(), Some(&nodes)), (None, 3, 9000));
    let less = json!({ "quotaFromNodes": {}, "quota": { "nodes": 2, "cpu": "10" } });
    assert_eq!(quota(less, Some(&nodes)), (None, 2, 9000));
    assert_eq!(quota(from_nodes, None), (Some("NodesUnknown"), 0, 0));
}

#[test]
fn q18_a_selector_is_none_all_or_some_namespaces() {
    let serves = |selector: Value| {
        let metadata = json!({ "namespace": "flux-operator" });
        let read =
            read_alone(json!({ "metadata": metadata, "spec": { "namespaceSelector": selector } }));
        (reason(&read), read.serves)
    };
    assert_eq!(serves(json!(null)), (None, ServedNamespaces::None));
    assert_eq!(serves(json!({})), (None, ServedNamespaces::All));
    let some = ServedNamespaces::Some(["a".into()].into());
    assert_eq!(serves(json!({ "matchLabels": { "team": "x" } })), (None, some.clone()));
    let not = json!([{ "key": "team", "operator": "NotIn", "values": ["y"] }]);
    assert_eq!(serves(json!({ "matchExpressions": not })), (None, some));
    let bad = json!([{ "key": "team", "operator": "Like", "values": ["y"] }]);
    assert_eq!(serves(json!({ "matchExpressions": bad })).0, Some("BadSelector"));
}

#[test]
fn q18_a_selector_has_an_effect_only_in_the_operators_namespace() {
    let read = read_alone(json!({ "spec": { "namespaceSelector": {} } }));
    assert_eq!((reason(&read), read.serves), (Some("SelectorNotHere"), ServedNamespaces::None));
}

#[test]
fn q2_a_setup_that_cannot_be_used_says_why() {
    for (spec, expected) in [
        (json!({ "cohort": "all" }), "NotYetSupported"),
        (json!({ "quota": { "cpu": "many" } }), "BadQuota"),
        (json!({ "quota": { "cpu": "-4" } }), "Invalid"),
    ] {
        assert_eq!(reason(&read_alone(json!({ "spec": spec }))), Some(expected));
    }
}

#[test]
fn the_operator_reports_all_offline_problems_of_a_setup() {
    let bad = bad::refused_beyond_schema().into_iter();
    let bad: Vec<InvalidManifest> = bad.filter(|bad| bad.manifest["kind"] == "FluxSetup").collect();
    assert!(bad.len() >= 5, "only {} bad setups", bad.len());
    for InvalidManifest { name, field, mut manifest, .. } in bad {
        manifest["metadata"]["namespace"] = "flux-operator".into();
        let problem = read_with(&validate::read(&manifest).unwrap(), None).problem;
        let message = problem.map(|mistake| mistake.message).unwrap_or_default();
        // A selector that cannot be parsed at all has a reason of its own.
        let field = field.split(".match").next().unwrap_or_default();
        assert!(message.contains(field), "{name}: {message:?}");
    }
}

#[test]
fn the_largest_and_the_smallest_numbers_are_read() {
    let spec = json!({ "patienceSeconds": i32::MAX, "maxSize": i32::MAX,
        "quota": { "nodes": "9999999999999999999", "cpu": "8Ei", "memory": "1e999" },
        "miniCluster": { "size": i32::MIN } });
    let read = read_alone(json!({ "spec": spec }));
    assert_eq!(read.patience, i64::from(i32::MAX) * 1000);
    assert_eq!((read.max_size, read.default_size), (Some(2_147_483_647), 1));
    assert!(read.quota.iter().all(|(_, amount)| amount == i64::MAX));
}

/// The steps and the status of a setup.
fn decided(patch: Value, usage: &Usage) -> (Vec<Step>, FluxSetupStatus) {
    let setup = setup(patch);
    let read = read_with(&setup, None);
    let queue = Some(QueuedSetup { rules: &read, usage, running: 1 });
    let decision = decide(ObservedSetup { setup: &setup, queue, now: after(9) });
    let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
    (decision.steps, status)
}

fn status_of(patch: Value, usage: &Usage) -> FluxSetupStatus {
    decided(patch, usage).1
}

#[test]
fn q17_a_setup_reports_its_usage() {
    let usage = Usage { used: nodes(3), pending: 5, admitted: 2, ..Usage::default() };
    insta::assert_yaml_snapshot!(status_of(json!({}), &usage));
}

#[test]
fn q17_usage_is_that_of_the_first_resource_with_a_limit() {
    let used = Resources::of([(Resource::Nodes, 3), (Resource::Cpu, 1500)]);
    let usage = Usage { used, admitted: 1, ..Usage::default() };
    for (quota, text) in [
        (json!({}), "3/4 nodes"),
        (json!({ "nodes": null, "cpu": "2" }), "1500m/2 cpu"),
        (json!({ "nodes": null, "memory": "1Gi" }), "0/1Gi memory"),
        (json!(null), "3 nodes"),
        (json!({ "nodes": 0 }), "3/0 nodes"),
    ] {
        assert_eq!(status_of(json!({ "spec": { "quota": quota } }), &usage).usage, text);
    }
}

#[test]
fn q17_a_setup_reports_why_it_admits_no_job() {
    let stopped = Inactive { reason: InactiveReason::Stopped, message: "why".into() };
    let usage = Usage { inactive: Some(stopped), ..Usage::default() };
    let active = status_of(json!({}), &usage).conditions[0].clone();
    assert_eq!((active.status.as_str(), active.reason.as_str()), ("False", "Stopped"));
}

#[test]
fn q19_a_setup_is_kept_while_jobs_have_quota_from_it() {
    let used = Usage { admitted: 1, ..Usage::default() };
    let idle = Usage::default();
    let successor = Some(SetupName::new("hpc", "new"));
    let replaced_in_use = Usage { successor: successor.clone(), ..used.clone() };
    let named = Usage { successor: successor.clone(), is_needed: true, ..idle.clone() };
    let replaced = Usage { successor, ..idle.clone() };
    let kept = json!({ "metadata": { "finalizers": [FINALIZER] } });
    let terminating = json!({ "metadata": { "finalizers": [FINALIZER],
        "deletionTimestamp": "2026-01-01T00:00:05Z" } });
    for (what, patch, usage, step) in [
        ("new", json!({}), &idle, Some(SetupAction::Keep)),
        ("used before it was kept", json!({}), &used, Some(SetupAction::Keep)),
        ("idle", kept.clone(), &idle, None),
        ("used", kept.clone(), &used, None),
        ("deleted in use", terminating.clone(), &used, None),
        ("deleted", terminating.clone(), &idle, Some(SetupAction::Release)),
        ("replaced in use", kept.clone(), &replaced_in_use, None),
        ("replaced, and records name it", kept.clone(), &named, None),
        ("replaced, deleted, and records name it", terminating.clone(), &named, None),
        ("replaced", kept, &replaced, Some(SetupAction::Delete)),
        ("replaced and deleted", terminating, &replaced, Some(SetupAction::Release)),
    ] {
        assert_eq!(setup_action(patch, usage), step, "{what}");
    }
}

#[test]
fn q19_a_setup_is_kept_before_the_queue_has_read_it() {
    let setup = setup(json!({ "metadata": { "finalizers": ["other.example/a"] } }));
    let decision = decide(ObservedSetup { setup: &setup, queue: None, now: after(9) });
    let finalizers = json!(["other.example/a", FINALIZER]);
    let patch = json!({ "metadata": { "resourceVersion": "7", "finalizers": finalizers } });
    assert_eq!(decision.steps, [Step::PatchSelf(patch)]);
    assert_eq!(decision.conclude(&Outcome::all(&decision.steps)).status, None);
}

#[derive(Debug, PartialEq)]
enum SetupAction {
    Keep,
    Release,
    Delete,
}

fn setup_action(patch: Value, usage: &Usage) -> Option<SetupAction> {
    match &decided(patch, usage).0[..] {
        [] => None,
        [Step::DeleteSelf] => Some(SetupAction::Delete),
        [Step::PatchSelf(patch)] => {
            let keeps = patch["metadata"]["finalizers"].as_array().unwrap();
            Some(if keeps.contains(&json!(FINALIZER)) {
                SetupAction::Keep
            } else {
                SetupAction::Release
            })
        }
        other => panic!("{other:?}"),
    }
}
