//! The annotations of a Job about its creation: the spec and the build it was created from, and
//! how many hosts its brokers were started with.

use flux_operator_api::minicluster::{Bursting, BurstingCluster};
use flux_operator_api::{MiniCluster, MiniClusterSpec};
use flux_operator_wire::Resources;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::kubernetes::Rendering;
use crate::rank_table::{RankTable, RankTableError};

const SPEC_ANNOTATION: &str = "flux-framework.org/spec";
const VERSION_ANNOTATION: &str = "flux-framework.org/version";
/// The annotation with the number of hosts of the cluster's own.
pub(crate) const RANKS_ANNOTATION: &str = "flux-framework.org/ranks";
const POOL_SIZE_ANNOTATION: &str = "flux-framework.org/pool-size";
const TABLE_ANNOTATION: &str = "flux-framework.org/table";

/// Fields that may change at any time: the operator reads them in every reconciliation, or
/// they can change in an existing Job.
const MUTABLE_FIELDS: [&str; 10] = [
    "cleanup",
    "deadlineSeconds",
    "jobLabels",
    "minSize",
    "queue",
    "readyTimeoutSeconds",
    "restart",
    "size",
    "suspend",
    "ttlSecondsAfterFinished",
];

/// The depth to which fields are distinguished: `containers[0].image`, `flux.container`.
const DEPTH: usize = 2;

/// Adds the annotations to a Job that is about to be created. `requested` is the spec that later ones
/// are compared with: the one that is rendered may have spare ranks by policy.
pub(crate) fn stamp(job: &mut Job, rendering: &Rendering<'_>, requested: &MiniClusterSpec) {
    let spec = &rendering.minicluster.spec;
    let fingerprint = fingerprint(requested);
    let annotations = job.annotations_mut();
    annotations.insert(SPEC_ANNOTATION.into(), fingerprint.to_text());
    annotations.insert(VERSION_ANNOTATION.into(), this_version());
    if rendering.cluster.joining.is_some() {
        // Its ranks are those of another cluster's table.
        return;
    }
    annotations.insert(RANKS_ANNOTATION.into(), rendering.cluster.ranks.max_size().to_string());
    let bursting = spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    if bursting.is_some_and(|bursting| bursting.clusters.iter().any(|pool| pool.size == 0)) {
        annotations.insert(POOL_SIZE_ANNOTATION.into(), spec.size.to_string());
    }
    let others = OtherRanks::of(spec, &rendering.cluster.broker.topology);
    let others = serde_json::to_string(&others).expect("text and numbers are JSON");
    annotations.insert(TABLE_ANNOTATION.into(), others);
}

/// The part of the rank table that is for others, and the tree of brokers, as they were booted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OtherRanks {
    topology: String,
    hostlist: String,
    clusters: Vec<BurstingCluster>,
    spare_ranks: i32,
}

impl OtherRanks {
    fn of(spec: &MiniClusterSpec, topology: &str) -> OtherRanks {
        let bursting = spec.flux.as_ref().and_then(|flux| flux.bursting.clone());
        let Bursting {
            hostlist,
            clusters,
            spare_ranks: _,
            allowed_namespaces: _,
            lead_broker: _,
            expose: _,
            invitations: _,
        } = bursting.unwrap_or_default();
        let topology = topology.to_owned();
        OtherRanks { topology, hostlist, clusters, spare_ranks: spec.spare_ranks() }
    }

    /// What is noted on a Job; `None` if an earlier build has created it.
    fn noted(job: &Job) -> Option<OtherRanks> {
        serde_json::from_str(job.annotations().get(TABLE_ANNOTATION)?).ok()
    }

    /// Replaces the ranks for others in a spec, and the tree.
    fn restore(self, spec: &mut MiniClusterSpec) {
        let OtherRanks { topology, hostlist, clusters, spare_ranks } = self;
        let flux = spec.flux.get_or_insert_default();
        flux.topology = topology;
        let bursting = flux.bursting.get_or_insert_default();
        (bursting.hostlist, bursting.clusters) = (hostlist, clusters);
        bursting.spare_ranks = Some(spare_ranks);
    }
}

/// Whether brokers of other clusters can join the instance of a Job: agents of earlier builds do
/// not report what is needed to compare the brokers.
pub(crate) fn can_lend(job: &Job) -> bool {
    OtherRanks::noted(job).is_some()
}

/// This program's release and build. Builds of one release may write different objects, and an
/// agent refuses a boot plan that has an unknown field.
fn this_version() -> String {
    format!("{}+{}", env!("CARGO_PKG_VERSION"), env!("BUILD"))
}

/// Fields of a spec that differ from those that the Job was created from.
pub(crate) fn changed_fields(job: &Job, now: &MiniClusterSpec) -> Vec<String> {
    let made_from =
        job.annotations().get(SPEC_ANNOTATION).and_then(|text| Fingerprint::parse(text));
    made_from.map(|then| then.differences(&fingerprint(now))).unwrap_or_default()
}

