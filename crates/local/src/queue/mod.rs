//! FluxJobs on one machine: the operator's own ledger decides which are admitted, and each
//! admitted job runs as a cluster of processes.
//!
//! ```text
//! JobBatch ──put──► the ledger of plan ──cycle──► admit ──► a thread that supervises the job
//!                         ▲                                     │ ready, finished
//!                         └─────────────── remove ◄─────────────┘
//! ```

mod batch;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flux_operator_api::MiniCluster;
use flux_operator_plan::queueing::ledger::Ledger;
use flux_operator_queue::{Admission, Millis, NewAdmission, Uid};

use crate::flux::Programs;
use crate::home::Home;
use crate::progress::Progress;
use crate::supervisor::watch_signals;

use batch::QueuedObject;
pub use batch::{JobBatch, JobBatchError};
use running::RunningJob;

/// What the loop waits for.
enum Event {
    Ready(Uid),
    Finished(Uid, Result<u8, String>),
    Signal(i32),
}

/// The exit code of a job that exceeded its time limit, the same as that of `timeout`(1).
const EXIT_TIMED_OUT: u8 = 124;
/// The exit code of a job that was not run.
const EXIT_NOT_RUN: u8 = 1;

/// Runs all jobs, each once it is admitted. Returns the highest of their exit codes.
pub fn run_batch(
    home: &Home,
    batch: JobBatch,
    programs: &Programs,
    progress: &Progress,
) -> Result<u8, JobBatchError> {
    let (sender, events) = mpsc::channel();
    let signals = sender.clone();
    watch_signals(move |signal| signals.send(Event::Signal(signal)).is_ok())
        .map_err(JobBatchError::Signals)?;
    for note in &batch.notes {
        progress.note(note);
    }
    let queue = BatchRun {
        ledger: batch.ledger,
        waiting: batch.entries,
        running: BTreeMap::new(),
        printed_reasons: BTreeMap::new(),
        printed_notes: BTreeSet::new(),
        worst_exit_code: 0,
    };
    Ok(queue.run(&events, progress, |admit, minicluster, deadline| {
        RunningJob::start(home, minicluster, admit, deadline, programs, sender.clone())
    }))
}

/// The jobs, and what has been printed about them.
struct BatchRun {
    ledger: Ledger,
    waiting: BTreeMap<Uid, QueuedObject>,
    running: BTreeMap<Uid, RunningJob>,
    printed_reasons: BTreeMap<Uid, String>,
    printed_notes: BTreeSet<String>,
    worst_exit_code: u8,
}

impl BatchRun {
    /// Runs until every job has finished, or no further job can be admitted.
    fn run(
        mut self,
        events: &Receiver<Event>,
        progress: &Progress,
        start: impl Fn(&NewAdmission, MiniCluster, Option<Millis>) -> Result<RunningJob, String>,
    ) -> u8 {
        let mut stop_code = None;
        loop {
            let mut wake = None;
            if stop_code.is_none() {
                let decided = self.ledger.cycle(now());
                wake = decided.wake_at;
                // A job that could not be started has released its quota, so decide again.
                let mut failed = false;
                for admitted in &decided.admit {
                    failed |= !self.admit(&admitted.admit, progress, &start);
                }
                if failed {
                    continue;
                }
                self.print_waiting(progress);
            }
            // All quota is free: a job that is not admitted now never will be.
            if self.running.is_empty() {
                break;
            }
            match self.next_event(events, wake) {
                Some(Event::Ready(uid)) => self.on_ready(&uid, progress),
                Some(Event::Finished(uid, finished)) => self.on_finished(&uid, finished, progress),
                Some(Event::Signal(signal)) => {
                    stop_code = u8::try_from(128 + signal).ok();
                    self.running.values().for_each(|running| running.stop(signal));
                }
                None => self.stop_overdue(),
            }
        }
        match stop_code {
            Some(code) => code,
            None => self.finish(progress),
        }
    }

