//! A cluster as its lead reports it.

use flux_operator_api::MiniCluster;
use flux_operator_api::view::{Cluster, InstanceJob, InstanceJobs, JobCounts, SlotRange};
use flux_operator_flux::{HostList, IdSet};
use flux_operator_wire::PendingJob;
use kube::ResourceExt;

use crate::last_report::LastReport;
use crate::observed::Observed;
use crate::rank_table::{self, SlotOwner};
use crate::stamp::booted_rank_table;

/// A MiniCluster, with what its lead has reported.
pub fn cluster(minicluster: &MiniCluster, observed: &Observed) -> Cluster {
    let (report, now) = (observed.report.as_ref(), observed.now);
    let status = minicluster.status.clone().unwrap_or_default();
    let fresh = report.filter(|report| !report.is_stale(now)).map(|report| &report.state);
    let online = fresh.and_then(|state| state.online.as_ref());
    let table = booted_rank_table(minicluster, observed.job.as_deref()).ok();
    let slots = table.as_ref().map(|table| {
        table.slots.iter().map(|slots| slot_view(slots, &table.hosts, online)).collect()
    });
    let seconds = |report: &LastReport| now.duration_since(report.received).as_secs().max(0);
    Cluster {
        namespace: minicluster.namespace().unwrap_or_default(),
        name: minicluster.name_any(),
        phase: status.phase,
        ready: status.ready,
        joined: status.joined,
        slots: slots.unwrap_or_default(),
        jobs: fresh.and_then(|state| state.jobs).map(|jobs| JobCounts {
            pending: jobs.pending,
            running: jobs.running,
            inactive: jobs.inactive,
        }),
        reported_seconds_ago: report.map(seconds),
        last_error: fresh.map(|state| state.last_error.clone()).unwrap_or_default(),
    }
}

fn slot_view(slots: &rank_table::SlotRange, hosts: &HostList, online: Option<&IdSet>) -> SlotRange {
    let ranks = slots.ranks();
    let mut names = HostList::new();
    for host in ranks.iter().filter_map(|rank| hosts.nth(usize::try_from(rank).ok()?)) {
        // The names come from a valid host list, so each is valid.
        let _ = names.push(&host);
    }
    let (owner, pool) = match &slots.owner {
        SlotOwner::Job => ("Job", ""),
        SlotOwner::Pool(name) => ("Pool", name.as_str()),
        SlotOwner::Unassigned => ("Unassigned", ""),
    };
    SlotRange {
        owner: owner.into(),
        pool: pool.into(),
        online: online.map(|online| ranks.difference(&ranks.difference(online)).to_string()),
        ranks: ranks.to_string(),
        hosts: names.to_string(),
    }
}

/// The jobs that wait in an instance, as its lead has listed them.
pub fn instance_jobs(listed: Option<Vec<PendingJob>>) -> InstanceJobs {
    let items = listed.iter().flatten().map(|job| InstanceJob {
        id: job.id,
        nodes: job.nodes,
        tasks: job.tasks,
        submitted: job.submitted,
        attributes: job.attributes.clone(),
    });
    InstanceJobs { items: items.collect(), listed: listed.is_some() }
}
