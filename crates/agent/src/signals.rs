//! The signals that mean: stop.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// All of them. A terminal that is closed or interrupted means the same to us as
/// a kubelet that wants its pod gone.
pub const STOP: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];

/// Calls `stop` at each signal, for as long as it wants to be called.
pub fn on_stop(mut stop: impl FnMut() -> bool + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(STOP)?;
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
    let mut signals = Signals::new(STOP)?;
    signals.forever().next();
    Ok(())
}

/// Keeps signals from ending this process while the result lives. Programs that
/// it starts have them as usual.
pub fn ignore_stop() -> io::Result<Signals> {
    Signals::new(STOP)
}
