//! The lead's reports of what only Flux knows, and the work received in reply.
//!
//! The state is queried with Flux's own commands, once a second while it changes
//! and the operator answers, and less and less often otherwise.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use flux_operator_flux::OverlayNode;
use flux_operator_wire::{BrokerFacts, InstanceState, JobCounts, Report};
use serde::Deserialize;

use crate::arguments::CommonArguments;
use crate::backoff::Backoff;
use crate::blocked::BlockedProbe;
use crate::flux_command::FluxCommand;
use crate::layout::Layout;
use crate::operator_client::OperatorClient;
use crate::rank_plan::RankPlan;
use crate::tail::{self, Tail};
use crate::work::{self, WorkHandler};

/// How long a report may take.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The delay between two queries while nothing changes.
const UNCHANGED_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));

/// The delay between two attempts while the operator does not answer.
const UNREACHABLE_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The maximum time between two reports, for an operator that was restarted.
const MAX_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The maximum length of an error: one line of a broker's log.
const MAX_ERROR_BYTES: usize = 512;

/// Starts to report, for as long as the process lives. `broker_output` is the end of the broker's
/// standard error.
pub fn start(
    common: &CommonArguments,
    rank: &RankPlan,
    layout: &Layout,
    command: FluxCommand,
    facts: BrokerFacts,
    broker_output: Tail,
) {
    let target = rank.plan.report.as_ref();
    let Some(operator) = target.and_then(|target| OperatorClient::new(common, target)) else {
        return;
    };
    let started = layout.program_started();
    let work_handler = WorkHandler::new(command.clone(), rank.plan.broker.archive.is_some());
    let first_job = match rank.plan.broker.archive.is_some() {
        true => FirstJob::AfterRestored(None),
        false => FirstJob::Expected,
    };
    // Only an instance with more ranks than brokers can wait for brokers.
    let has_spare = rank.plan.hosts.len() > rank.plan.quorum as usize;
    let blocked = has_spare.then(|| BlockedProbe::new(command.clone()));
    let mut instance = InstanceProbe { command, started, facts, broker_output, first_job, blocked };
    thread::spawn(move || report_forever(&mut instance, operator, work_handler));
}

/// Queries the state of the instance.
struct InstanceProbe {
    command: FluxCommand,
    started: PathBuf,
    facts: BrokerFacts,
    broker_output: Tail,
    first_job: FirstJob,
    blocked: Option<BlockedProbe>,
}

/// The first job that the program submits.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FirstJob {
    /// It will be the only job of the instance.
    Expected,
    /// It will be the one after those that were restored from an archive: the last of these, and
    /// how many there are, as observed before the program started.
    AfterRestored(Option<(String, u32)>),
    /// Its ID.
    Known(String),
}

impl FirstJob {
    /// The state after the instance was observed to have this many jobs. `last` queries the ID of
    /// the last one.
    fn observe(self, count: u32, started: bool, last: impl FnOnce() -> String) -> FirstJob {
        match self {
            FirstJob::Expected if count == 1 => match last() {
                id if id.is_empty() => FirstJob::Expected,
                id => FirstJob::Known(id),
            },
            FirstJob::AfterRestored(_) if !started => {
                FirstJob::AfterRestored(Some((last(), count)))
            }
            FirstJob::AfterRestored(Some((before, restored)))
                if count == restored.saturating_add(1) =>
            {
                match last() {
                    id if id.is_empty() || id == before => {
                        FirstJob::AfterRestored(Some((before, restored)))
                    }
                    id => FirstJob::Known(id),
                }
            }
            other => other,
        }
    }

    fn id(&self) -> String {
        match self {
            FirstJob::Known(id) => id.clone(),
            FirstJob::Expected | FirstJob::AfterRestored(_) => String::new(),
        }
    }
}

