//! The configuration that an agent of a joiner writes, read by Flux's own rules: every host has the rank
//! that it has on the lender.

use flux_operator_api::MiniCluster;
use flux_operator_flux::{Bootstrap, HostEntry, RankHost};
use flux_operator_testkit::merge;
use flux_operator_wire::BootPlan;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::file::{fresh, secrets};
use crate::fixture::*;

/// The hosts of the `[bootstrap]` table that an agent writes (crates/agent/src/config.rs), as Flux
/// resolves them.
fn resolved(plan: &BootPlan) -> Vec<RankHost> {
    let lead = plan.hosts.nth(0).unwrap().parse().unwrap();
    let lead = HostEntry { connect: Some(plan.lead.clone()), ..HostEntry::new(lead) };
    let bootstrap = Bootstrap {
        curve_cert: Some("/c".into()),
        default_port: Some(plan.port),
        default_bind: Some(plan.bind.clone()),
        default_connect: Some(plan.connect.clone()),
        enable_ipv6: None,
        hosts: vec![lead, HostEntry::new(plan.hosts.clone())],
    };
    bootstrap.ranks().unwrap()
}

fn assert_same_ranks(home: &BootPlan, away: &BootPlan, lead: &str) -> Result<(), TestCaseError> {
    let (home, away) = (resolved(home), resolved(away));
    prop_assert_eq!(home.len(), away.len());
    for (rank, (home, away)) in home.iter().zip(&away).enumerate() {
        prop_assert_eq!(&home.name, &away.name, "rank {}", rank);
        prop_assert_eq!((&home.bind, &home.parent), (&away.bind, &away.parent));
    }
    prop_assert_eq!(away[0].connect.as_deref(), Some(lead));
    Ok(())
}

/// A lender of any shape: sizes, then pools and spare ranks, or a list of hosts.
fn bursting() -> impl Strategy<Value = (i32, i32, Value)> {
    let name = "[a-z]([-a-z0-9]{0,6}[a-z0-9])?";
    let pool = (name, 1..7_i32, 0..9_i32, proptest::option::of(0..3_i32));
    let pools = proptest::collection::vec(pool, 0..4);
    let others = (pools, 0..5_i32).prop_map(|(pools, spare)| {
        let pool = |(index, (name, size, cores, gpus))| {
            // Names of pools differ, and are not the lender's.
            let mut pool =
                json!({ "name": format!("{name}{index}"), "size": size, "cores": cores });
            if let Some(gpus) = gpus {
                pool["gpus"] = json!(gpus);
            }
            pool
        };
        let pools: Vec<Value> = pools.into_iter().enumerate().map(pool).collect();
        json!({ "clusters": pools, "spareRanks": spare })
    });
    let lists = proptest::sample::select(vec![
        "vm-[001-012]",
        "a-[0-3],b[1,3,5],c",
        "lender-spare-[0-3]",
        "x.example.org,y.example.org,z[08-11]q",
    ]);
    let lists = lists.prop_map(|list| json!({ "hostlist": list }));
    (1..6_i32, 0..8_i32, prop_oneof![3 => others, 1 => lists]).prop_map(
        |(size, beyond, mut other)| {
            if let Some(list) = other["hostlist"].as_str() {
                // A user's list begins with the lender's own hosts.
                other["hostlist"] = json!(format!("lender-[0-{}],{list}", size + beyond));
            }
            (size, size + beyond, other)
        },
    )
}

fn lender(size: i32, max_size: i32, bursting: &Value) -> Lender {
    let mut all = json!({ "expose": {} });
    merge(&mut all, bursting);
    let spec = json!({ "size": size, "maxSize": max_size, "interactive": true,
        "flux": { "bursting": all } });
    let mut lender = Lender::of(minicluster("lender", &json!({ "spec": spec })));
    lender.settle();
    lender
}

