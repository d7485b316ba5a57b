//! A MiniCluster that joins another Kubernetes cluster in the Go operator's way: `leadBroker` names the
//! lead, and the hosts follow from `clusters`, `hostlist` or `brokerConfig`.

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::NewCertificate;
use flux_operator_plan::{Object, Observed, RefusalReason, Step, Valid, decide};
use flux_operator_testkit::merge;
use flux_operator_wire::{BootPlan, JoinRequest};
use serde_json::{Value, json};

use crate::file::certificate;
use crate::fixture::*;
use crate::joiner;

/// A MiniCluster `joiner` of two brokers, with the lead at 203.0.113.9 and this in `flux`.
fn joiner(flux: &Value) -> MiniCluster {
    let lead = json!({ "address": "203.0.113.9", "name": "lender", "size": 4, "port": 30_093 });
    let mut all = json!({ "curveCertSecret": "theirs", "bursting": { "leadBroker": lead } });
    merge(&mut all, flux);
    minicluster("joiner", &json!({ "spec": { "size": 2, "interactive": true, "flux": all } }))
}

fn pools(pools: Value) -> Value {
    json!({ "bursting": { "clusters": pools } })
}

fn lead(patch: Value) -> Value {
    json!({ "bursting": { "leadBroker": patch, "clusters": [{ "name": "joiner", "size": 2 }] } })
}

fn refusal(joiner: &MiniCluster) -> String {
    match Valid::check(joiner.clone()) {
        Ok(_) => String::new(),
        Err(refusal) => {
            assert_eq!(refusal.reason, RefusalReason::Invalid);
            refusal.to_string()
        }
    }
}

fn assert_refused(flux: &Value, says: &[&str]) {
    let refusal = refusal(&joiner(flux));
    assert!(says.iter().all(|says| refusal.contains(says)), "{flux}: {refusal}");
}

fn ranks(plan: &BootPlan) -> String {
    plan.join.as_ref().unwrap().ranks.to_string()
}

#[test]
fn b13_the_hosts_are_the_lenders_and_then_those_of_clusters() {
    let own = boot_plan(&joiner(&pools(
        json!([{ "name": "other", "size": 3 }, { "name": "joiner", "size": 2 }]),
    )));
    assert_eq!(own.hosts.to_string(), "lender-[0-3],other-[0-2],joiner-[0-1]");
    assert_eq!(ranks(&own), "7-8", "those of the pool with its name");
    assert_eq!(own.lead, "tcp://203.0.113.9:30093");
    assert_eq!(own.broker.topology, "kary:0");
    let remote = own.join.unwrap().remote.unwrap();
    assert_eq!((remote.addresses.len(), remote.invitation), (1, None), "nothing is asked");
}

/// The plugins of flux-burst call the MiniCluster otherwise than its pool.
#[test]
fn b13_the_only_pool_is_used_whatever_its_name() {
    let only = boot_plan(&joiner(&pools(json!([{ "name": "burst-0", "size": 4 }]))));
    assert_eq!(only.hosts.to_string(), "lender-[0-3],burst-0-[0-3]");
    assert_eq!(ranks(&only), "4-5");
    // Name and size of a pool have defaults.
    let default = boot_plan(&joiner(&pools(json!([{}]))));
    assert_eq!(default.hosts.to_string(), "lender-[0-3],burst-0-[0-1]");
    assert_eq!(ranks(&default), "4-5");
}

#[test]
fn a_joiner_without_hosts_of_its_own_is_refused() {
    let message = "spec.flux.bursting.clusters: has no host joiner-0 to joiner-1 for the pods";
    assert_refused(&json!({}), &[message, "name it after one of the lender's"]);
    assert_refused(&pools(json!([{ "name": "a" }, { "name": "b" }])), &[message]);
    // The message names the field that the user wrote.
    let message = "spec.flux.bursting.hostlist: has no host joiner-0 to joiner-1 for the pods";
    for hosts in ["lender-[0-3],other-[0-1]", "lender-[0-3],joiner-[00-01]", "lender-0"] {
        let hostlist = json!({ "bursting": { "hostlist": hosts } });
        assert_refused(&hostlist, &[message, "list all hosts here in the same order"]);
    }
    let mut configured = config("{ host = \"lender-[0-3]\" }");
    configured["bursting"] = json!({});
    assert_refused(&configured, &["spec.flux.brokerConfig: has no host joiner-0 to joiner-1"]);
}

