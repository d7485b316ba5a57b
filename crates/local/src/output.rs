//! The output of one of several clusters: whole lines, prefixed with its name.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// How long to wait for the rest of the output once the cluster has finished. A process that
/// the command left behind may keep it open forever.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Forwards the output of a process.
#[derive(Debug)]
pub(crate) struct OutputForwarder {
    /// Closed when everything has been forwarded.
    done: Receiver<()>,
}

impl OutputForwarder {
    /// Forwards a process's standard output and standard error to this program's own.
    pub(crate) fn spawn(child: &mut Child, name: &str) -> OutputForwarder {
        let (done_sender, done) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            forward(output, name.to_owned(), done_sender.clone(), std::io::stdout);
        }
        if let Some(errors) = child.stderr.take() {
            forward(errors, name.to_owned(), done_sender, std::io::stderr);
        }
        OutputForwarder { done }
    }

    /// Waits until everything has been forwarded.
    pub(crate) fn finish(self) {
        // Nothing is ever sent, so this returns when the last sender is dropped or at the timeout.
        let _ = self.done.recv_timeout(DRAIN_TIMEOUT);
    }
}

fn forward<R, W>(from: R, name: String, telling: Sender<()>, to: fn() -> W)
where
    R: Read + Send + 'static,
    W: Write + 'static,
{
    thread::spawn(move || {
        let _telling = telling;
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            // In one write, so that lines of several clusters do not mix. An error means that
            // the reader has closed our output, which must not stop the command.
            let _ = to().write_all(&prefixed(&name, &line));
            line.clear();
        }
    });
}

fn prefixed(name: &str, line: &[u8]) -> Vec<u8> {
    let mut text = format!("{name} | ").into_bytes();
    text.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_prefixed_and_terminated() {
        assert_eq!(prefixed("a", b"word\n"), b"a | word\n");
        assert_eq!(prefixed("a", b"\xff"), b"a | \xff\n");
    }
}