/// Whether this very build created the Job. What agents of another build read must not be
/// rewritten by this one.
pub(crate) fn is_this_build(job: &Job) -> bool {
    job.annotations().get(VERSION_ANNOTATION).is_some_and(|version| *version == this_version())
}

/// The sizes that the rank table of a cluster was made from when it was started. The spec may have
/// changed since: the table has not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BootedSizes {
    /// The number of hosts of its own.
    pub(crate) own: i32,
    /// The size of pools that do not set one. An earlier build did not note it.
    pool: Option<i32>,
    /// The ranks for others. An earlier build did not note them, and had no spare ranks.
    others: Option<OtherRanks>,
}

impl BootedSizes {
    /// The sizes that are noted on a Job.
    pub(crate) fn of(job: &Job) -> Option<BootedSizes> {
        let number = |name| job.annotations().get(name)?.parse().ok();
        Some(BootedSizes {
            own: number(RANKS_ANNOTATION)?,
            pool: number(POOL_SIZE_ANNOTATION),
            others: OtherRanks::noted(job),
        })
    }

    /// Replaces the sizes of a spec.
    pub(crate) fn restore(self, spec: &mut MiniClusterSpec) {
        spec.max_size = Some(self.own);
        spec.size = spec.size.min(self.own);
        match self.others {
            Some(others) => others.restore(spec),
            None if spec.spare_ranks() > 0 => {
                let flux = spec.flux.get_or_insert_default();
                flux.bursting.get_or_insert_default().spare_ranks = Some(0);
            }
            None => {}
        }
        for pool in pools(spec).iter_mut().filter(|pool| pool.size == 0) {
            pool.size = self.pool.unwrap_or_default();
        }
    }
}

fn pools(spec: &mut MiniClusterSpec) -> &mut [BurstingCluster] {
    let bursting = spec.flux.as_mut().and_then(|flux| flux.bursting.as_mut());
    bursting.map_or(&mut [], |bursting| &mut bursting.clusters)
}

/// The rank table that the brokers were started with.
pub(crate) fn booted_rank_table(
    minicluster: &MiniCluster,
    job: Option<&Job>,
) -> Result<RankTable, RankTableError> {
    let mut spec = minicluster.spec.clone();
    if let Some(booted) = job.and_then(BootedSizes::of) {
        booted.restore(&mut spec);
    }
    RankTable::of(&minicluster.name_any(), &spec, Resources::default())
}

fn fingerprint(spec: &MiniClusterSpec) -> Fingerprint {
    let mut spec = spec.clone();
    // Who may join, and how, is decided anew each time.
    if let Some(bursting) = spec.flux.as_mut().and_then(|flux| flux.bursting.as_mut()) {
        bursting.allowed_namespaces.clear();
        bursting.expose = None;
        bursting.invitations.clear();
    }
    if spec.flux.as_ref().is_some_and(|it| it.bursting == Some(Bursting::default())) {
        spec.flux.iter_mut().for_each(|flux| flux.bursting = None);
    }
    Fingerprint::of(&spec, &MUTABLE_FIELDS, DEPTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mutable_fields_are_not_compared() {
        let of = |spec| fingerprint(&serde_json::from_value(spec).unwrap());
        let before = of(json!({ "containers": [{}], "flux": {} }));
        let after = of(json!({
            "containers": [{}], "size": 3, "suspend": true, "cleanup": true, "minSize": 1,
            "jobLabels": { "a": "b" }, "deadlineSeconds": 5, "restart": { "limit": 2 },
            "queue": "a", "flux": { "bursting": { "allowedNamespaces": ["b"], "expose": {},
                "invitations": [{ "name": "a", "ranks": 1, "expires": "2026-01-01T00:00:00Z" }] } },
        }));
        assert_eq!(before.differences(&after), [""; 0]);
    }

    #[test]
    fn the_table_is_the_one_that_the_cluster_was_started_with() {
        let pools = json!({ "bursting": { "clusters": [{}, { "name": "gke", "size": 1 }] } });
        let table = |spec: serde_json::Value| {
            let mut spec = spec;
            (spec["containers"], spec["flux"]) = (json!([{}]), pools.clone());
            let annotations = json!({ RANKS_ANNOTATION: "4", POOL_SIZE_ANNOTATION: "2" });
            let job = json!({ "metadata": { "annotations": annotations } });
            let minicluster = MiniCluster::new("fs", serde_json::from_value(spec).unwrap());
            let job = serde_json::from_value(job).unwrap();
            booted_rank_table(&minicluster, Some(&job)).unwrap().hosts.to_string()
        };
        let booted = "fs-[0-3],burst-0-[0-1],gke-0";
        assert_eq!(table(json!({ "size": 2, "maxSize": 4 })), booted);
        assert_eq!(table(json!({ "size": 3, "maxSize": 8 })), booted, "maxSize was raised");
        assert_eq!(table(json!({ "size": 8 })), booted, "it was scaled beyond its hosts");
    }
}