fn report_forever(
    instance: &mut InstanceProbe,
    mut operator: OperatorClient,
    mut duties: WorkHandler,
) {
    let (sender, new_work) = mpsc::channel();
    let long_poll = operator.for_long_polls();
    thread::spawn(move || work::poll_forever(long_poll, &sender));
    let (mut quiet, mut alone) = (UNCHANGED_BACKOFF, UNREACHABLE_BACKOFF);
    let mut sent: Option<(InstanceState, Instant)> = None;
    let mut last_error = String::new();
    loop {
        // Only the end of the broker's output is kept, so remember the last error.
        if let Some(error) = find_last_error(&instance.broker_output.text()) {
            last_error = error;
        }
        let (drained, last_error) = (duties.drained(), last_error.clone());
        let state = InstanceState { drained, last_error, ..instance.probe() };
        let counts = state.jobs;
        let known = sent
            .as_ref()
            .is_some_and(|(before, at)| *before == state && at.elapsed() < MAX_REPORT_INTERVAL);
        let pause = if known {
            duties.query_delay(quiet.next_delay())
        } else if let Ok(reply) =
            operator.exchange(&Report::Instance(state.clone()), REPORT_TIMEOUT)
        {
            duties.apply(&reply.work);
            if sent.as_ref().is_none_or(|(before, _)| *before != state) {
                quiet.reset();
            }
            alone.reset();
            sent = Some((state, Instant::now()));
            duties.query_delay(quiet.next_delay())
        } else {
            // The operator will come back; the cluster runs without it.
            alone.next_delay()
        };
        for page in duties.pending_pages(counts) {
            if operator.exchange(&Report::Pending(page), REPORT_TIMEOUT).is_err() {
                duties.report_pending_again();
                break;
            }
        }
        // One that is lost is answered again.
        for answer in duties.order_answers() {
            if operator.exchange(&Report::Job(answer), REPORT_TIMEOUT).is_err() {
                break;
            }
        }
        match new_work.recv_timeout(pause) {
            Ok(work) => {
                duties.apply(&work);
                quiet.reset();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(pause),
        }
    }
}

impl InstanceProbe {
    fn probe(&mut self) -> InstanceState {
        let overlay = self.command.query(&OverlayNode::COMMAND);
        let jobs = self.command.query(&["job", "stats"]).and_then(|text| parse_job_stats(&text));
        let started = self.started.exists();
        if let Some(count) = jobs.map(total) {
            let last = || {
                let id = self.command.query(&["job", "last"]).unwrap_or_default();
                id.trim().to_owned()
            };
            self.first_job = self.first_job.clone().observe(count, started, last);
        }
        let online = overlay.map(|text| OverlayNode::online_ranks(&text));
        let pending = jobs.map(|jobs| jobs.pending);
        let probe = self.blocked.as_mut().zip(online.as_ref());
        let blocking_job = probe.and_then(|(probe, online)| probe.probe(pending, online.len()));
        InstanceState {
            online,
            blocking_job,
            program_started: started,
            jobs,
            first_job: self.first_job.id(),
            lead: Some(self.facts.clone()),
            ..InstanceState::default()
        }
    }
}

/// The last error in a broker's log. Lines of rc2 are about the program, whose exit is reported
/// elsewhere; lines that are not in the log's format come from other programs.
pub fn find_last_error(said: &str) -> Option<String> {
    let is_error = |line: &&str| {
        let severe = ["emerg", "alert", "crit", "err"];
        let head = line.split_once("]: ").map(|(head, _)| head).unwrap_or_default();
        let level = head.rsplit_once('.').and_then(|(_, level)| level.split_once('['));
        level.is_some_and(|(level, _)| severe.contains(&level)) && !line.contains("]: rc2.")
    };
    let line = said.lines().rev().find(is_error)?;
    let (_, message) = line.split_once("]: ")?;
    Some(tail::last_bytes(message.trim(), MAX_ERROR_BYTES).to_owned())
}

#[derive(Deserialize)]
struct JobStats {
    job_states: JobStateCounts,
    #[serde(default)]
    inactive_purged: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobStateCounts {
    depend: u32,
    priority: u32,
    sched: u32,
    run: u32,
    cleanup: u32,
    inactive: u32,
}

fn total(jobs: JobCounts) -> u32 {
    jobs.pending.saturating_add(jobs.running).saturating_add(jobs.inactive)
}

/// Parses the number of jobs from the output of `flux job stats`.
fn parse_job_stats(stats: &str) -> Option<JobCounts> {
    let JobStats { job_states: states, inactive_purged } = serde_json::from_str(stats).ok()?;
    let sum = |counts: &[u32]| counts.iter().fold(0, |sum: u32, count| sum.saturating_add(*count));
    Some(JobCounts {
        pending: sum(&[states.depend, states.priority, states.sched]),
        running: sum(&[states.run, states.cleanup]),
        inactive: sum(&[states.inactive, inactive_purged]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_job_is_the_programs_own_and_not_a_restored_one() {
        let observe = |job: FirstJob, count, started, last: &str| {
            job.observe(count, started, || last.to_owned())
        };
        let fresh = observe(FirstJob::Expected, 0, true, "");
        assert_eq!(observe(fresh.clone(), 1, true, "f1"), FirstJob::Known("f1".into()));
        assert_eq!(observe(fresh, 2, true, "f2").id(), "", "which was first is not known");
        let restored = observe(FirstJob::AfterRestored(None), 1, false, "old");
        let restored = observe(restored, 1, true, "old");
        assert_eq!(restored.id(), "");
        assert_eq!(observe(restored, 2, true, "new").id(), "new");
        let late = observe(FirstJob::AfterRestored(None), 3, true, "any");
        assert_eq!(late.id(), "", "the program started before the instance was observed");
    }

    #[test]
    fn jobs_are_counted_from_flux_job_stats() {
        // What flux-core 0.88 printed.
        let text = r#"{"job_states":{"depend":1,"priority":0,"sched":2,"run":1,"cleanup":1,
            "inactive":3,"total":4},"successful":3,"failed":0,"canceled":0,"timeout":0,
            "inactive_purged":4,"queues":[]}"#;
        assert_eq!(parse_job_stats(text), Some(JobCounts { pending: 3, running: 2, inactive: 7 }));
        assert_eq!(parse_job_stats("nonsense"), None);
        assert_eq!(parse_job_stats("{}"), None);
    }

    #[test]
    fn the_last_error_is_the_brokers_own() {
        // What flux-core 0.88 printed.
        let said = "Nov 15 08:46:23.236236 UTC 2026 broker.err[0]: rc3.0: flux-dump: Failed to open 'x'\n\
                    Nov 15 08:46:24.236236 UTC 2026 broker.info[0]: fine\n\
                    Nov 15 08:46:25.773528 UTC 2026 broker.err[0]: rc2.0: sh -c key Exited (rc=3) 2.3s\n\
                    my.err of the program\n";
        assert_eq!(find_last_error(said).as_deref(), Some("rc3.0: flux-dump: Failed to open 'x'"));
        assert_eq!(find_last_error("sched.crit[0]: lost").as_deref(), Some("lost"));
        assert_eq!(find_last_error("fine\nbroker.debug[1]: x\n"), None);
    }
}
