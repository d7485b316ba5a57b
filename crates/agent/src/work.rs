//! Work from the operator. It is in the reply to each report, and, to receive it
//! without delay, in the reply to a long poll, which the operator delays until
//! there is new work.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use flux_operator_wire::{Drained, JobCounts, OrderAnswer, PendingPage, Report, Work};

use crate::backoff::Backoff;
use crate::drain::Drainer;
use crate::flux_command::FluxCommand;
use crate::hand_over::HandOver;
use crate::operator_client::OperatorClient;
use crate::pending::PendingJobs;

/// The timeout of a long poll: longer than the operator delays its reply.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(40);

/// The delay between two long polls without new work, in case the operator replies at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum delay between two queries of the instance while jobs are listed. They take 1 % of a
/// core, measured with flux-core 0.88.
const LISTING_INTERVAL: Duration = Duration::from_secs(1);

/// The delay between two attempts while the operator does not answer.
const UNREACHABLE_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Polls for work, and sends new work to `sender` until the receiver is dropped.
pub fn poll_forever(mut operator: OperatorClient, sender: &Sender<Vec<Work>>) {
    let mut known = Vec::new();
    let mut unreachable = UNREACHABLE_BACKOFF;
    loop {
        let report = Report::WorkWanted { known: known.clone() };
        match operator.exchange(&report, LONG_POLL_TIMEOUT) {
            Ok(reply) if reply.work != known => {
                unreachable.reset();
                known.clone_from(&reply.work);
                if sender.send(reply.work).is_err() {
                    return;
                }
            }
            Ok(_) => {
                unreachable.reset();
                thread::sleep(POLL_INTERVAL);
            }
            // The operator will come back; `known` then tells it what has been received.
            Err(_) => thread::sleep(unreachable.next_delay()),
        }
    }
}

/// Applies the operator's work, and collects its results.
pub struct WorkHandler {
    drainer: Drainer,
    pending: PendingJobs,
    lists_pending: bool,
    hand_over: HandOver,
}

impl WorkHandler {
    /// Creates it without work.
    pub fn new(command: FluxCommand, restored: bool) -> WorkHandler {
        let drains = Drainer::new(command.clone(), restored);
        WorkHandler {
            drainer: drains,
            // Its broker, which it starts, runs as the same user.
            hand_over: HandOver::new(command.clone(), rustix::process::geteuid().as_raw()),
            pending: PendingJobs::new(command),
            lists_pending: false,
        }
    }

    /// Applies work. The operator sends it repeatedly; work that has been applied is skipped.
    pub fn apply(&mut self, work: &[Work]) {
        self.lists_pending = work.contains(&Work::ListPending);
        if !self.lists_pending {
            self.pending.report_again();
        }
        let orders = work.iter().find_map(|work| match work {
            Work::Jobs(orders) => Some(orders.as_slice()),
            _ => None,
        });
        self.hand_over.set(orders.unwrap_or_default());
        for work in work {
            match work {
                Work::Drain(drain) => self.drainer.apply(drain),
                Work::Lead(_) | Work::Join(_) | Work::Invited(_) => {}
                Work::ListPending | Work::Jobs(_) => {}
            }
        }
    }

    /// The state of draining, for a report.
    pub fn drained(&mut self) -> Option<Drained> {
        self.drainer.status()
    }

    /// The delay before the next query of the instance: `delay`, or less while jobs are listed.
    pub fn query_delay(&self, delay: Duration) -> Duration {
        let is_busy = self.lists_pending || self.hand_over.has_orders();
        if is_busy { delay.min(LISTING_INTERVAL) } else { delay }
    }

    /// The pages of pending jobs to report, if requested and changed. `counts` is the number of jobs
    /// in the instance, if known.
    pub fn pending_pages(&mut self, counts: Option<JobCounts>) -> Vec<PendingPage> {
        if self.lists_pending { self.pending.changed_pages(counts) } else { Vec::new() }
    }

    /// The answers to orders about jobs.
    pub fn order_answers(&mut self) -> Vec<OrderAnswer> {
        self.hand_over.answers()
    }

    /// A page of pending jobs was not received: report all of them again.
    pub fn report_pending_again(&mut self) {
        self.pending.report_again();
    }
}
