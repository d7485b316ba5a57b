//! Tables of any size.

use crate::fixture::*;
use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_flux::Topology;
use flux_operator_plan::{FINALIZER, LenderView, Object, Observed, Outcome, Step, decide};
use flux_operator_wire::BootPlan;
use proptest::prelude::*;
use serde_json::{Value, json};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    /// B1: one table, one configuration and one R on every side, also with 300 ranks, and no leased
    /// rank connects to another broker than the lead.
    #[test]
    fn b1_table_configuration_and_resources_agree_on_every_side(
        size in 1_i32..20,
        beyond in 0_i32..100,
        pools in proptest::collection::vec((1_i32..60, 0_i32..9), 0..3),
        spare in 1_i32..60,
        wanted in 1_i32..40,
    ) {
        let pools: Vec<Value> = pools
            .iter()
            .enumerate()
            .map(|(index, (size, cores))| {
                json!({ "name": format!("pool-{index}"), "size": size, "cores": cores })
            })
            .collect();
        let bursting = json!({ "clusters": pools, "spareRanks": spare });
        let spec = json!({ "size": size, "maxSize": size + beyond, "flux": { "bursting": bursting } });
        let view = lender(&json!({ "spec": spec }));
        let joiner = joiner(&json!({ "spec": { "size": wanted },
            "metadata": { "finalizers": [FINALIZER] } }));
        let observed = observed_by_lender(&view, std::slice::from_ref(&joiner), None);
        let decision = decide(&view.minicluster, &observed, &settings());
        let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
        prop_assume!(!status.leases.is_empty());
        let fresh = MiniCluster { status: None, ..(*view.minicluster).clone() };
        let home = boot_plan(&fresh, &Observed::empty(after(0)));
        let mut granted = (*view.minicluster).clone();
        granted.status.as_mut().unwrap().leases = status.leases;
        let granted = LenderView { minicluster: Arc::new(granted), ..view };
        let joined = boot_plan(&joiner, &observed_by_joiner(Some(granted), None));
        prop_assert_eq!(&joined.hosts, &home.hosts);
        prop_assert_eq!(&joined.config, &home.config);
        prop_assert_eq!(&joined.host_groups, &home.host_groups);
        prop_assert_eq!(&joined.broker.topology, &home.broker.topology);
        prop_assert_eq!(&joined.lead, &home.lead);
        let in_groups: Vec<String> =
            home.host_groups.iter().flat_map(|group| group.hosts.iter().collect::<Vec<_>>()).collect();
        prop_assert_eq!(in_groups, home.hosts.iter().collect::<Vec<_>>(), "R lists every host once");
        let topology: Topology = home.broker.topology.parse().unwrap();
        let total = u32::try_from(home.hosts.len()).unwrap();
        let ranks = joined.join.unwrap().ranks;
        prop_assert_eq!(ranks.len(), usize::try_from(wanted).unwrap());
        for rank in ranks.iter() {
            prop_assert!(rank >= u32::try_from(size).unwrap() && rank < total);
            prop_assert_eq!(topology.parent(rank, total), Some(0));
        }
    }
}

/// The boot plan in the ConfigMap that is created.
fn boot_plan(minicluster: &MiniCluster, observed: &Observed) -> BootPlan {
    let decision = decide(minicluster, observed, &settings());
    let data = decision.steps.iter().find_map(|step| match step {
        Step::CreateOrApply(Object::ConfigMap(map)) => map.data.clone(),
        _ => None,
    });
    serde_json::from_str(&data.unwrap()["boot.json"]).unwrap()
}
