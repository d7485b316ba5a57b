//! FluxJobs on one machine: the operator's own ledger decides which are admitted, and each
//! admitted job runs as a cluster of processes.
//!
//! ```text
//! Batch ──put──► the ledger of plan ──cycle──► admit ──► a thread that supervises the job
//!                      ▲                                     │ ready, finished
//!                      └─────────────── remove ◄─────────────┘
//! ```

mod batch;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flux_operator_api::MiniCluster;
use flux_operator_plan::queueing::ledger::Ledger;
use flux_operator_queue::{Admission, Admit, Millis, Uid};

use crate::flux::Programs;
use crate::front::watch_signals;
use crate::home::Home;
use crate::progress::Progress;

use batch::Entry;
pub use batch::{Batch, BatchError};
use running::Running;

/// What the loop waits for.
enum Event {
    Ready(Uid),
    Ended(Uid, Result<u8, String>),
    Signal(i32),
}

/// The exit code of a job that exceeded its time limit, the same as that of `timeout`(1).
const TOO_LONG: u8 = 124;
/// The exit code of a job that was not run.
const NOT_RUN: u8 = 1;

/// Runs all jobs, each once it is admitted. Returns the highest of their exit codes.
pub fn run_batch(
    home: &Home,
    batch: Batch,
    programs: &Programs,
    progress: &Progress,
) -> Result<u8, BatchError> {
    let (sender, events) = mpsc::channel();
    let signals = sender.clone();
    watch_signals(move |signal| signals.send(Event::Signal(signal)).is_ok())
        .map_err(BatchError::Signals)?;
    for note in &batch.notes {
        progress.note(note);
    }
    let queue = Queue {
        ledger: batch.ledger,
        waiting: batch.entries,
        running: BTreeMap::new(),
        said: BTreeMap::new(),
        noted: BTreeSet::new(),
        worst: 0,
    };
    Ok(queue.run(&events, progress, |admit, minicluster, deadline| {
        Running::start(home, minicluster, admit, deadline, programs, sender.clone())
    }))
}

/// The jobs, and what has been printed about them.
struct Queue {
    ledger: Ledger,
    waiting: BTreeMap<Uid, Entry>,
    running: BTreeMap<Uid, Running>,
    said: BTreeMap<Uid, String>,
    noted: BTreeSet<String>,
    worst: u8,
}

impl Queue {
    /// Runs until every job has finished, or no further job can be admitted.
    fn run(
        mut self,
        events: &Receiver<Event>,
        progress: &Progress,
        start: impl Fn(&Admit, MiniCluster, Option<Millis>) -> Result<Running, String>,
    ) -> u8 {
        let mut told = None;
        loop {
            let mut wake = None;
            if told.is_none() {
                let decided = self.ledger.cycle(now());
                wake = decided.wake;
                // A job that could not be started has released its quota, so decide again.
                let mut failed = false;
                for admitted in &decided.admit {
                    failed |= !self.admit(&admitted.admit, progress, &start);
                }
                if failed {
                    continue;
                }
                self.tell_waiting(progress);
            }
            // All quota is free: a job that is not admitted now never will be.
            if self.running.is_empty() {
                break;
            }
            match self.next(events, wake) {
                Some(Event::Ready(uid)) => self.ready(&uid, progress),
                Some(Event::Ended(uid, ended)) => self.ended(&uid, ended, progress),
                Some(Event::Signal(signal)) => {
                    told = u8::try_from(128 + signal).ok();
                    self.running.values().for_each(|running| running.end(signal));
                }
                None => self.end_those_that_ran_too_long(),
            }
        }
        match told {
            Some(code) => code,
            None => self.give_up(progress),
        }
    }

    fn admit(
        &mut self,
        admit: &Admit,
        progress: &Progress,
        start: impl Fn(&Admit, MiniCluster, Option<Millis>) -> Result<Running, String>,
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
                    if self.noted.insert(note.clone()) {
                        progress.note(note);
                    }
                }
                self.running.insert(admit.uid.clone(), running);
                true
            }
            Err(reason) => {
                progress.done(&format!("job {name} failed: {reason}"));
                self.worst = self.worst.max(NOT_RUN);
                self.ledger.remove(&admit.uid, now());
                false
            }
        }
    }

    /// Prints why each waiting job waits, when that has changed.
    fn tell_waiting(&mut self, progress: &Progress) {
        for (uid, entry) in &self.waiting {
            let Some(waiting) = self.ledger.scheduler().why(uid, now()) else { continue };
            let position = waiting.position.map(|place| format!("; position {place}"));
            let text = format!("{}{}", waiting.reason, position.unwrap_or_default());
            if self.said.get(uid) != Some(&text) {
                progress.done(&format!("job {} waits: {text}", entry.name()));
                self.said.insert(uid.clone(), text);
            }
        }
    }

    /// Waits for the next event; `None` at a deadline or when the ledger is due again.
    fn next(&self, events: &Receiver<Event>, wake: Option<Millis>) -> Option<Event> {
        let ends = self.running.values().filter_map(|running| running.deadline);
        match ends.chain(wake).min() {
            None => events.recv().ok(),
            Some(then) => {
                let left = Duration::from_millis((then - now()).max(0).unsigned_abs());
                events.recv_timeout(left).ok()
            }
        }
    }

    fn ready(&self, uid: &Uid, progress: &Progress) {
        if let Some(running) = self.running.get(uid) {
            progress.done(&format!("job {} runs", running.name));
        }
    }

    fn ended(&mut self, uid: &Uid, ended: Result<u8, String>, progress: &Progress) {
        let Some(running) = self.running.remove(uid) else { return };
        let name = &running.name;
        let code = match ended {
            _ if running.too_long => {
                progress.done(&format!("job {name} exceeded maxRuntimeSeconds"));
                TOO_LONG
            }
            Ok(code) => {
                progress.done(&format!("job {name} finished with exit code {code}"));
                code
            }
            Err(reason) => {
                progress.done(&format!("job {name} failed: {reason}"));
                NOT_RUN
            }
        };
        self.worst = self.worst.max(code);
        self.ledger.remove(uid, now());
    }

    fn end_those_that_ran_too_long(&mut self) {
        let now = now();
        for running in self.running.values_mut() {
            if running.deadline.is_some_and(|deadline| deadline <= now) {
                running.end_too_long();
            }
        }
    }

    /// Nothing runs: the jobs that still wait do not fit into an empty queue.
    fn give_up(self, progress: &Progress) -> u8 {
        for entry in self.waiting.values() {
            progress.done(&format!("job {} was not run: it can never be admitted", entry.name()));
        }
        if self.waiting.is_empty() { self.worst } else { self.worst.max(NOT_RUN) }
    }
}

fn nodes(count: u32) -> String {
    if count == 1 { "1 node".into() } else { format!("{count} nodes") }
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(Millis::MAX)
}
