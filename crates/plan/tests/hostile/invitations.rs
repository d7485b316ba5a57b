//! Lenders and joiners whose manifests, statuses and notes are hostile.

use std::collections::BTreeMap;
use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::Invitation;
use flux_operator_plan::{
    self as plan, GatewayEndpoint, InvitedCluster, KnownBroker, LastReport, LenderView, Object,
    Observed, PortHolder, QueryAnswer, ServerReply, Step, Subject, invited_permission, queries,
    remote_permission,
};
use flux_operator_testkit::{merge, smallest_minicluster};
use flux_operator_wire::{BrokerFacts, InstanceState, InvitedRequest, JoinRequest};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::values::{numbers, of_type, texts, times};
use crate::{CASES, decide, now, read, settings, spec_schema};

const END: &str = "2100-01-01T00:00:00Z";

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_local_rejects: 100_000,
        ..ProptestConfig::with_cases(CASES)
    })]

    #[test]
    fn no_lease_or_note_makes_a_decision_panic(
        expose in exposes(),
        invitations in proptest::collection::vec(invitations(), 0..3),
        leases in proptest::collection::vec(leases(), 0..4),
        note in prop_oneof![texts(), leases().prop_map(|it| json!([it]).to_string().into())],
        port in any::<u16>(),
    ) {
        let bursting = json!({ "expose": expose, "invitations": invitations });
        let mut lender = minicluster(&json!({ "size": 2, "maxSize": 8, "interactive": true,
            "flux": { "bursting": bursting } }));
        lender["status"] = json!({ "leases": leases });
        let lender: MiniCluster = read(lender)?;
        let mut observed = observed(&lender, note, port);
        for query in queries(&lender, &observed) {
            let reply = match query.subject {
                Subject::OwnPods { .. } | Subject::JoinerPods { .. } => ServerReply::Pods(Vec::new()),
                _ => continue,
            };
            observed.add_answer(QueryAnswer::new(&lender, query, Some(reply), now()));
        }
        decide(&lender, &observed).ok();
        let view = LenderView {
            minicluster: Arc::new(lender),
            job: observed.job.clone(),
            report: observed.report.clone(),
        };
        let asked = InvitedRequest { joiner: "u".into(), joiner_name: String::new(), request: request() };
        for name in ["a", "b", ""] {
            let sealed = Invitation { name: name.into(), ranks: 1, expires: END.into(), ..Invitation::default() };
            invited_permission(&view, &sealed, &asked, KnownBroker::default(), now());
        }
        let bursting = view.minicluster.spec.flux.as_ref().and_then(|it| it.bursting.as_ref());
        for sealed in bursting.into_iter().flat_map(|it| &it.invitations) {
            invited_permission(&view, sealed, &asked, KnownBroker::default(), now());
        }
    }

    #[test]
    fn no_description_of_an_instance_elsewhere_makes_a_decision_panic(
        lead in of_type(&spec_schema("MiniCluster")["properties"]["flux"]["properties"]["bursting"]
            ["properties"]["leadBroker"]),
        is_named in any::<bool>(),
        size in 1..4_i32,
    ) {
        let mut lead = lead;
        if is_named {
            // So that more than its name and its address are read.
            merge(&mut lead, &json!({ "address": "a", "name": "b", "size": 2, "addresses": [] }));
        }
        let bursting = json!({ "leadBroker": lead, "clusters": [{}] });
        let flux = json!({ "curveCertSecret": "s", "bursting": bursting });
        let joiner: MiniCluster = read(minicluster(&json!({ "size": size, "flux": flux })))?;
        decide(&joiner, &Observed::empty(now())).ok();
        remote_permission(&joiner, &request(), now());
    }
}

fn minicluster(spec: &Value) -> Value {
    let mut manifest = smallest_minicluster("fs");
    let metadata = json!({ "namespace": "hpc", "uid": "u", "generation": 1 });
    merge(&mut manifest, &json!({ "metadata": metadata, "spec": spec }));
    manifest
}

