//! The lead's reports of what only Flux knows, and the work received in reply.
//!
//! The state is queried with Flux's own commands, once a second while it changes
//! and the operator answers, and less and less often otherwise.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use flux_operator_wire::{InstanceState, JobCounts, Report};
use serde::Deserialize;

use crate::arguments::CommonArguments;
use crate::backoff::Backoff;
use crate::drain;
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

/// Starts to report, for as long as the process lives. `said` is the end of the broker's
/// standard error.
pub fn start(
    place: &CommonArguments,
    rank: &RankPlan,
    layout: &Layout,
    command: FluxCommand,
    broker_output: Tail,
) {
    let target = rank.plan.report.as_ref();
    let Some(operator) = target.and_then(|target| OperatorClient::new(place, target)) else {
        return;
    };
    let started = layout.program_started();
    let duties = WorkHandler::new(command.clone(), rank.plan.broker.archive.is_some());
    let mut instance = InstanceProbe { command, started, broker_output, first_job: String::new() };
    thread::spawn(move || report_forever(&mut instance, operator, duties));
}

/// Queries the state of the instance.
struct InstanceProbe {
    command: FluxCommand,
    started: PathBuf,
    broker_output: Tail,
    first_job: String,
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
        let known = sent
            .as_ref()
            .is_some_and(|(before, at)| *before == state && at.elapsed() < MAX_REPORT_INTERVAL);
        let pause = if known {
            quiet.next_delay()
        } else if let Ok(reply) =
            operator.exchange(&Report::Instance(state.clone()), REPORT_TIMEOUT)
        {
            duties.apply(&reply.work);
            if sent.as_ref().is_none_or(|(before, _)| *before != state) {
                quiet.reset();
            }
            alone.reset();
            sent = Some((state, Instant::now()));
            quiet.next_delay()
        } else {
            // The operator will come back; the cluster runs without it.
            alone.next_delay()
        };
        for page in duties.pending_pages() {
            if operator.exchange(&Report::Pending(page), REPORT_TIMEOUT).is_err() {
                duties.report_pending_again();
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
        let overlay = self.command.query(&["overlay", "status", "--no-pretty"]);
        let jobs = self.command.query(&["job", "stats"]).and_then(|text| parse_job_stats(&text));
        if self.first_job.is_empty() && jobs.is_some_and(|jobs| total(jobs) == 1) {
            let last = self.command.query(&["job", "last"]).unwrap_or_default();
            self.first_job = last.trim().to_owned();
        }
        InstanceState {
            online: overlay.map(|text| drain::parse_online(&text)),
            program_started: self.started.exists(),
            jobs,
            first_job: self.first_job.clone(),
            ..InstanceState::default()
        }
    }
}

/// The last error in a broker's log. Lines of rc2 are about the program, whose exit is reported
/// elsewhere; lines that are not in the log's format come from other programs.
fn find_last_error(said: &str) -> Option<String> {
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
