//! A MiniCluster whose brokers join with an invitation: its objects, and its condition `Joined`.

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::Settings;
use flux_operator_plan::{Observed, Outcome, Permission, Step, decide, remote_permission};
use flux_operator_wire::{BrokerFacts, JoinRefusal, JoinRequest};
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::file::joiner;
use crate::fixture::*;

/// The joiner's Job exists, and these of its pods are ready.
pub fn observed(joiner: &MiniCluster, ready: &[u32]) -> Observed {
    let nothing = Observed::empty(after(0));
    let decision = decide(joiner, &nothing, &settings());
    let job = decision.steps.iter().find_map(|step| match step {
        Step::Create(flux_operator_plan::Object::Job(job)) => Some((**job).clone()),
        _ => None,
    });
    let mut job: Job = job.unwrap();
    job.metadata.uid = Some("joiner-job".into());
    job.status = Some(serde_json::from_value(json!({ "startTime": START })).unwrap());
    let pods = ready.iter().map(|index| Arc::new(pod("joiner", *index, &json!({}))));
    Observed {
        job: Some(Arc::new(job)),
        pods: pods.collect(),
        watching_since: after(-1000),
        ..Observed::empty(after(5))
    }
}

/// The steps, and status, reason and message of the condition.
pub fn joined(joiner: &MiniCluster, observed: &Observed) -> (Vec<String>, [String; 3]) {
    let decision = decide(joiner, observed, &settings());
    let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
    let it = status.conditions.into_iter().find(|it| it.type_ == "Joined").unwrap();
    (decision.steps.iter().map(words).collect(), [it.status, it.reason, it.message])
}

fn request(index: u32, facts: BrokerFacts) -> JoinRequest {
    let lender = Lender::settled(&one_invitation());
    JoinRequest {
        index,
        rank: [9, 8][index as usize],
        table: lender.lease("a").table.clone(),
        facts,
        last_error: String::new(),
        refusal: None,
    }
}

fn invited() -> MiniCluster {
    joiner(&Lender::settled(&one_invitation()))
}

/// Without an address for reports, brokers with an invitation ask the lender alone.
#[test]
fn a_joiner_with_an_invitation_needs_no_address_for_reports() {
    let silent = Settings { report_url: None, ..settings() };
    let reason = |joiner: &MiniCluster| {
        let observed = observed(joiner, &[0, 1]);
        let decision = decide(joiner, &observed, &silent);
        let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
        status.conditions.into_iter().find(|it| it.type_ == "Joined").unwrap().reason
    };
    assert_eq!(reason(&invited()), "Joined");
    let mut direct = one_invitation();
    direct["expose"] = json!({ "direct": true });
    assert_eq!(reason(&joiner(&Lender::settled(&direct))), "LenderNotReady");
}

#[test]
fn a_joiner_gets_its_objects_without_asking_its_own_cluster_for_a_lender() {
    let joiner = invited();
    let observed = Observed::empty(after(0));
    let (steps, [status, reason, _]) = joined(&joiner, &observed);
    let expected = [
        "create keys",
        "create ConfigMap joiner-entrypoint",
        "create Service joiner",
        "create Job joiner",
    ];
    assert_eq!(steps, expected);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Joining"));
}

#[test]
fn b4_the_pods_mount_the_key_of_reports_and_the_two_of_the_invitation() {
    let observed = observed(&invited(), &[]);
    let job = json!(**observed.job.as_ref().unwrap());
    let volumes = job["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let keys = volumes.iter().find(|it| it["name"] == "flux-operator-keys").unwrap();
    let sources: Vec<(&str, Vec<&str>)> = keys["projected"]["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let items = it["secret"]["items"].as_array().unwrap();
            let items = items.iter().map(|item| item["key"].as_str().unwrap()).collect();
            (it["secret"]["name"].as_str().unwrap(), items)
        })
        .collect();
    let expected = [
        ("joiner-flux-joinerui", vec!["report.key"]),
        ("joiner-invitation", vec!["curve.cert", "invitation.key"]),
    ];
    assert_eq!(sources, expected);
}

