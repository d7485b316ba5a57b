//! Whether this agent's broker is ready, for the kubelet.

use std::sync::{Arc, Mutex, PoisonError};

use crate::listener::Response;
use crate::notice::Notice;

/// Whether the broker is ready; why not, if it is not.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Mutex<Result<(), &'static str>>>);

impl Default for Readiness {
    fn default() -> Self {
        Readiness(Arc::new(Mutex::new(Err("the broker has not been started"))))
    }
}

impl Readiness {
    /// Takes in what an inner stage said. The lead is ready when the program
    /// has started, which is when enough brokers are online; a worker is when it
    /// is online itself.
    pub fn take(&self, notice: &Notice, leads: bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = match notice {
            // Two processes speak: the program may have been heard before the one that
            // started its broker. Only the loss of a broker takes readiness back.
            Notice::BrokerStarted { .. } if state.is_ok() => return,
            Notice::BrokerStarted { .. } if leads => Err("waiting for enough brokers"),
            Notice::BrokerStarted { .. } => Err("waiting for the lead"),
            Notice::ProgramStarted if leads => Ok(()),
            Notice::Online if !leads => Ok(()),
            Notice::BrokerLost { .. } => Err("the broker ended and will be started again"),
            Notice::BrokerEnded { .. } | Notice::Released => Err("the broker ended"),
            Notice::Failed { .. } => Err("the broker cannot be started"),
            Notice::Online | Notice::ProgramStarted | Notice::Flushed => return,
        };
        *state = ready;
    }

    /// The answer to the kubelet.
    pub fn response(&self) -> Response {
        let ready = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match ready {
            Ok(()) => Response::new(200, "ready\n"),
            Err(why) => Response::new(503, format!("not ready: {why}\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_is_ready_with_its_program_and_a_worker_when_online() {
        let started = Notice::BrokerStarted { process: 1 };
        let ended = Notice::BrokerEnded { code: 0, killed: false, tail: String::new() };
        for (leads, ready) in [(true, Notice::ProgramStarted), (false, Notice::Online)] {
            let readiness = Readiness::default();
            let other = if leads { Notice::Online } else { Notice::ProgramStarted };
            for (notice, expected) in [
                (&started, 503),
                (&other, 503),
                (&ready, 200),
                (&Notice::Flushed, 200),
                // Heard late, on a busy machine.
                (&started, 200),
                (&Notice::BrokerLost { code: 1 }, 503),
                (&started, 503),
                (&ready, 200),
                (&ended, 503),
            ] {
                readiness.take(notice, leads);
                let response = readiness.response();
                assert_eq!(response.status, expected, "{notice:?} {response:?}");
            }
        }
    }
}
