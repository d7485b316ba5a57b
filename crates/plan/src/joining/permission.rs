//! Whether a broker of a joiner may start: asked by its agent before it does.
//!
//! Flux checks less, and later: a broker that says hello with the name of a live rank replaces its
//! broker before even the version is compared.

use flux_operator_api::{MiniCluster, Reason};
use flux_operator_wire::{BrokerFacts, BrokerMismatch, JoinAnswer, JoinRequest};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::lease::held_by;
use super::lender::{LenderView, may_join};
use crate::cluster::Cluster;
use crate::gpus::gpus;
use crate::rank_table::RankTable;
use crate::steps::with_booted_hosts_of;
use crate::valid::{Valid, runner};

/// The decision about one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// It may start.
    Granted,
    /// Not now, for this reason; the agent asks again.
    Denied(Reason, String),
    /// Its pod was created for another rank or another table.
    Outdated(String),
}

impl Permission {
    /// The answer to the agent.
    pub fn to_answer(&self) -> JoinAnswer {
        match self {
            Permission::Granted => JoinAnswer::Start,
            Permission::Denied(_, message) => JoinAnswer::Wait(message.clone()),
            Permission::Outdated(message) => JoinAnswer::Replace(message.clone()),
        }
    }

    /// Short and bounded: the metric's label.
    pub fn result(&self) -> &'static str {
        match self {
            Permission::Granted => "granted",
            Permission::Denied(reason, _) => reason.as_str(),
            Permission::Outdated(_) => "outdated",
        }
    }
}

/// Decides whether a broker of `joiner` may start. Only a [`Permission::Denied`] may be decided from
/// a cache. All else counts only if the lender's MiniCluster was read from the API server after the
/// request arrived: a lease in a cache may have been given back, or be missing.
pub fn permission(
    joiner: &MiniCluster,
    lender: Option<&LenderView>,
    request: &JoinRequest,
) -> Permission {
    let denied = |reason: Reason, message: String| Permission::Denied(reason, message);
    let Some(lender) = lender else {
        return denied(Reason::LenderMissing, "its lender does not exist".into());
    };
    let Some(cluster) = booted_cluster(&lender.minicluster, lender.job.as_deref()) else {
        return denied(Reason::LenderNotReady, "the lender's manifest is refused".into());
    };
    if !may_join(&lender.minicluster, joiner) {
        let message = "the lender does not allow its namespace";
        return denied(Reason::NotAllowed, message.into());
    }
    let table = cluster.ranks.hash();
    if request.table != table {
        return Permission::Outdated("the lender's rank table has changed".into());
    }
    let uid = joiner.uid().unwrap_or_default();
    let held = held_by(&uid, &table, &lender.minicluster);
    let index = usize::try_from(request.index).unwrap_or(usize::MAX);
    match held.active.nth(index) {
        Some(rank) if rank == request.rank => {}
        Some(_) => return Permission::Outdated("it has another rank now".into()),
        None => return denied(Reason::Leaving, "its rank is not leased any more".into()),
    }
    let Some(lead) = lender.report.as_ref().and_then(|report| report.state.lead.as_ref()) else {
        let message = "the lender's lead has not reported its version and user yet";
        return denied(Reason::LenderNotReady, message.into());
    };
    match mismatch(Some(joiner), &cluster.ranks, lead, request) {
        Some((reason, message)) => denied(reason, message),
        None => Permission::Granted,
    }
}

/// The reasons of [`mismatch`].
pub(super) const MISMATCHES: [Reason; 4] =
    [Reason::VersionMismatch, Reason::FluxTooOld, Reason::UidMismatch, Reason::FewerCores];

/// In what a broker differs from the lead so that it cannot join. Without its MiniCluster its GPUs
/// are not known.
pub(super) fn mismatch(
    joiner: Option<&MiniCluster>,
    table: &RankTable,
    lead: &BrokerFacts,
    request: &JoinRequest,
) -> Option<(Reason, String)> {
    if let Some(mismatch) = request.facts.mismatch(lead) {
        let reason = match &mismatch {
            BrokerMismatch::UnknownVersion { .. } | BrokerMismatch::Version { .. } => {
                Reason::VersionMismatch
            }
            BrokerMismatch::TooOld(_) => Reason::FluxTooOld,
            BrokerMismatch::User { .. } => Reason::UidMismatch,
        };
        return Some((reason, mismatch.to_string()));
    }
    let cores = request.facts.cores;
    let slot = table.slot(request.rank)?;
    let needed_gpus = slot.resources.gpus.unwrap_or_default();
    let gpus = joiner.map_or(needed_gpus, |joiner| {
        runner(&joiner.spec.containers).and_then(gpus).unwrap_or_default()
    });
    let expected =
        [("cores", cores, slot.resources.cores.unwrap_or(lead.cores)), ("gpus", gpus, needed_gpus)];
    let (field, has, needs) = expected.into_iter().find(|(_, has, needs)| has < needs)?;
    let message = format!(
        "pod {} has {has} {field}, and the lender expects {needs} of rank {}: declare a pool with \
         {field} in the lender's flux.bursting.clusters, or set its flux.resources.{field}, and \
         create the lender again",
        request.index, request.rank
    );
    Some((Reason::FewerCores, message))
}

/// The cluster that a lender was booted as, with this Job.
pub(super) fn booted_cluster(lender: &MiniCluster, job: Option<&Job>) -> Option<Cluster> {
    let valid = Valid::check(lender.clone()).ok()?;
    Cluster::of(&with_booted_hosts_of(valid, job)).ok()
}
