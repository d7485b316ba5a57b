//! A cluster as its lead reports it.

use flux_operator_api::MiniCluster;
use flux_operator_api::view::{Cluster, InstanceJob, JobCounts, SlotRange};
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
    let index = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let names = hosts.slice(index(slots.first_rank), index(slots.count));
    let (owner, pool) = match &slots.owner {
        SlotOwner::Job => ("Job", ""),
        SlotOwner::Pool(name) => ("Pool", name.as_str()),
        SlotOwner::Spare => ("Spare", ""),
    };
    SlotRange {
        owner: owner.into(),
        pool: pool.into(),
        online: online.map(|online| ranks.intersection(online).to_string()),
        ranks: ranks.to_string(),
        hosts: names.to_string(),
    }
}

/// A job that waits in an instance, as the JSON text that is shown.
pub fn instance_job_text(job: PendingJob) -> Box<str> {
    let PendingJob { id, nodes, tasks, submitted, attributes } = job;
    let job = InstanceJob { id, nodes, tasks, submitted, attributes };
    serde_json::to_string(&job).expect("the keys of its maps are strings").into()
}

/// The [`InstanceJobs`](flux_operator_api::view::InstanceJobs) of an instance as JSON text, from
/// the texts of its jobs; `None` if its lead has not listed them.
pub fn instance_jobs_text(jobs: Option<&[Box<str>]>) -> String {
    let items = jobs.unwrap_or_default().join(",");
    format!(r#"{{"listed":{},"items":[{items}]}}"#, jobs.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_api::view::InstanceJobs;

    #[test]
    fn the_text_is_that_of_the_described_type() {
        let attributes = [("burstable".to_owned(), serde_json::json!({ "a": "\"," }))];
        let job = PendingJob {
            id: 7,
            nodes: Some(4),
            attributes: attributes.into(),
            ..PendingJob::default()
        };
        let texts = [instance_job_text(job), instance_job_text(PendingJob::default())];
        for jobs in [None, Some(&texts[..0]), Some(&texts[..])] {
            let text = instance_jobs_text(jobs);
            let parsed: InstanceJobs = serde_json::from_str(&text).unwrap();
            assert_eq!(parsed.listed, jobs.is_some());
            assert_eq!(parsed.items.len(), jobs.unwrap_or_default().len());
            assert_eq!(serde_json::to_string(&parsed).unwrap(), text);
        }
    }
}
