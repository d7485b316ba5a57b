//! Work from the operator. It is in the reply to each report, and, to receive it
//! without delay, in the reply to a long poll, which the operator delays until
//! there is new work.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use flux_operator_wire::{Drained, PendingPage, Report, Work};

use crate::delay::Delay;
use crate::drain::Drains;
use crate::flux_command::FluxCommand;
use crate::operator::Operator;
use crate::pending::PendingJobs;

/// The timeout of a long poll: longer than the operator delays its reply.
const LIMIT: Duration = Duration::from_secs(40);

/// The delay between two long polls without new work, in case the operator replies at once.
const PAUSE: Duration = Duration::from_secs(1);

/// The delay between two attempts while the operator does not answer.
const ALONE: Delay = Delay::new(Duration::from_secs(1), Duration::from_secs(30));

/// Polls for work, and sends new work to `news` until the receiver is dropped.
pub fn wait_for(mut operator: Operator, news: &Sender<Vec<Work>>) {
    let mut known = Vec::new();
    let mut alone = ALONE;
    loop {
        let report = Report::WorkWanted { known: known.clone() };
        match operator.exchange(&report, LIMIT) {
            Ok(reply) if reply.work != known => {
                alone.reset();
                known.clone_from(&reply.work);
                if news.send(reply.work).is_err() {
                    return;
                }
            }
            Ok(_) => {
                alone.reset();
                thread::sleep(PAUSE);
            }
            // The operator will come back; `known` then tells it what has been received.
            Err(_) => thread::sleep(alone.grow()),
        }
    }
}

/// Applies the operator's work, and collects its results.
pub struct Duties {
    drains: Drains,
    pending: PendingJobs,
    lists_pending: bool,
}

impl Duties {
    /// Creates it without work.
    pub fn new(command: FluxCommand, restored: bool) -> Duties {
        let drains = Drains::new(command.clone(), restored);
        Duties { drains, pending: PendingJobs::new(command), lists_pending: false }
    }

    /// Applies work. The operator sends it repeatedly; work that has been applied is skipped.
    pub fn carry_out(&mut self, work: &[Work]) {
        self.lists_pending = work.contains(&Work::ListPending);
        if !self.lists_pending {
            self.pending.forget();
        }
        for work in work {
            match work {
                Work::Drain(drain) => self.drains.make_so(drain),
                Work::Lead(_) | Work::ListPending => {}
            }
        }
    }

    /// The state of draining, for a report.
    pub fn drained(&mut self) -> Option<Drained> {
        self.drains.carried_out()
    }

    /// The pages of pending jobs to report, if requested and changed.
    pub fn pending(&mut self) -> Vec<PendingPage> {
        if self.lists_pending { self.pending.changed() } else { Vec::new() }
    }

    /// A page of pending jobs was not received: report all of them again.
    pub fn pending_lost(&mut self) {
        self.pending.forget();
    }
}
