//! A cluster as its lead reports it.

use flux_operator_api::MiniCluster;
use flux_operator_api::view::{
    Cluster, InstanceJob, InstanceJobs, JobCounts, RunningInstanceJob, SlotRange,
};
use flux_operator_flux::{HostList, IdSet};
use flux_operator_wire::{PendingJob, RunningJob};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use crate::last_report::LastReport;
use crate::observed::Observed;
use crate::rank_table::{self, RankTable, SlotOwner};
use crate::stamp::booted_rank_table;
use crate::view::NoRankTable;
use crate::view::ranks::booted_table;

/// A MiniCluster, with what its lead has reported.
pub fn cluster(minicluster: &MiniCluster, observed: &Observed) -> Cluster {
    let (report, now) = (observed.report.as_ref(), observed.now);
    let status = minicluster.status.clone().unwrap_or_default();
    let fresh = report.filter(|report| !report.is_stale(now)).map(|report| &report.state);
    let online = fresh.and_then(|state| state.online.as_ref());
    let table = booted_rank_table(minicluster, observed.job.as_deref()).ok();
    let slots = table.as_ref().map(|table| slots(table, online));
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

/// The ranks of the instance of a MiniCluster whose Job this is, grouped by owner.
pub fn instance_slots(
    minicluster: &MiniCluster,
    job: Option<&Job>,
    online: &IdSet,
) -> Result<Vec<SlotRange>, NoRankTable> {
    let (table, _) = booted_table(minicluster, job)?;
    Ok(slots(&table, Some(online)))
}

/// The ranks of a table, grouped by owner.
pub(crate) fn slots(table: &RankTable, online: Option<&IdSet>) -> Vec<SlotRange> {
    table.slots.iter().map(|slots| slot_view(slots, &table.hosts, online)).collect()
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
        cores: slots.resources.cores.unwrap_or_default(),
        gpus: slots.resources.gpus,
    }
}

/// Adds to the jobs of an instance what is known of its nodes.
pub fn add_nodes(jobs: &mut InstanceJobs, minicluster: &MiniCluster, observed: &Observed) {
    let report = observed.report.as_ref().filter(|report| !report.is_stale(observed.now));
    let state = report.map(|report| &report.state);
    let lead = state.and_then(|state| state.lead.as_ref());
    jobs.slots = cluster(minicluster, observed).slots;
    // Flux counts the cores that the manifest declares, whatever the node has.
    let declared = minicluster.spec.flux.as_ref().and_then(|flux| flux.resources.as_ref());
    let declared = declared.and_then(|it| u32::try_from(it.cores).ok()).filter(|it| *it > 0);
    jobs.lead_cores = declared.or(lead.map(|lead| lead.cores)).unwrap_or_default();
    let own = jobs.slots.iter().find(|slots| slots.owner == "Job");
    jobs.lead_gpus = own.and_then(|slots| slots.gpus).unwrap_or_default();
    let flux = minicluster.spec.flux.as_ref();
    let is_simple = flux.and_then(|flux| flux.scheduler.as_ref()).is_some_and(|it| it.simple);
    // Agents look for a job that blocks others only where the scheduler does not skip it.
    let has_blocking = state.is_some_and(|state| state.blocking_job.is_some());
    jobs.stops_at_blocked |= is_simple || has_blocking;
}

/// A job that waits in an instance, as the JSON text that is shown.
pub fn instance_job_text(job: PendingJob) -> String {
    serde_json::to_string(&instance_job(job)).expect("the keys of its maps are strings")
}

/// A job that waits in an instance, as it is shown.
pub fn instance_job(job: PendingJob) -> InstanceJob {
    let PendingJob {
        id,
        user,
        queue,
        nodes,
        tasks,
        cores,
        gpus,
        submitted,
        duration,
        estimate,
        held,
        on_hold,
        attributes,
    } = job;
    InstanceJob {
        id,
        user,
        queue,
        nodes,
        tasks,
        cores,
        gpus,
        submitted,
        duration,
        estimate,
        held,
        attributes: attributes.into(),
        on_hold,
    }
}

/// A running job as it is shown.
pub fn running_instance_job(job: &RunningJob) -> RunningInstanceJob {
    RunningInstanceJob { id: job.id, ranks: job.ranks.to_string() }
}

/// The JSON text before and after the jobs that wait in an instance. `jobs` has none of them: their
/// texts, separated by commas, are put in between.
pub fn instance_jobs_text(jobs: &InstanceJobs) -> (String, &'static str) {
    const END: &str = "]}";
    let mut text = serde_json::to_string(jobs).expect("the keys of its maps are strings");
    debug_assert!(jobs.items.is_empty() && text.ends_with(END), "{text}");
    text.truncate(text.len().saturating_sub(END.len()));
    (text, END)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let running = RunningJob { id: 3, ranks: "0-1".parse().unwrap() };
        let jobs = InstanceJobs {
            listed: true,
            version: 9,
            busy: Some("0-1".into()),
            running: vec![running_instance_job(&running)],
            ..InstanceJobs::default()
        };
        for jobs in [jobs, InstanceJobs::default()] {
            for count in 0..=2 {
                let (start, end) = instance_jobs_text(&jobs);
                let text = format!("{start}{}{end}", texts[..count].join(","));
                let parsed: InstanceJobs = serde_json::from_str(&text).unwrap();
                assert_eq!(parsed.items.len(), count);
                assert_eq!(serde_json::to_string(&parsed).unwrap(), text);
                assert_eq!(InstanceJobs { items: Vec::new(), ..parsed }, jobs);
            }
        }
    }
}