    fn admit(
        &mut self,
        admit: &NewAdmission,
        progress: &Progress,
        start: impl Fn(&NewAdmission, MiniCluster, Option<Millis>) -> Result<RunningJob, String>,
    ) -> bool {
        let Some(entry) = self.waiting.remove(&admit.uid) else { return true };
        let name = &admit.name;
        let (queue, nodes) = (&admit.admission.queue.name, nodes(admit.admission.size));
        progress.done(&format!("job {name} is admitted by {queue} with {nodes}"));
        let Admission { queue, size, at, .. } = &admit.admission;
        let setup = self.ledger.job(&admit.uid, Some(queue), *at).and_then(|facts| facts.setup);
        let minicluster = entry.minicluster(*size, setup.as_ref().map(|setup| &setup.spec));
        let workload = self.ledger.scheduler().workload(&admit.uid);
        let limit = workload.and_then(|workload| workload.max_runtime);
        match start(admit, minicluster, limit.map(|limit| at.saturating_add(limit))) {
            Ok(running) => {
                for note in &running.notes {
                    if self.printed_notes.insert(note.clone()) {
                        progress.note(note);
                    }
                }
                self.running.insert(admit.uid.clone(), running);
                true
            }
            Err(reason) => {
                progress.done(&format!("job {name} failed: {reason}"));
                self.worst_exit_code = self.worst_exit_code.max(EXIT_NOT_RUN);
                self.ledger.remove(&admit.uid, now());
                false
            }
        }
    }

    /// Prints why each waiting job waits, when that has changed.
    fn print_waiting(&mut self, progress: &Progress) {
        for (uid, entry) in &self.waiting {
            let Some(waiting) = self.ledger.scheduler().explain(uid, now()) else { continue };
            let position = waiting.position.map(|place| format!("; position {place}"));
            let text = format!("{}{}", waiting.reason, position.unwrap_or_default());
            if self.printed_reasons.get(uid) != Some(&text) {
                progress.done(&format!("job {} waits: {text}", entry.name()));
                self.printed_reasons.insert(uid.clone(), text);
            }
        }
    }

    /// Waits for the next event; `None` at a deadline or when the ledger is due again.
    fn next_event(&self, events: &Receiver<Event>, wake: Option<Millis>) -> Option<Event> {
        let deadlines = self.running.values().filter_map(|running| running.deadline);
        match deadlines.chain(wake).min() {
            None => events.recv().ok(),
            Some(then) => {
                let left = Duration::from_millis((then - now()).max(0).unsigned_abs());
                events.recv_timeout(left).ok()
            }
        }
    }

    fn on_ready(&self, uid: &Uid, progress: &Progress) {
        if let Some(running) = self.running.get(uid) {
            progress.done(&format!("job {} runs", running.name));
        }
    }

    fn on_finished(&mut self, uid: &Uid, finished: Result<u8, String>, progress: &Progress) {
        let Some(running) = self.running.remove(uid) else { return };
        let name = &running.name;
        let code = match finished {
            _ if running.timed_out => {
                progress.done(&format!("job {name} exceeded maxRuntimeSeconds"));
                EXIT_TIMED_OUT
            }
            Ok(code) => {
                progress.done(&format!("job {name} finished with exit code {code}"));
                code
            }
            Err(reason) => {
                progress.done(&format!("job {name} failed: {reason}"));
                EXIT_NOT_RUN
            }
        };
        self.worst_exit_code = self.worst_exit_code.max(code);
        self.ledger.remove(uid, now());
    }

    fn stop_overdue(&mut self) {
        let now = now();
        for running in self.running.values_mut() {
            if running.deadline.is_some_and(|deadline| deadline <= now) {
                running.time_out();
            }
        }
    }

    /// Nothing runs: the jobs that still wait do not fit into an empty queue.
    fn finish(self, progress: &Progress) -> u8 {
        for entry in self.waiting.values() {
            progress.done(&format!("job {} was not run: it can never be admitted", entry.name()));
        }
        if self.waiting.is_empty() {
            self.worst_exit_code
        } else {
            self.worst_exit_code.max(EXIT_NOT_RUN)
        }
    }
}

fn nodes(count: u32) -> String {
    if count == 1 { "1 node".into() } else { format!("{count} nodes") }
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(Millis::MAX)
}
