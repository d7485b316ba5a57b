//! Asking the broker something, with Flux's own commands.
//!
//! What is asked all the time is asked with commands written in C: those in
//! Python take long enough to disturb the jobs of a small machine.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::delay::Delay;

/// How long an answer may take. A broker that is alive answers in milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// The longest answer that is read: a line for each of 100,000 brokers.
const MAX_BYTES: u64 = 8 << 20;

/// The way to one broker.
#[derive(Clone, Debug)]
pub struct FluxCommand {
    /// The program `flux`.
    pub flux: PathBuf,
    /// The broker's address.
    pub uri: String,
}

impl FluxCommand {
    /// What `flux WORDS` prints, if it succeeds in time.
    pub fn ask(&self, words: &[&str]) -> Option<String> {
        let mut command = Command::new(&self.flux);
        output(command.args(words).env("FLUX_URI", &self.uri))
    }

    /// Whether `flux WORDS` succeeds in time.
    pub fn tell(&self, words: &[&str]) -> bool {
        self.ask(words).is_some()
    }
}

/// What a command prints, if it succeeds in time.
pub fn output(command: &mut Command) -> Option<String> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = piped.spawn().ok()?;
    let output = child.stdout.take()?;
    let deadline = Instant::now() + LIMIT;
    let (sender, whole) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.take(MAX_BYTES).read_to_end(&mut text);
        // Nobody waits for it any more if it took too long.
        let _ = sender.send(read.ok().map(|_| String::from_utf8_lossy(&text).into_owned()));
    });
    // Its output ends just before it does.
    let text = whole.recv_timeout(LIMIT).ok().flatten();
    let success = ended_well(&mut child, deadline);
    text.filter(|_| success)
}

fn ended_well(child: &mut Child, deadline: Instant) -> bool {
    let mut delay = Delay::new(Duration::from_micros(200), Duration::from_millis(50));
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => thread::sleep(delay.grow()),
            Err(_) => break,
        }
    }
    // One that ended just now needs no killing.
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
    fn an_answer_is_the_output_of_a_command_that_succeeds() {
        let asked = shell().ask(&["-c", "echo $FLUX_URI"]);
        assert_eq!(asked.as_deref(), Some("local:///x\n"));
        assert_eq!(shell().ask(&["-c", "echo no; exit 1"]), None);
        assert!(shell().tell(&["-c", ":"]));
        let missing = FluxCommand { flux: "/no/flux".into(), ..shell() };
        assert!(!missing.tell(&[]));
    }

    #[test]
    fn a_long_answer_is_cut() {
        let long = shell().ask(&["-c", "head -c 20000000 /dev/zero || :"]).unwrap();
        assert_eq!(long.len() as u64, MAX_BYTES);
    }
}