#[test]
fn a_joiner_has_joined_only_when_all_of_its_pods_are_ready() {
    let joiner = invited();
    let state = |ready: &[u32]| joined(&joiner, &observed(&joiner, ready)).1;
    let lender = "\"lender (203.0.113.1:30050)\"";
    let says = format!("ranks 9,8 of {lender} are online");
    assert_eq!(state(&[0, 1]), ["True".to_owned(), "Joined".into(), says]);
    let says = format!("1 of 2 brokers are online at ranks 9,8 of {lender}");
    assert_eq!(state(&[1]), ["False".to_owned(), "Joining".into(), says]);
    assert_eq!(state(&[])[1], "Joining");
    assert_eq!(state(&[0, 2])[1], "Joining", "the last is beyond its size");
    let mut terminating = observed(&joiner, &[0, 1]);
    let deleted = json!({ "metadata": { "deletionTimestamp": START } });
    terminating.pods[1] = Arc::new(merged(&*terminating.pods[1], &deleted));
    assert_eq!(joined(&joiner, &terminating).1[1], "Joining");
}

#[test]
fn what_the_lender_refuses_is_shown_with_its_reason() {
    let joiner = invited();
    let refused = |reason: &str, message: &str| {
        let mut observed = observed(&joiner, &[]);
        let mut request = request(0, facts());
        request.refusal = Some(JoinRefusal { reason: reason.into(), message: message.into() });
        observed.join_requests = vec![request];
        let [status, reason, message] = joined(&joiner, &observed).1;
        assert_eq!(status, "False");
        (reason, message)
    };
    for reason in ["InvitationRevoked", "InvitationUsed", "InvitationOutdated", "NoFreeRanks"] {
        let (shown, message) = refused(reason, "so it is");
        assert_eq!(shown, reason);
        assert_eq!(message, "\"lender (203.0.113.1:30050)\": so it is");
    }
    assert_eq!(refused("of a later version", "x").0, "Joining");
}

/// The agents ask again, but not at once.
#[test]
fn a_restart_of_the_operator_changes_no_condition() {
    let mut joiner = invited();
    let mut observed = observed(&joiner, &[]);
    let refusal = JoinRefusal { reason: "InvitationUsed".into(), message: "by another".into() };
    observed.join_requests = vec![JoinRequest { refusal: Some(refusal), ..request(0, facts()) }];
    let decision = decide(&joiner, &observed, &settings());
    let status = decision.conclude(&Outcome::all(&decision.steps)).status;
    let before = joined(&joiner, &observed).1;
    assert_eq!(before[1], "InvitationUsed");
    joiner.status = status;
    observed.join_requests.clear();
    assert_eq!(joined(&joiner, &observed).1[1], "Joining", "no agent asks any more");
    observed.watching_since = observed.now;
    assert_eq!(joined(&joiner, &observed).1, before, "the operator was started just now");
    let decision = decide(&joiner, &observed, &settings());
    let requeue_at = decision.conclude(&Outcome::all(&decision.steps)).requeue_at;
    assert!(requeue_at.is_some_and(|at| at < after(HOUR)), "it is reconciled before it expires");
    observed.now = after(HOUR / 2);
    assert_eq!(joined(&joiner, &observed).1[1], "Joining", "they had the time to ask");
}

#[test]
fn a_joiner_that_differs_from_the_lead_reports_it_without_asking_the_lender() {
    let joiner = invited();
    let with = |facts: BrokerFacts| {
        let mut observed = observed(&joiner, &[]);
        observed.join_requests = vec![request(1, facts)];
        joined(&joiner, &observed).1[1].clone()
    };
    assert_eq!(with(facts()), "Joining");
    assert_eq!(with(BrokerFacts { version: "0.80.0".into(), ..facts() }), "VersionMismatch");
    assert_eq!(with(BrokerFacts { uid: 1, ..facts() }), "UidMismatch");
    assert_eq!(with(BrokerFacts { cores: 1, ..facts() }), "FewerCores");
}

#[test]
fn b15_the_last_error_of_a_broker_is_shown() {
    let joiner = invited();
    let mut observed = observed(&joiner, &[]);
    let failed = JoinRequest { last_error: "handshake failed".into(), ..request(1, facts()) };
    observed.join_requests = vec![failed];
    let message = joined(&joiner, &observed).1[2].clone();
    assert!(message.ends_with("; the broker of pod 1 exited: handshake failed"), "{message}");
}

#[test]
fn an_expired_invitation_deletes_the_job_and_creates_no_other() {
    let joiner = invited();
    let mut observed = observed(&joiner, &[0, 1]);
    let decision = decide(&joiner, &observed, &settings());
    let requeue_at = decision.conclude(&Outcome::all(&decision.steps)).requeue_at;
    assert_eq!(requeue_at, Some(after(HOUR)), "it is reconciled then");
    observed.now = after(HOUR);
    let (steps, [status, reason, message]) = joined(&joiner, &observed);
    assert_eq!(steps, ["delete Job joiner"]);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvitationExpired"));
    assert!(message.contains("ask for another"), "{message}");
    let (steps, [_, reason, _]) = joined(&joiner, &Observed::empty(after(HOUR)));
    assert_eq!((steps.len(), reason.as_str()), (0, "InvitationExpired"));
}

