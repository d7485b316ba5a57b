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

use crate::arguments::Place;
use crate::delay::Delay;
use crate::drain;
use crate::flux_command::FluxCommand;
use crate::layout::Layout;
use crate::operator::Operator;
use crate::rank::Rank;
use crate::tail::{self, Tail};
use crate::work::{self, Duties};

/// How long a report may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The delay between two queries while nothing changes.
const QUIET: Delay = Delay::new(Duration::from_secs(1), Duration::from_secs(5));

/// The delay between two attempts while the operator does not answer.
const ALONE: Delay = Delay::new(Duration::from_secs(1), Duration::from_secs(30));

/// The maximum time between two reports, for an operator that was restarted.
const AT_LEAST: Duration = Duration::from_secs(10);

/// The maximum length of an error: one line of a broker's log.
const MAX_ERROR_BYTES: usize = 512;

/// Starts to report, for as long as the process lives. `said` is the end of the broker's
/// standard error.
pub fn start(place: &Place, rank: &Rank, layout: &Layout, command: FluxCommand, said: Tail) {
    let target = rank.plan.report.as_ref();
    let Some(operator) = target.and_then(|target| Operator::new(place, target)) else { return };
    let started = layout.program_started();
    let duties = Duties::new(command.clone(), rank.plan.broker.archive.is_some());
    let mut instance = Instance { command, started, said, first_job: String::new() };
    thread::spawn(move || report(&mut instance, operator, duties));
}

/// Queries the state of the instance.
struct Instance {
    command: FluxCommand,
    started: PathBuf,
    said: Tail,
    first_job: String,
}

fn report(instance: &mut Instance, mut operator: Operator, mut duties: Duties) {
    let (sender, told) = mpsc::channel();
    let beside = operator.beside();
    thread::spawn(move || work::wait_for(beside, &sender));
    let (mut quiet, mut alone) = (QUIET, ALONE);
    let mut sent: Option<(InstanceState, Instant)> = None;
    let mut last_error = String::new();
    loop {
        // Only the end of the broker's output is kept, so remember the last error.
        if let Some(error) = error_of(&instance.said.text()) {
            last_error = error;
        }
        let (drained, last_error) = (duties.drained(), last_error.clone());
        let state = InstanceState { drained, last_error, ..instance.look() };
        let known =
            sent.as_ref().is_some_and(|(before, at)| *before == state && at.elapsed() < AT_LEAST);
        let pause = if known {
            quiet.grow()
        } else if let Ok(reply) = operator.exchange(&Report::Instance(state.clone()), LIMIT) {
            duties.carry_out(&reply.work);
            if sent.as_ref().is_none_or(|(before, _)| *before != state) {
                quiet.reset();
            }
            alone.reset();
            sent = Some((state, Instant::now()));
            quiet.grow()
        } else {
            // The operator will come back; the cluster runs without it.
            alone.grow()
        };
        for page in duties.pending() {
            if operator.exchange(&Report::Pending(page), LIMIT).is_err() {
                duties.pending_lost();
                break;
            }
        }
        match told.recv_timeout(pause) {
            Ok(work) => {
                duties.carry_out(&work);
                quiet.reset();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(pause),
        }
    }
}

impl Instance {
    fn look(&mut self) -> InstanceState {
        let overlay = self.command.ask(&["overlay", "status", "--no-pretty"]);
        let jobs = self.command.ask(&["job", "stats"]).and_then(|text| counts(&text));
        if self.first_job.is_empty() && jobs.is_some_and(|jobs| total(jobs) == 1) {
            let last = self.command.ask(&["job", "last"]).unwrap_or_default();
            self.first_job = last.trim().to_owned();
        }
        InstanceState {
            online: overlay.map(|text| drain::online(&text)),
            program_started: self.started.exists(),
            jobs,
            first_job: self.first_job.clone(),
            ..InstanceState::default()
        }
    }
}

/// The last error in a broker's log. Lines of rc2 are about the program, whose exit is reported
/// elsewhere; lines that are not in the log's format come from other programs.
fn error_of(said: &str) -> Option<String> {
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
struct Stats {
    job_states: States,
    #[serde(default)]
    inactive_purged: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct States {
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
fn counts(stats: &str) -> Option<JobCounts> {
    let Stats { job_states: states, inactive_purged } = serde_json::from_str(stats).ok()?;
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
    fn jobs_are_counted_as_flux_shows_them() {
        // What flux-core 0.88 printed.
        let text = r#"{"job_states":{"depend":1,"priority":0,"sched":2,"run":1,"cleanup":1,
            "inactive":3,"total":4},"successful":3,"failed":0,"canceled":0,"timeout":0,
            "inactive_purged":4,"queues":[]}"#;
        assert_eq!(counts(text), Some(JobCounts { pending: 3, running: 2, inactive: 7 }));
        assert_eq!(counts("nonsense"), None);
        assert_eq!(counts("{}"), None);
    }

    #[test]
    fn the_last_error_is_the_brokers_own() {
        // What flux-core 0.88 printed.
        let said = "Nov 15 08:46:23.236236 UTC 2026 broker.err[0]: rc3.0: flux-dump: Failed to open 'x'\n\
                    Nov 15 08:46:24.236236 UTC 2026 broker.info[0]: fine\n\
                    Nov 15 08:46:25.773528 UTC 2026 broker.err[0]: rc2.0: sh -c key Exited (rc=3) 2.3s\n\
                    my.err of the program\n";
        assert_eq!(error_of(said).as_deref(), Some("rc3.0: flux-dump: Failed to open 'x'"));
        assert_eq!(error_of("sched.crit[0]: lost").as_deref(), Some("lost"));
        assert_eq!(error_of("fine\nbroker.debug[1]: x\n"), None);
    }
}