#[test]
fn a_joiner_whose_host_is_the_leads_is_refused() {
    let first = "this MiniCluster's host is first, and that is the lead's: list the lender's hosts";
    let hostlist = json!({ "bursting": { "hostlist": "joiner-[0-1],lender-[0-3]" } });
    assert_refused(&hostlist, &[&format!("spec.flux.bursting.hostlist: {first}")]);
    let named = minicluster("lender", &json!({ "spec": joiner(&json!({})).spec }));
    assert!(refusal(&named).starts_with("metadata.name: is the lender's"), "{}", refusal(&named));
}

#[test]
fn a_joiner_that_is_larger_than_its_hosts_is_refused() {
    let partly = json!({ "bursting": { "hostlist": "lender-[0-3],joiner-0,joiner-+1" } });
    let message = "spec.size: is 2, and spec.flux.bursting.hostlist has 1 host for it, joiner-0: \
        lower it to 1";
    assert_refused(&partly, &[message]);
    let clusters = "spec.size: is 2, and spec.flux.bursting.clusters has 1 host for it, ";
    for name in ["joiner", "other"] {
        let pool = pools(json!([{ "name": name, "size": 1 }]));
        assert_refused(&pool, &[&format!("{clusters}{name}-0")]);
    }
}

#[test]
fn b7_a_host_list_names_every_host() {
    let hostlist = |list: &str| joiner(&json!({ "bursting": { "hostlist": list } }));
    let plan = boot_plan(&hostlist("lender-[0-3],joiner-[0-1],vm-[001-003]"));
    assert_eq!(plan.hosts.to_string(), "lender-[0-3],joiner-[0-1],vm-[001-003]");
    assert_eq!(ranks(&plan), "4-5");
    // Manifests for the Go operator have the lead's address in place of its name.
    let plan = boot_plan(&hostlist("203.0.113.9,lender-[1-3],joiner-[0-1]"));
    assert_eq!(plan.hosts.to_string(), "lender-[0-3],joiner-[0-1]");
    assert_eq!(ranks(&plan), "4-5");
    assert_refused(&json!({ "bursting": { "hostlist": "a[" } }), &["spec.flux.bursting.hostlist"]);
    let both = json!({ "bursting": { "hostlist": "lender-0,joiner-[0-1]", "clusters": [{}] } });
    assert_refused(&both, &["hostlist and clusters exclude each other"]);
}

fn config(hosts: &str) -> Value {
    let text = format!("[bootstrap]\ncurve_cert = \"/c\"\nhosts = [{hosts}]\n");
    let clusters = json!([{ "name": "joiner", "size": 2 }]);
    json!({ "brokerConfig": text, "bursting": { "clusters": clusters } })
}

#[test]
fn b3_a_users_own_configuration_is_used_if_every_host_has_the_lenders_rank() {
    let good = "{ host = \"lender-0\", connect = \"tcp://203.0.113.9:30093\" }, \
        { host = \"lender-[0-3],joiner-[0-1]\" }";
    let plan = boot_plan(&joiner(&config(good)));
    assert_eq!(ranks(&plan), "4-5");
    assert_eq!(plan.hosts.to_string(), "lender-[0-3],joiner-[0-1]");
    assert!(plan.verbatim_config.unwrap().contains("203.0.113.9"));
    let more = boot_plan(&joiner(&config("{ host = \"lender-[0-3],joiner-[0-1],vm-7\" }")));
    assert_eq!(more.hosts.to_string(), "lender-[0-3],joiner-[0-1],vm-7");
}

#[test]
fn b3_a_users_own_configuration_with_other_ranks_is_refused() {
    for (hosts, says) in [
        ("{ host = \"joiner-[0-1],lender-[0-3]\" }", "host \"lender-0\" rank 2"),
        (
            "{ host = \"lender-[0-3],x-0,joiner-[0-1]\" }",
            "host \"joiner-0\" rank 5, and the lender gives it rank 4",
        ),
        ("{ host = \"lender-[0-3]\" }", "host \"joiner-0\" no rank"),
        ("{ host = \"203.0.113.9,lender-[1-3],joiner-[0-1]\" }", "host \"lender-0\" no rank"),
        ("{ host = \"a_b\" }", "is not a domain name"),
    ] {
        assert_refused(&config(hosts), &["spec.flux.brokerConfig", says]);
    }
    let flux = |text: &str| json!({ "brokerConfig": text, "bursting": { "clusters": [{}] } });
    assert_refused(&flux("[access]\n"), &["has no hosts in [bootstrap]"]);
    assert_refused(&flux("[bootstrap]\ncurve_cert = \"/c\"\n"), &["has no hosts in [bootstrap]"]);
    assert_refused(&flux("[bootstrap"), &["spec.flux.brokerConfig"]);
}