#[test]
fn a_joiner_that_is_suspended_or_waits_for_quota_says_so() {
    for (patch, expected) in [
        (json!({ "suspend": true }), "Suspended"),
        (json!({ "queue": "batch" }), "WaitingForQueue"),
    ] {
        let joiner = merged(&invited(), &json!({ "spec": patch }));
        let reason = joined(&joiner, &observed(&joiner, &[])).1[1].clone();
        assert_eq!(reason, expected);
    }
}

/// Its own operator decides too, after the lender: it knows the manifest, and the time.
#[test]
fn b12_its_own_operator_lets_a_broker_start_only_at_the_rank_of_its_manifest() {
    let joiner = invited();
    let ask = |request: &JoinRequest, now| remote_permission(&joiner, request, now).unwrap();
    let asked = request(1, facts());
    assert_eq!(ask(&asked, after(0)), Permission::Granted);
    assert_eq!(ask(&asked, after(HOUR)).result(), "InvitationExpired");
    let other = JoinRequest { rank: 7, ..asked.clone() };
    assert!(matches!(ask(&other, after(0)), Permission::Outdated(_)));
    let other = JoinRequest { table: "x".into(), ..asked.clone() };
    assert!(matches!(ask(&other, after(0)), Permission::Outdated(_)));
    let other = JoinRequest { index: u32::MAX, ..asked.clone() };
    assert!(matches!(ask(&other, after(0)), Permission::Outdated(_)));
    let refusal = Some(JoinRefusal { reason: "InvitationUsed".into(), message: "m".into() });
    let refused = JoinRequest { refusal, ..asked.clone() };
    assert_eq!(ask(&refused, after(0)).result(), "Joining");
    let refused = merged(&joiner, &json!({ "spec": { "size": 3 } }));
    assert_eq!(remote_permission(&refused, &asked, after(0)).unwrap().result(), "Invalid");
    let lender = Lender::settled(&one_invitation()).minicluster;
    assert_eq!(remote_permission(&lender, &asked, after(0)), None, "it joins no other cluster");
}

fn refusal(patch: &Value) -> String {
    let joiner = merged(&invited(), patch);
    decide(&joiner, &Observed::empty(after(0)), &settings()).refusal().unwrap_or_default()
}

#[test]
fn a_file_that_was_edited_is_refused_with_the_field() {
    let instance = |patch: Value| json!({ "spec": { "flux": { "bursting": { "leadBroker": { "instance": patch } } } } });
    let path = "spec.flux.bursting.leadBroker.instance";
    assert_eq!(refusal(&json!({})), "");
    for (patch, expected) in [
        (json!({ "ranks": "0-1" }), format!("{path}.ranks: has rank 0 or one that is not")),
        (json!({ "ranks": "9-10" }), format!("{path}.ranks: has rank 0 or one that is not")),
        (
            json!({ "ranks": "0-1" }),
            format!(
                "{path}.ranks: has rank 0 or one that is not among the 10 hosts: use the file of the \
                 invitation unchanged"
            ),
        ),
        (json!({ "ranks": "x" }), format!("{path}.ranks: is not a list of ranks")),
        (json!({ "ranks": "9" }), "spec.size: is 2, and there are 1 ranks for it".into()),
        (json!({ "ranks": "9,9" }), format!("{path}.ranks: ")),
        (
            json!({ "hosts": [{ "hosts": "a[", "property": "home" }] }),
            format!("{path}.hosts[0].hosts: is not a host list"),
        ),
        (json!({ "config": "[" }), format!("{path}.config: is not a configuration of Flux")),
        (json!({ "expires": "soon" }), format!("{path}.expires: ")),
    ] {
        let found = refusal(&instance(patch.clone()));
        assert!(found.starts_with(&expected), "{patch}: {found}");
    }
    let found = refusal(&json!({ "spec": { "flux": { "curveCertSecret": null } } }));
    assert!(found.starts_with("spec.flux.curveCertSecret: is missing"), "{found}");
    let found = refusal(&json!({ "spec": { "flux": { "brokerConfig": "[access]\n" } } }));
    assert!(found.starts_with("spec.flux.brokerConfig: cannot be used with an invitation"));
    let found = refusal(&json!({ "spec": { "flux": { "bursting": { "expose": {} } } } }));
    assert!(found.starts_with("spec.flux.bursting.expose: has no meaning"), "{found}");
}