fn joiner_of(lender: &Lender, invitation: &str) -> MiniCluster {
    let file = flux_operator_plan::invitation_file(
        &lender.minicluster,
        lender.observed.job.as_deref(),
        invitation,
        "joiner",
        secrets(),
    );
    let metadata = json!({ "namespace": "theirs", "uid": "joiner-uid" });
    merged(&file.unwrap().minicluster, &json!({ "metadata": metadata }))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn b1_every_host_has_the_rank_that_it_has_on_the_lender(
        (size, max_size, mut bursting) in bursting(),
        wanted in proptest::collection::vec(1..5_i32, 1..4),
    ) {
        let invitations = wanted.iter().enumerate();
        let invitations = invitations.map(|(index, ranks)| invitation(&format!("i{index}"), *ranks, END));
        bursting["invitations"] = invitations.collect();
        let lender = lender(size, max_size, &bursting);
        let home = boot_plan(&fresh(&lender));
        let leases = lender.minicluster.status.as_ref().unwrap().leases.clone();
        let mut all = flux_operator_flux::IdSet::new();
        for lease in &leases {
            let away = boot_plan(&joiner_of(&lender, &lease.name));
            prop_assert_eq!(away.hosts.to_string(), home.hosts.to_string());
            prop_assert_eq!(&away.config, &home.config);
            prop_assert_eq!(&away.broker.topology, &home.broker.topology);
            let port = lease.invitation.as_ref().unwrap().port;
            assert_same_ranks(&home, &away, &format!("tcp://203.0.113.1:{port}"))?;
            let ranks = away.join.unwrap().ranks;
            prop_assert_eq!(ranks.to_string(), &*lease.ranks);
            prop_assert!(ranks.iter().all(|rank| rank >= u32::try_from(size).unwrap()));
            prop_assert!(all.intersection(&ranks.to_set()).is_empty());
            all = all.union(&ranks.to_set());
        }
        // All of an invitation or nothing: one that fits in what is left has its ranks.
        let free = home.hosts.len() - usize::try_from(size).unwrap() - usize::try_from(all.len()).unwrap();
        for (index, ranks) in wanted.iter().enumerate() {
            let has = leases.iter().any(|it| it.name == format!("i{index}"));
            prop_assert!(has || usize::try_from(*ranks).unwrap() > free);
        }
    }

    /// The same pools, or the same list of hosts, in a manifest for the Go operator.
    #[test]
    fn b1_every_host_has_its_rank_in_the_go_operators_way(
        (size, max_size, bursting) in bursting(),
        by_address in any::<bool>(),
        by_list in any::<bool>(),
        choice in any::<prop::sample::Index>(),
    ) {
        let pools = bursting["clusters"].as_array().cloned().unwrap_or_default();
        prop_assume!(!pools.is_empty());
        // The Go operator has no spare ranks.
        let lender = lender(size, max_size, &json!({ "clusters": pools }));
        let home = boot_plan(&fresh(&lender));
        let pool = choice.get(&pools);
        let (name, brokers) = (pool["name"].as_str().unwrap(), pool["size"].as_i64().unwrap());
        let names = home.hosts.to_string();
        let names = if by_address { format!("203.0.113.9,{}", home.hosts.slice(1, home.hosts.len())) } else { names };
        let mut theirs = if by_list { json!({ "hostlist": names }) } else { json!({ "clusters": pools }) };
        theirs["leadBroker"] = json!({ "address": "203.0.113.9", "name": "lender", "size": max_size });
        let flux = json!({ "curveCertSecret": "theirs", "bursting": theirs });
        let joiner = minicluster(name, &json!({ "spec": { "size": brokers, "flux": flux } }));
        let away = boot_plan(&joiner);
        prop_assert_eq!(away.hosts.to_string(), home.hosts.to_string());
        assert_same_ranks(&home, &away, "tcp://203.0.113.9:8050")?;
        let ranks = away.join.unwrap().ranks;
        for (index, rank) in ranks.iter().enumerate() {
            let host = home.hosts.nth(rank as usize);
            prop_assert_eq!(host, Some(format!("{name}-{index}")));
        }
        prop_assert_eq!(ranks.len(), usize::try_from(brokers).unwrap());
    }
}

/// F3: the lead's entry names a host that the next one names too.
#[test]
fn f3_a_host_that_is_named_twice_keeps_its_first_rank_and_gets_all_keys() {
    let lender = Lender::settled(&one_invitation());
    let plan = boot_plan(&joiner_of(&lender, "a"));
    let hosts = resolved(&plan);
    assert_eq!(hosts.len(), 10);
    assert_eq!(hosts[0].name, "lender-0");
    assert_eq!(hosts[0].connect.as_deref(), Some("tcp://203.0.113.1:30050"), "of its first entry");
    assert_eq!(hosts[0].bind.as_deref(), Some("tcp://*:8050"), "of the defaults");
    assert_eq!(
        hosts[1].connect.as_deref(),
        Some("tcp://lender-1.joiner.theirs.svc.cluster.local:8050")
    );
    let twice = Bootstrap {
        curve_cert: Some("/c".into()),
        hosts: vec![
            HostEntry {
                connect: Some("tcp://a:1".into()),
                ..HostEntry::new("lender-0".parse().unwrap())
            },
            HostEntry::new("lender-[0-1]".parse().unwrap()),
            HostEntry {
                connect: Some("tcp://b:2".into()),
                bind: Some("tcp://*:3".into()),
                ..HostEntry::new("lender-[0-1]".parse().unwrap())
            },
        ],
        ..Bootstrap::default()
    };
    let ranks = twice.ranks().unwrap();
    assert_eq!(ranks.len(), 2);
    assert_eq!(ranks[0].connect.as_deref(), Some("tcp://a:1"), "the first counts");
    assert_eq!(ranks[0].bind.as_deref(), Some("tcp://*:3"), "the last one adds what is missing");
}