/// What a Job mounts as keys: the Secrets, each with its files.
fn mounted(joiner: &MiniCluster) -> Value {
    let observed = joiner::observed(joiner, &[]);
    let job = json!(**observed.job.as_ref().unwrap());
    let volumes = job["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    volumes.into_iter().find(|it| it["name"] == "flux-operator-keys").unwrap()
}

fn new_keys(joiner: &MiniCluster) -> NewCertificate {
    let observed = Observed::empty(after(0));
    let decision = decide(joiner, &observed, &settings());
    assert_eq!(decision.refusal(), None);
    let keys = decision.steps.into_iter().find_map(|step| match step {
        Step::CreateKeys(keys) => Some(keys.certificate),
        _ => None,
    });
    keys.unwrap()
}

#[test]
fn b4_a_certificate_is_a_text_or_in_a_secret() {
    let own = json!([{ "name": "joiner", "size": 2 }]);
    let text = json!({ "curveCert": certificate(), "curveCertSecret": null, "bursting": { "clusters": own } });
    let by_text = joiner(&text);
    let NewCertificate::Given(given) = new_keys(&by_text) else { panic!("it is the user's") };
    assert_eq!(*given.to_secret_text(), certificate());
    let keys = mounted(&by_text);
    assert_eq!(keys["secret"]["secretName"], "joiner-flux-joinerui", "it is in our Secret");
    let in_secret = joiner(&pools(own.clone()));
    assert!(matches!(new_keys(&in_secret), NewCertificate::Elsewhere));
    let item = |key: &str| json!([{ "key": key, "path": key }]);
    let sources = mounted(&in_secret)["projected"]["sources"].clone();
    assert_eq!(sources[0]["secret"]["name"], "joiner-flux-joinerui");
    assert_eq!(sources[0]["secret"]["items"], item("report.key"));
    assert_eq!(sources[1]["secret"]["name"], "theirs");
    assert_eq!(sources[1]["secret"]["items"], item("curve.cert"));
    assert_eq!(sources[0]["secret"]["optional"], Value::Null, "the agent needs both");
    let both = json!({ "curveCert": certificate(), "bursting": { "clusters": own } });
    assert_refused(&both, &["exclude each other"]);
    let none = json!({ "curveCertSecret": null, "bursting": { "clusters": own } });
    assert_refused(&none, &["spec.flux.curveCertSecret: is missing"]);
    let wrong =
        json!({ "curveCert": "x", "curveCertSecret": null, "bursting": { "clusters": own } });
    assert_refused(&wrong, &["spec.flux.curveCert"]);
}

#[test]
fn b5_a_munge_key_is_mounted_from_its_secret() {
    let mut flux = pools(json!([{}]));
    flux["mungeSecret"] = json!("munge");
    let observed = joiner::observed(&joiner(&flux), &[]);
    let job = json!(**observed.job.as_ref().unwrap());
    let volumes = job["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    let munge = volumes.iter().find(|it| it["name"] == "flux-operator-munge").unwrap();
    assert_eq!(munge["secret"]["secretName"], "munge");
}

#[test]
fn b7_the_port_has_a_default() {
    for port in [json!(0), json!(null)] {
        let plan = boot_plan(&joiner(&lead(json!({ "port": port }))));
        assert_eq!(plan.lead, "tcp://203.0.113.9:8050");
    }
}

#[test]
fn addresses_are_hosts_with_ports() {
    let addresses = |list: Value| lead(json!({ "addresses": list }));
    let good = json!(["203.0.113.8:30093", "[2001:db8::1]:30093", "lead.example.org:1"]);
    let plan = boot_plan(&joiner(&addresses(good)));
    let remote = plan.join.unwrap().remote.unwrap();
    assert_eq!(remote.addresses.len(), 4);
    for wrong in [
        "203.0.113.8",
        ":80",
        "a:b",
        "a:70000",
        "a:0",
        "a:-1",
        "",
        "2001:db8::1:80",
        "[x]:80",
        "a b:80",
        "tcp://a:80",
        "a/b:80",
        "[2001:db8::1:80",
    ] {
        let message = "spec.flux.bursting.leadBroker.addresses[1]: is not of the form host:port";
        assert_refused(&addresses(json!(["a:1", wrong])), &[message]);
    }
}

#[test]
fn the_address_of_the_lead_is_a_host() {
    for (address, expected) in [
        ("lead.example.org", "tcp://lead.example.org:30093"),
        ("2001:db8::1", "tcp://[2001:db8::1]:30093"),
        ("203.0.113.9", "tcp://203.0.113.9:30093"),
    ] {
        let plan = boot_plan(&joiner(&lead(json!({ "address": address }))));
        assert_eq!(plan.lead, expected);
    }
    for wrong in ["203.0.113.9:30093", "tcp://203.0.113.9", "a b", "[2001:db8::1]", "a\"\nb", "a/b"]
    {
        let message = "spec.flux.bursting.leadBroker.address: is not a host name or an address";
        assert_refused(&lead(json!({ "address": wrong })), &[message]);
    }
}

#[test]
fn a_joiner_has_no_more_pods_than_ranks() {
    let mut large = joiner(&pools(json!([{ "name": "joiner", "size": 2 }])));
    large.spec.size = 3;
    let refusal = refusal(&large);
    assert!(refusal.contains("spec.size: is 3, and spec.flux.bursting.clusters has 2 hosts for it, joiner-0 to joiner-1"), "{refusal}");
}

#[test]
fn a_joiner_has_joined_when_all_pods_are_ready() {
    let joiner = joiner(&pools(json!([{}])));
    let state = |observed: &Observed| joiner::joined(&joiner, observed).1;
    assert_eq!(state(&joiner::observed(&joiner, &[0]))[1], "Joining");
    let [status, reason, message] = state(&joiner::observed(&joiner, &[0, 1]));
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Joined"));
    assert_eq!(message, "ranks 4-5 of \"lender (203.0.113.9:30093)\" are online");
    // Nothing is known about the lead, so nothing can be compared.
    let mut observed = joiner::observed(&joiner, &[]);
    observed.join_requests = vec![JoinRequest {
        index: 0,
        rank: 4,
        table: String::new(),
        facts: flux_operator_wire::BrokerFacts { version: "0.1.0".into(), uid: 7, cores: 1 },
        last_error: "handshake failed".into(),
        refusal: None,
    }];
    let [_, reason, message] = state(&observed);
    assert_eq!(reason, "Joining");
    assert!(message.ends_with("the broker of pod 0 exited: handshake failed"), "{message}");
}

/// A pool that was edited before the pods started gives another Job; settled means no steps.
#[test]
fn a_settled_joiner_has_no_steps() {
    let joiner = joiner(&pools(json!([{}])));
    let mut observed = joiner::observed(&joiner, &[0, 1]);
    for step in decide(&joiner, &Observed::empty(after(0)), &settings()).steps {
        match step {
            Step::CreateOrApply(Object::ConfigMap(map)) => {
                observed.config_map = Some(Arc::new(*map));
            }
            Step::CreateOrApply(Object::Service(service)) => {
                observed.services.push(Arc::new(*service));
            }
            _ => {}
        }
    }
    let (steps, _) = joiner::joined(&joiner, &observed);
    assert_eq!(steps, [""; 0]);
}

/// Any manifest is checked by every replica, for every MiniCluster. A check whose time grows with the
/// square of the hosts would take minutes here.
#[test]
fn the_largest_manifests_are_checked() {
    let large = json!({ "brokerConfig":
        "[bootstrap]\ncurve_cert = \"/c\"\nhosts = [{ host = \"lender-[0-99999],joiner-[0-29999]\" }]\n",
        "bursting": { "leadBroker": { "size": 100_000 }, "clusters": [{ "name": "joiner", "size": 30_000 }] } });
    let mut of_config = joiner(&large);
    of_config.spec.size = 30_000;
    let hosts: Vec<String> = (0..8000).map(|index| format!("a{index}x")).collect();
    let list = format!("lender-0,{},joiner-[0-30000]", hosts.join(","));
    let mut of_list = joiner(&json!({ "bursting": { "hostlist": list } }));
    of_list.spec.size = 30_000;
    assert_eq!(refusal(&of_config), "");
    assert_eq!(refusal(&of_list), "");
}
