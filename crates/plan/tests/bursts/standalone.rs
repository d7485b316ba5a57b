//! Bursts of an instance outside Kubernetes: their ranks, and the objects of their brokers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use flux_operator_api::burst::BurstTarget;
use flux_operator_api::{Burst, BurstSpec, MiniCluster};
use flux_operator_flux::{Certificate, IdSet, Metadata, SecretKey};
use flux_operator_plan::bursting::{
    InstanceState, NewInstance, PoolPods, RemotePool, StandaloneInstance, leased, ranks_to_drain,
    standalone_lender, standalone_pool, with_claim, with_ranks,
};
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_testkit::smallest_minicluster;
use flux_operator_wire::{BootPlan, BrokerFacts};
use kube::ResourceExt;
use serde_json::json;

fn certificate() -> Certificate {
    Certificate::new(SecretKey::from_bytes([7; 32]), Metadata::new("x").unwrap())
}

fn instance() -> StandaloneInstance {
    let new = NewInstance {
        host: "laptop".into(),
        address: "192.0.2.7".into(),
        bind: Ipv4Addr::UNSPECIFIED.into(),
        port: 8050,
        certificate: "/curve.cert".into(),
        spare_ranks: 3,
        cores: 2,
        spare_cores: 8,
        spare_gpus: 0,
    };
    let lead = BrokerFacts { version: "0.88.0".into(), uid: 1234, cores: 0 };
    StandaloneInstance::of(&new.config().unwrap(), &certificate(), lead).unwrap()
}

/// A Burst that asks for ranks, and keeps some of them.
fn burst(name: &str, ranks: i32, keep: Option<i32>) -> Burst {
    let target = json!({ "name": "away", "maxNodes": 3, "kubeconfig": { "secret": "away" } });
    let target: BurstTarget = serde_json::from_value(target).unwrap();
    let mut burst = Burst::new(name, BurstSpec { target, nodes: ranks, ..BurstSpec::default() });
    burst.metadata.uid = Some(format!("uid-of-{name}"));
    let invitation = json!({ "name": name, "ranks": ranks, "keep": keep,
        "expires": "2026-01-01T00:00:00Z" });
    let bursting = json!({ "bursting": { "invitations": [invitation] } });
    with_claim(&burst, &json!({ "spec": { "flux": bursting } }))
}

fn online(ranks: &str) -> IdSet {
    ranks.parse().unwrap()
}

#[test]
fn b12_no_rank_is_leased_to_two_bursts_or_while_it_has_a_broker() {
    let instance = instance();
    let first = with_ranks(&burst("a", 1, None), &instance, &[], &online("0,1")).unwrap();
    assert_eq!(leased(&first).to_string(), "2", "rank 1 has a broker");
    assert!(with_ranks(&first, &instance, &[&first], &online("0")).is_none(), "it has its ranks");
    let second = with_ranks(&burst("b", 2, None), &instance, &[&first], &online("0")).unwrap();
    assert_eq!(leased(&second).to_string(), "1,3");
    let third = burst("c", 1, None);
    assert!(with_ranks(&third, &instance, &[&first, &second], &online("0")).is_none());
    let huge = burst("d", i32::MAX, None);
    assert!(with_ranks(&huge, &instance, &[], &online("0")).is_none());
}

#[test]
fn ranks_that_are_not_kept_are_drained_and_the_lender_shows_it() {
    let instance = instance();
    let burst = burst("a", 3, Some(1));
    let burst = with_ranks(&burst, &instance, &[], &online("0")).unwrap();
    assert_eq!(ranks_to_drain(&[&burst]).to_string(), "2-3");
    let state = InstanceState { drained: online("2"), online: online("0-3"), has_exited: false };
    let lender = standalone_lender(&instance, &[&burst], &state);
    let lease = &lender.status.as_ref().unwrap().leases[0];
    assert_eq!(
        (lease.ranks.as_str(), lender.status.as_ref().unwrap().online.as_str()),
        ("1-3", "0-3")
    );
    assert_eq!(lease.invitation.as_ref().unwrap().drained, "2");
    assert_eq!((lender.spec.size, lender.uid().unwrap()), (1, instance.uid.clone()));
    let nothing = standalone_lender(&instance, &[], &state);
    assert!(nothing.finalizers().is_empty() && nothing.status.unwrap().leases.is_empty());
}

fn pool(template: Option<&MiniCluster>, target: &serde_json::Value) -> RemotePool {
    let instance = instance();
    let mut burst = burst("a", 2, None);
    burst = with_ranks(&burst, &instance, &[], &online("0")).unwrap();
    burst.spec.target = serde_json::from_value(target.clone()).unwrap();
    let labels = BTreeMap::from([("flux-framework.org/burst".to_owned(), "b".to_owned())]);
    let pods = PoolPods {
        namespace: "theirs",
        uid: "uid-of-a",
        nodes: 2,
        labels: &labels,
        target: &burst.spec.target,
        deadline_seconds: Some(7200),
    };
    let settings = Settings {
        agent_image: "agent:1".into(),
        cluster_domain: "cluster.local".into(),
        delivery: DeliveryMethod::Init,
        report_url: None,
    };
    standalone_pool(&instance, &burst, template, &pods, &certificate(), &settings).unwrap()
}

#[test]
fn brokers_connect_to_the_lead_and_compare_themselves_with_it() {
    let target = json!({ "name": "away", "maxNodes": 3, "kubeconfig": { "secret": "away" },
        "pods": { "image": "flux:1" } });
    let template: MiniCluster = serde_json::from_value(smallest_minicluster("brokers")).unwrap();
    for template in [None, Some(&template)] {
        let pool = pool(template, &target);
        let text = &pool.config_map.data.as_ref().unwrap()["boot.json"];
        assert!(!text.contains("secret-key"), "the certificate is in the Secret alone");
        let plan: BootPlan = serde_json::from_str(text).unwrap();
        assert_eq!((plan.lead.as_str(), plan.report), ("tcp://192.0.2.7:8050", None));
        assert_eq!(plan.hosts.to_string(), "laptop,laptop-spare-[0-2]");
        let join = plan.join.unwrap();
        assert_eq!(join.ranks.to_string(), "1-2");
        let remote = join.remote.unwrap();
        assert_eq!((remote.addresses, remote.invitation), (vec!["192.0.2.7:8050".into()], None));
        let lead = BrokerFacts { version: "0.88.0".into(), uid: 1234, cores: 8 };
        assert_eq!(remote.standalone_lead, Some(lead));

        let keys: Vec<_> = pool.secret.data.as_ref().unwrap().keys().collect();
        assert_eq!(keys, ["curve.cert"]);
        let spec = pool.job.spec.unwrap();
        assert_eq!((spec.completions, spec.active_deadline_seconds), (Some(2), Some(7200)));
        let pod = spec.template.spec.unwrap();
        assert_eq!(pod.containers[0].image.as_deref(), Some("flux:1"));
        let context = pod.security_context.unwrap();
        assert_eq!((context.run_as_user, context.run_as_group), (Some(1234), Some(1234)));
        let volumes = pod.volumes.unwrap();
        let mut named: Vec<String> = (volumes.iter())
            .filter_map(|volume| volume.projected.as_ref()?.sources.as_ref())
            .flatten()
            .filter_map(|source| source.secret.as_ref().map(|secret| secret.name.clone()))
            .collect();
        named.extend(volumes.iter().filter_map(|it| it.secret.as_ref()?.secret_name.clone()));
        assert_eq!(named, [pool.secret.metadata.name.unwrap()], "its pods need nothing else");
    }
}
