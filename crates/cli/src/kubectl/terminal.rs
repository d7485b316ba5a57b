//! Connects our terminal to a remote program.

use futures::SinkExt;
use futures::channel::mpsc::Sender;
use kube::api::TerminalSize;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

/// Raw mode: keys, including ^C, go directly to the program. Dropping it restores the terminal.
pub(super) struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Puts the terminal on standard input into raw mode.
    pub(super) fn enter() -> std::io::Result<RawMode> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Drain, &raw)?;
        Ok(RawMode { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A closed terminal need not be restored.
        let _closed = tcsetattr(stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Sends the size of our terminal, now and whenever it changes.
pub(super) async fn send_sizes(mut sizes: Sender<TerminalSize>) {
    let Ok(mut changes) = signal(SignalKind::window_change()) else { return };
    loop {
        if let Ok(size) = tcgetwinsize(stdin()) {
            let size = TerminalSize { width: size.ws_col, height: size.ws_row };
            if sizes.send(size).await.is_err() {
                return;
            }
        }
        changes.recv().await;
    }
}
