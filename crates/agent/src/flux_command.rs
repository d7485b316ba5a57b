//! Queries the broker with Flux's own commands.
//!
//! Frequent queries use commands written in C: those written in Python take long
//! enough to disturb jobs on a small machine.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// How long a command may take. A healthy broker answers in milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum output that is read: a line for each of 100,000 brokers.
const MAX_BYTES: u64 = 8 << 20;

/// Runs `flux` commands against one broker.
#[derive(Clone, Debug)]
pub struct FluxCommand {
    /// The program `flux`.
    pub flux: PathBuf,
    /// The broker's URI.
    pub uri: String,
}

impl FluxCommand {
    /// The output of `flux WORDS`, if it succeeds in time.
    pub fn query(&self, words: &[&str]) -> Option<String> {
        command_output(&mut self.command(words))
    }

    /// The output of `flux WORDS`, if it exits in time; if it fails, what it has printed before.
    pub fn query_partial(&self, words: &[&str]) -> Option<String> {
        Some(output_and_success(&mut self.command(words))?.0)
    }

    /// Whether `flux WORDS` succeeds in time.
    pub fn run(&self, words: &[&str]) -> bool {
        self.query(words).is_some()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.flux);
        command.args(words).env("FLUX_URI", &self.uri);
        command
    }
}

/// The output of a command, if it succeeds in time.
pub fn command_output(command: &mut Command) -> Option<String> {
    let (text, success) = output_and_success(command)?;
    success.then_some(text)
}

/// The output of a command that exits in time, and whether it succeeds.
fn output_and_success(command: &mut Command) -> Option<(String, bool)> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = piped.spawn().ok()?;
    let output = child.stdout.take()?;
    let deadline = Instant::now() + TIMEOUT;
    let (sender, whole) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.take(MAX_BYTES).read_to_end(&mut text);
        // There is no receiver any more if it took too long.
        let _ = sender.send(read.ok().map(|_| String::from_utf8_lossy(&text).into_owned()));
    });
    // Its output is closed just before it exits.
    let text = whole.recv_timeout(TIMEOUT).ok().flatten();
    let success = wait_for_exit(&mut child, deadline);
    text.zip(success)
}

/// Whether the child succeeds; `None` if it does not exit in time.
fn wait_for_exit(child: &mut Child, deadline: Instant) -> Option<bool> {
    let mut delay = Backoff::new(Duration::from_micros(200), Duration::from_millis(50));
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) => thread::sleep(delay.next_delay()),
            Err(_) => break,
        }
    }
    // This fails if it has just exited, which is fine.
    let _ = child.kill();
    let _ = child.wait();
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> FluxCommand {
        FluxCommand { flux: "/bin/sh".into(), uri: "local:///x".into() }
    }

    #[test]
    fn the_output_of_a_command_is_returned_if_it_succeeds() {
        let asked = shell().query(&["-c", "echo $FLUX_URI"]);
        assert_eq!(asked.as_deref(), Some("local:///x\n"));
        assert_eq!(shell().query(&["-c", "echo no; exit 1"]), None);
        let partial = shell().query_partial(&["-c", "echo first; exit 1"]);
        assert_eq!(partial.as_deref(), Some("first\n"));
        assert!(shell().run(&["-c", ":"]));
        let missing = FluxCommand { flux: "/no/flux".into(), ..shell() };
        assert!(!missing.run(&[]));
    }

    #[test]
    fn long_output_is_truncated() {
        let long = shell().query(&["-c", "head -c 20000000 /dev/zero || :"]).unwrap();
        assert_eq!(long.len() as u64, MAX_BYTES);
    }
}
