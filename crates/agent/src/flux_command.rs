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
        let mut command = Command::new(&self.flux);
        command_output(command.args(words).env("FLUX_URI", &self.uri))
    }

    /// Whether `flux WORDS` succeeds in time.
    pub fn run(&self, words: &[&str]) -> bool {
        self.query(words).is_some()
    }
}

/// The output of a command, if it succeeds in time.
pub fn command_output(command: &mut Command) -> Option<String> {
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
    let success = wait_for_success(&mut child, deadline);
    text.filter(|_| success)
}

fn wait_for_success(child: &mut Child, deadline: Instant) -> bool {
    let mut delay = Backoff::new(Duration::from_micros(200), Duration::from_millis(50));
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => thread::sleep(delay.next_delay()),
            Err(_) => break,
        }
    }
    // This fails if it has just exited, which is fine.
    let _ = child.kill();
    let _ = child.wait();
    false
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
