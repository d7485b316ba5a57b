//! Which pod of a MiniCluster has a rank. A joiner's ranks are those of the instance it joins, so
//! they are not the indices of its pods.

use anyhow::{Context, Result, bail};
use flux_operator_api::MiniCluster;
use flux_operator_flux::RankList;
use kube::ResourceExt;

/// A pod of a MiniCluster, by its completion index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RankPod {
    /// The index.
    pub(super) index: u32,
    /// The pod in messages, such as `rank 2 of fs`.
    pub(super) described: String,
}

impl RankPod {
    /// The pod that has a rank; without a rank the first pod, which is the lead unless it is a
    /// joiner's.
    pub(super) fn find(minicluster: &MiniCluster, rank: Option<u32>) -> Result<RankPod> {
        match minicluster.spec.is_joiner() {
            true => of_joiner(minicluster, rank),
            false => of_own_instance(minicluster, rank.unwrap_or(0)),
        }
    }
}

fn of_joiner(joiner: &MiniCluster, rank: Option<u32>) -> Result<RankPod> {
    let name = joiner.name_any();
    let Some(rank) = rank else {
        return Ok(RankPod { index: 0, described: format!("the first pod of {name}") });
    };
    let ranks = joiner.status.as_ref().map(|status| status.ranks.as_str()).unwrap_or_default();
    if ranks.is_empty() {
        bail!("{name} has no rank {rank}\nhint: no ranks are leased to it now");
    }
    let parsed: RankList = ranks.parse().with_context(|| format!("status.ranks of {name}"))?;
    let index = parsed.iter().position(|it| it == rank).and_then(|it| u32::try_from(it).ok());
    let Some(index) = index else {
        bail!("{name} has no rank {rank}\nhint: its ranks are {}", parsed.to_set());
    };
    Ok(RankPod { index, described: format!("rank {rank} of {name}") })
}

fn of_own_instance(minicluster: &MiniCluster, rank: u32) -> Result<RankPod> {
    let (name, spec) = (minicluster.name_any(), &minicluster.spec);
    let mut leases = minicluster.status.iter().flat_map(|status| &status.leases);
    if let Some(lease) = leases.find(|lease| lease.rank_list().iter().any(|it| it == rank)) {
        let (namespace, holder) = (&lease.namespace, &lease.name);
        bail!(
            "rank {rank} of {name} is leased to {namespace}/{holder}\n\
             hint: name that MiniCluster instead: -n {namespace} {holder} --rank {rank}"
        );
    }
    let last = spec.size.max(spec.max_size.unwrap_or_default()) - 1;
    if i64::from(rank) > i64::from(last) {
        bail!("rank {rank} of {name} has no pod of {name}\nhint: its own ranks are 0 to {last}");
    }
    Ok(RankPod { index: rank, described: format!("rank {rank} of {name}") })
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::minicluster;
    use super::*;
    use serde_json::json;

    fn found(minicluster: &MiniCluster, rank: Option<u32>) -> Result<u32, String> {
        RankPod::find(minicluster, rank).map(|pod| pod.index).map_err(|error| error.to_string())
    }

    #[test]
    fn the_rank_of_a_cluster_with_an_own_instance_is_the_index_of_its_pod() {
        let lease = json!({ "ranks": "5,3", "holder": "u", "namespace": "far", "name": "b",
            "table": "t", "since": "2026-01-01T00:00:00Z", "state": "Active" });
        let spec = json!({ "size": 2, "maxSize": 4, "containers": [{}] });
        let fs = minicluster(spec, json!({ "leases": [lease] }));
        assert_eq!((found(&fs, None), found(&fs, Some(2))), (Ok(0), Ok(2)));
        assert_eq!(
            found(&fs, Some(4)),
            Err("rank 4 of fs has no pod of fs\nhint: its own ranks are 0 to 3".into())
        );
        for rank in [3, 5] {
            let expected = format!(
                "rank {rank} of fs is leased to far/b\n\
                 hint: name that MiniCluster instead: -n far b --rank {rank}"
            );
            assert_eq!(found(&fs, Some(rank)), Err(expected));
        }
    }

    #[test]
    fn the_ranks_of_a_joiner_are_those_of_the_instance_it_joins() {
        let joiner = |ranks: &str| {
            let spec = json!({ "size": 3, "containers": [{}], "flux": { "connection": "first" } });
            minicluster(spec, json!({ "ranks": ranks }))
        };
        let joined = joiner("4-5,2");
        assert_eq!(
            [None, Some(4), Some(5), Some(2)].map(|rank| found(&joined, rank)),
            [Ok(0), Ok(0), Ok(1), Ok(2)]
        );
        assert_eq!(
            found(&joined, Some(0)),
            Err("fs has no rank 0\nhint: its ranks are 2,4-5".into())
        );
        assert_eq!(
            found(&joiner(""), Some(2)),
            Err("fs has no rank 2\nhint: no ranks are leased to it now".into())
        );
    }
}
