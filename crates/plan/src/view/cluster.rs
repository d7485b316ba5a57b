//! A cluster as its lead reports it.

use flux_operator_api::MiniCluster;
use flux_operator_api::view::{Cluster, InstanceJob, InstanceJobs, JobCounts, Slots};
use flux_operator_flux::{HostList, IdSet};
use flux_operator_wire::PendingJob;
use kube::ResourceExt;

use crate::last_report::LastReport;
use crate::rank_table::{self, Owner};
use crate::seen::Seen;
use crate::stamp::as_booted;

/// A MiniCluster, with what its lead has reported.
pub fn cluster(minicluster: &MiniCluster, seen: &Seen) -> Cluster {
    let (report, now) = (seen.report.as_ref(), seen.now);
    let status = minicluster.status.clone().unwrap_or_default();
    let fresh = report.filter(|report| !report.is_old(now)).map(|report| &report.state);
    let online = fresh.and_then(|state| state.online.as_ref());
    let table = as_booted(minicluster, seen.job.as_deref()).ok();
    let slots = table
        .as_ref()
        .map(|table| table.slots.iter().map(|slots| shown(slots, &table.hosts, online)).collect());
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

fn shown(slots: &rank_table::Slots, hosts: &HostList, online: Option<&IdSet>) -> Slots {
    let ranks = slots.ranks();
    let mut names = HostList::new();
    for host in ranks.iter().filter_map(|rank| hosts.nth(usize::try_from(rank).ok()?)) {
        // The names come from a valid host list, so each is valid.
        let _ = names.push(&host);
    }
    let (owner, pool) = match &slots.owner {
        Owner::Job => ("Job", ""),
        Owner::Pool(name) => ("Pool", name.as_str()),
        Owner::Nobody => ("Nobody", ""),
    };
    Slots {
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
