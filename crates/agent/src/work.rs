//! Work from the operator: it comes with the reply to a report, and, so that it
//! comes at once, with the reply to a request that the operator holds back until
//! there is other work.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use flux_operator_wire::{Drained, Report, Work};

use crate::delay::Delay;
use crate::drain::Drains;
use crate::flux_command::FluxCommand;
use crate::operator::Operator;

/// Longer than the operator holds a request back.
const LIMIT: Duration = Duration::from_secs(40);

/// Between two requests if there was nothing new: an operator that answers at once
/// must not be asked all the time.
const PAUSE: Duration = Duration::from_secs(1);

/// Between two tries while nobody listens.
const ALONE: Delay = Delay::new(Duration::from_secs(1), Duration::from_secs(30));

/// Waits for work, and passes on what is new, until nobody takes it any more.
pub fn wait_for(mut operator: Operator, rank: u32, news: &Sender<Vec<Work>>) {
    let mut known = Vec::new();
    let mut alone = ALONE;
    loop {
        let report = Report { rank, wants_work: Some(known.clone()), ..Report::default() };
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
    command: FluxCommand,
    drains: Drains,
    stopped: bool,
}

impl Duties {
    /// Nothing is wanted yet.
    pub fn new(command: FluxCommand, restored: bool) -> Duties {
        let drains = Drains::new(command.clone(), restored);
        Duties { command, drains, stopped: false }
    }

    /// Carries work out. The operator says it again and again; what is done is left
    /// alone.
    pub fn carry_out(&mut self, work: &[Work]) {
        for work in work {
            match work {
                Work::Drain(drain) => self.drains.make_so(drain),
                // The command ends with the instance, or is ended by its limit.
                Work::Stop if !self.stopped => {
                    self.stopped = true;
                    self.command.tell(&["shutdown"]);
                }
                Work::Lead(_) | Work::Stop => {}
            }
        }
    }

    /// What a report says of draining.
    pub fn drained(&mut self) -> Option<Drained> {
        self.drains.carried_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_stopped_once() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let flux = directory.path().join("flux");
        let script = format!("#!/bin/sh\necho \"$@\" >>{}\n", log.display());
        crate::files::write(&flux, script, 0o755).unwrap();
        let mut duties = Duties::new(FluxCommand { flux, uri: "local:///x".into() }, false);
        duties.carry_out(&[Work::Lead([10, 0, 0, 1].into()), Work::Stop]);
        duties.carry_out(&[Work::Stop]);
        assert_eq!(std::fs::read_to_string(log).unwrap(), "shutdown\n");
    }
}
