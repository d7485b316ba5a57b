//! Signals that stop a program.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT. If signal handlers cannot be installed, waits forever; the signals
/// then have their default effect.
pub async fn wait_for_stop_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
