//! The readiness of this agent's broker, for the kubelet's probe.

use std::sync::{Arc, Mutex, PoisonError};

use crate::listener::Response;
use crate::notice::Notice;

/// Whether the broker is ready, or why it is not.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Mutex<Result<(), &'static str>>>);

impl Default for Readiness {
    fn default() -> Self {
        Readiness(Arc::new(Mutex::new(Err("the broker has not been started"))))
    }
}

impl Readiness {
    /// Records a notice of an inner stage. The lead is ready when the program has started, which
    /// is when enough brokers are online; a worker is ready when it is online itself.
    pub fn record(&self, notice: &Notice, leads: bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = match notice {
            // Two stages send notices, so this one may arrive after that of the program. Only
            // the loss of a broker resets readiness.
            Notice::BrokerStarted { .. } if state.is_ok() => return,
            Notice::BrokerStarted { .. } if leads => Err("waiting for enough brokers"),
            Notice::BrokerStarted { .. } => Err("waiting for the lead"),
            Notice::ProgramStarted if leads => Ok(()),
            Notice::Online if !leads => Ok(()),
            Notice::BrokerRestarting { .. } => Err("the broker exited and will be restarted"),
            Notice::BrokerExited { .. } => Err("the broker exited"),
            Notice::ShutdownRequested => Err("the instance is shutting down"),
            Notice::Failed { .. } => Err("the broker cannot be started"),
            Notice::Online | Notice::ProgramStarted | Notice::Flushed => return,
        };
        *state = ready;
    }

    /// The response to the kubelet.
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
        let exited = Notice::BrokerExited { code: 0, killed: false, last_output: String::new() };
        for (leads, ready) in [(true, Notice::ProgramStarted), (false, Notice::Online)] {
            let readiness = Readiness::default();
            let other = if leads { Notice::Online } else { Notice::ProgramStarted };
            for (notice, expected) in [
                (&started, 503),
                (&other, 503),
                (&ready, 200),
                (&Notice::Flushed, 200),
                // Arrives late, on a busy machine.
                (&started, 200),
                (&Notice::BrokerRestarting { code: 1 }, 503),
                (&started, 503),
                (&ready, 200),
                (&exited, 503),
            ] {
                readiness.record(notice, leads);
                let response = readiness.response();
                assert_eq!(response.status, expected, "{notice:?} {response:?}");
            }
        }
    }
}
