//! The signals that stop the agent.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The signals: of a kubelet that stops the pod, and of a terminal that is interrupted or
/// closed.
pub const STOP_SIGNALS: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];

/// Calls `stop` at each signal, until it returns false.
pub fn on_stop(mut stop: impl FnMut() -> bool + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(STOP_SIGNALS)?;
    thread::spawn(move || {
        for _ in signals.forever() {
            if !stop() {
                return;
            }
        }
    });
    Ok(())
}

/// Waits for a signal.
pub fn wait_for_stop() -> io::Result<()> {
    let mut signals = Signals::new(STOP_SIGNALS)?;
    signals.forever().next();
    Ok(())
}

/// Ignores the signals while the result lives. Child processes handle them as usual.
pub fn ignore_stop() -> io::Result<Signals> {
    Signals::new(STOP_SIGNALS)
}
