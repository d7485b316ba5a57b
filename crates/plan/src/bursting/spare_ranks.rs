//! Spare ranks by policy: a MiniCluster that BurstPolicies select is started with ranks for their
//! nodes.
//!
//! The rank table is fixed when the cluster is started, so policies count only then. The number is
//! recorded on the Job with the rest of the table, and does not change with the policies.

use flux_operator_api::MiniCluster;
use flux_operator_api::burst::BurstPolicy;

use super::policy::selects;
use crate::observed::Observed;
use crate::status::finished_at;
use crate::valid::Valid;

/// The largest number of spare ranks that policies give: every rank is listed in the configuration of
/// every broker, down or not.
const MAX_BURST_RANKS: i32 = 1024;

/// How many spare ranks `policies` give a MiniCluster: the nodes that those of its namespace that
/// select it may have, together. A policy whose selector is not valid selects nothing. One that runs all
/// jobs in instances of their own leases no ranks: with ranks for its nodes, jobs that need as many
/// would not be beyond the table.
pub fn burst_ranks<'a>(
    minicluster: &MiniCluster,
    policies: impl IntoIterator<Item = &'a BurstPolicy>,
) -> i32 {
    let nodes = policies
        .into_iter()
        .filter(|policy| policy.spec.isolated != Some(true) && selects(policy, minicluster))
        .map(|policy| policy.spec.limits.nodes.max(0));
    nodes.fold(0, i32::saturating_add).min(MAX_BURST_RANKS)
}

/// Whether the API server has to be asked for the policies of a MiniCluster, because it may be started now, and
/// others are meant to join it. The watch of policies may be behind.
pub fn must_list_policies(minicluster: &MiniCluster, observed: &Observed) -> bool {
    let flux = minicluster.spec.flux.as_ref();
    let bursting = flux.and_then(|flux| flux.bursting.as_ref());
    let is_over =
        minicluster.metadata.deletion_timestamp.is_some() || finished_at(minicluster).is_some();
    observed.job.is_none() && !is_over && bursting.is_some_and(|it| it.spare_ranks.is_none())
}

/// The MiniCluster with the spare ranks that policies give it, if it has not been started yet. The
/// user's own number takes precedence, and a manifest stays valid.
pub(crate) fn with_burst_ranks(minicluster: Valid, observed: &Observed) -> Valid {
    let flux = minicluster.spec.flux.as_ref();
    let is_set = flux.and_then(|flux| flux.bursting.as_ref()?.spare_ranks).is_some();
    // With a configuration of the user's own, no broker can join that it does not list.
    let has_own_config = flux.is_some_and(|flux| !flux.broker_config.is_empty());
    let ranks = observed.burst_ranks.min(MAX_BURST_RANKS);
    let has_enough = minicluster.spec.spare_ranks() >= ranks;
    if observed.job.is_some() || is_set || has_own_config || has_enough {
        return minicluster;
    }
    minicluster.with_spare_ranks(ranks)
}

#[cfg(test)]
mod tests {
    use flux_operator_testkit::{merge, smallest_minicluster};
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn policy(nodes: i32, patch: &Value) -> BurstPolicy {
        let mut policy = json!({
            "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
            "metadata": { "name": "p", "namespace": "hpc" },
            "spec": { "selector": { "matchLabels": { "team": "a" } }, "limits": { "nodes": nodes },
                "targets": [{ "name": "t", "maxNodes": 4, "cluster": {} }] },
        });
        merge(&mut policy, patch);
        serde_json::from_value(policy).unwrap()
    }

    /// It costs a request, which only those make that others are meant to join.
    #[test]
    fn policies_are_listed_before_a_cluster_is_started_that_others_may_join() {
        let must_list = |patch: &Value| {
            let mut manifest = smallest_minicluster("fs");
            merge(&mut manifest, patch);
            let minicluster: MiniCluster = serde_json::from_value(manifest).unwrap();
            must_list_policies(&minicluster, &Observed::empty(Timestamp::UNIX_EPOCH))
        };
        let bursting = |bursting: Value| json!({ "spec": { "flux": { "bursting": bursting } } });
        let exposed = bursting(json!({ "expose": { "type": "NodePort" } }));
        assert!(must_list(&exposed));
        assert!(!must_list(&json!({})));
        assert!(!must_list(&bursting(json!({ "spareRanks": 4 }))), "its user says how many");
        let mut deleted = exposed;
        merge(
            &mut deleted,
            &json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
        );
        assert!(!must_list(&deleted));
    }

    #[test]
    fn the_policies_that_select_a_cluster_count() {
        let mut manifest = smallest_minicluster("fs");
        let metadata = json!({ "namespace": "hpc", "labels": { "team": "a", "x": "y" } });
        merge(&mut manifest, &json!({ "metadata": metadata }));
        let minicluster: MiniCluster = serde_json::from_value(manifest).unwrap();
        let selector = |selector: Value| json!({ "spec": { "selector": selector } });
        let team = |team: &str| selector(json!({ "matchLabels": { "team": team } }));
        let expression = |operator: &str| {
            let values = json!(["a", "b"]);
            let expression = json!({ "key": "team", "operator": operator, "values": values });
            selector(json!({ "matchLabels": null, "matchExpressions": [expression] }))
        };
        let elsewhere = json!({ "metadata": { "namespace": "other" } });
        let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let isolated = |isolated: bool| json!({ "spec": { "isolated": isolated } });
        let all = selector(json!({ "matchLabels": null }));
        for (patches, expected) in [
            (vec![], 0),
            (vec![json!({})], 10),
            (vec![all, team("a")], 20),
            (vec![team("b"), expression("In"), expression("NotIn")], 10),
            (vec![expression("Equal")], 0),
            (vec![elsewhere, deleted], 0),
            (vec![isolated(true)], 0),
            (vec![isolated(true), isolated(false)], 10),
        ] {
            let policies: Vec<_> = patches.iter().map(|patch| policy(10, patch)).collect();
            assert_eq!(burst_ranks(&minicluster, &policies), expected, "{patches:?}");
        }
        let many = [policy(1000, &json!({})), policy(i32::MAX, &json!({}))];
        assert_eq!(burst_ranks(&minicluster, &many), MAX_BURST_RANKS);
    }
}
