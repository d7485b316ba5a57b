//! Work from the operator: it comes with the reply to a report, and, so that it
//! comes at once, with the reply to a request that the operator holds back until
//! there is other work.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use flux_operator_wire::{Drained, PendingPage, Report, Work};

use crate::delay::Delay;
use crate::drain::Drains;
use crate::flux_command::FluxCommand;
use crate::operator::Operator;
use crate::pending::PendingJobs;

/// Longer than the operator holds a request back.
const LIMIT: Duration = Duration::from_secs(40);

/// Between two requests if there was nothing new: an operator that answers at once
/// must not be asked all the time.
const PAUSE: Duration = Duration::from_secs(1);

/// Between two tries while nobody listens.
const ALONE: Delay = Delay::new(Duration::from_secs(1), Duration::from_secs(30));

/// Waits for work, and passes on what is new, until nobody takes it any more.
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
            // It comes back, and then we say what we know.
            Err(_) => thread::sleep(alone.grow()),
        }
    }
}

/// What the operator wants of this agent, and what became of it.
pub struct Duties {
    drains: Drains,
    pending: PendingJobs,
    lists_pending: bool,
}

impl Duties {
    /// Nothing is wanted yet.
    pub fn new(command: FluxCommand, restored: bool) -> Duties {
        let drains = Drains::new(command.clone(), restored);
        Duties { drains, pending: PendingJobs::new(command), lists_pending: false }
    }

    /// Carries work out. The operator says it again and again; what is done is left
    /// alone.
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

    /// What a report says of draining.
    pub fn drained(&mut self) -> Option<Drained> {
        self.drains.carried_out()
    }

    /// What has to be told of jobs that wait.
    pub fn pending(&mut self) -> Vec<PendingPage> {
        if self.lists_pending { self.pending.changed() } else { Vec::new() }
    }

    /// What was told of jobs that wait has not arrived.
    pub fn pending_lost(&mut self) {
        self.pending.forget();
    }
}