fn request() -> JoinRequest {
    JoinRequest {
        index: u32::MAX,
        rank: u32::MAX,
        table: String::new(),
        facts: facts(),
        last_error: String::new(),
        refusal: None,
    }
}

fn facts() -> BrokerFacts {
    BrokerFacts { version: "0.88.0".into(), uid: 0, cores: 1 }
}

/// The lender has a Job with this note, a report and a gateway.
fn observed(lender: &MiniCluster, note: Value, port: u16) -> Observed {
    let nothing = Observed::empty(now());
    let created =
        plan::decide(lender, &nothing, &settings()).steps.into_iter().find_map(|step| match step {
            Step::Create(Object::Job(job)) => Some(*job),
            _ => None,
        });
    let job = created.map(|mut job| {
        job.metadata.uid = Some("j".into());
        let note = note.as_str().unwrap_or_default().to_owned();
        let annotations = job.metadata.annotations.get_or_insert_default();
        annotations.insert("flux-framework.org/invitations".into(), note);
        Arc::new(job)
    });
    let state = InstanceState {
        online: Some("0-1,7".parse().unwrap()),
        lead: Some(facts()),
        ..InstanceState::default()
    };
    let mut observed = Observed {
        job,
        report: Some(LastReport { state, received: now() }),
        ..Observed::empty(now())
    };
    let asked = |uid: &str| InvitedCluster {
        invitation: "a".into(),
        expires: END.into(),
        uid: uid.into(),
        name: String::new(),
        asked: now(),
        refusal: None,
    };
    observed.invited = vec![asked(""), asked("u")];
    let pod = GatewayEndpoint { address: [10, 0, 0, 1].into(), node: String::new() };
    observed.gateway.endpoints.insert(pod);
    observed.gateway.taken_ports = BTreeMap::from([(port, PortHolder::default())]);
    observed
}

fn exposes() -> impl Strategy<Value = Value> {
    let hostile = of_type(
        &spec_schema("MiniCluster")["properties"]["flux"]["properties"]["bursting"]["properties"]["expose"],
    );
    let ports = (0..65_000_i32, 0..65_000_i32).prop_map(
        |(port, on_nodes)| json!({ "type": "LoadBalancer", "port": port, "nodePort": on_nodes }),
    );
    prop_oneof![Just(json!({})), ports, hostile]
}

fn invitations() -> impl Strategy<Value = Value> {
    let name = proptest::sample::select(vec!["a", "b", "a-long-one"]);
    let ranks = prop_oneof![4 => (1..4_i32).prop_map(Value::from), 1 => numbers()];
    (name, ranks, times()).prop_map(
        |(name, ranks, expires)| json!({ "name": name, "ranks": ranks, "expires": expires }),
    )
}

/// A lease, or a note of one.
fn leases() -> impl Strategy<Value = Value> {
    let ranks = prop_oneof![
        texts(),
        proptest::sample::select(vec!["7,6", "7", "0", "4294967295", "1-9999", "5-7,2"])
            .prop_map(Value::from)
    ];
    let name = proptest::sample::select(vec!["a", "b", ""]);
    let ports = (numbers(), numbers(), numbers());
    (ranks, name, times(), times(), ports).prop_map(|(ranks, name, expires, since, ports)| {
        let holder = format!("invitation:{name}:{}", expires.as_str().unwrap_or_default());
        let invitation = json!({ "expires": expires, "port": ports.0, "servicePort": ports.1,
            "gatewayPort": ports.2, "user": { "uid": "", "name": "", "since": since } });
        json!({ "ranks": ranks, "holder": holder, "namespace": "hpc", "name": name, "table": "t",
            "since": since, "state": "Active", "invitation": invitation, "expires": expires,
            "servicePort": ports.1, "gatewayPort": ports.2 })
    })
}
