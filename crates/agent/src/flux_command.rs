//! Queries the broker with Flux's own commands.
//!
//! Frequent queries use commands written in C: those written in Python take long
//! enough to disturb jobs on a small machine.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// How long a command may take. A healthy broker answers in milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum output that is read: a line for each of 100,000 brokers.
const MAX_BYTES: u64 = 8 << 20;

/// The maximum of its error messages that is read.
const MAX_ERROR_BYTES: u64 = 64 << 10;

/// Why a command has no output that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// It could not be started, or did not exit in time.
    NoExit,
    /// It failed; the beginning of what it printed on its standard error.
    Failed(String),
    /// Its output is longer than what is read.
    TooLong,
}

/// What a command that exited in time has printed.
struct Printed {
    output: String,
    /// Otherwise the rest was cut off, and the command was usually killed by that.
    is_whole: bool,
    errors: String,
    success: bool,
}

/// Runs `flux` commands against one broker.
#[derive(Clone, Debug)]
pub struct FluxCommand {
    /// The program `flux`.
    pub flux: PathBuf,
    /// The broker's URI.
    pub uri: String,
}

impl FluxCommand {
    /// The output of `flux WORDS`, or its beginning if it is too long, if it succeeds in time.
    pub fn query(&self, words: &[&str]) -> Option<String> {
        command_output(&mut self.command(words))
    }

    /// The whole output of `flux WORDS`, if it succeeds in time, otherwise why there is none.
    pub fn try_query(&self, words: &[&str]) -> Result<String, CommandError> {
        let printed = run(&mut self.command(words)).ok_or(CommandError::NoExit)?;
        match printed {
            Printed { is_whole: false, .. } => Err(CommandError::TooLong),
            Printed { success: false, errors, .. } => Err(CommandError::Failed(errors)),
            Printed { output, .. } => Ok(output),
        }
    }

    /// The output of `flux WORDS`, if it exits in time; if it fails, what it has printed before.
    pub fn query_partial(&self, words: &[&str]) -> Option<String> {
        Some(run(&mut self.command(words))?.output)
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

/// The output of a command, or its beginning if it is too long, if it succeeds in time.
pub fn command_output(command: &mut Command) -> Option<String> {
    let Printed { output, is_whole, success, .. } = run(command)?;
    (success || !is_whole).then_some(output)
}

/// Runs a command; `None` if it does not exit in time.
fn run(command: &mut Command) -> Option<Printed> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().ok()?;
    let deadline = Instant::now() + TIMEOUT;
    let output = read(child.stdout.take()?, MAX_BYTES, AfterLimit::Close);
    let errors = read(child.stderr.take()?, MAX_ERROR_BYTES, AfterLimit::Discard);
    // It is closed just before it exits.
    let output = output.recv_timeout(TIMEOUT).ok().flatten();
    let success = wait_for_exit(&mut child, deadline)?;
    let time = deadline.saturating_duration_since(Instant::now());
    let errors = if success { None } else { errors.recv_timeout(time).ok().flatten() };
    let (output, is_whole) = output?;
    Some(Printed { output, is_whole, errors: errors.unwrap_or_default().0, success })
}

/// What happens with what a child prints beyond a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterLimit {
    /// The pipe is closed, which usually kills the child.
    Close,
    /// It is read all the same.
    Discard,
}

/// Reads the beginning of what a child prints, and whether that is all.
fn read(
    mut from: impl Read + Send + 'static,
    limit: u64,
    after: AfterLimit,
) -> Receiver<Option<(String, bool)>> {
    let (sender, text) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = from.by_ref().take(limit).read_to_end(&mut bytes).ok();
        let text = read.map(|read| {
            let is_whole = u64::try_from(read).is_ok_and(|read| read < limit);
            (String::from_utf8_lossy(&bytes).into_owned(), is_whole)
        });
        // There is no receiver any more if it took too long.
        let _ = sender.send(text);
        if after == AfterLimit::Discard {
            // It fails if the child is killed meanwhile, which is fine.
            let _ = io::copy(&mut from, &mut io::sink());
        }
    });
    text
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
        let failed = shell().try_query(&["-c", "echo out; echo why >&2; exit 1"]);
        assert_eq!(failed, Err(CommandError::Failed("why\n".into())));
        assert_eq!(missing.try_query(&[]), Err(CommandError::NoExit));
    }

    #[test]
    fn long_output_is_truncated() {
        // It is killed when its output is closed.
        let words = ["-c", "exec head -c 20000000 /dev/zero"];
        assert_eq!(shell().query(&words).unwrap().len() as u64, MAX_BYTES);
        assert_eq!(shell().try_query(&words), Err(CommandError::TooLong));
        let noisy = "head -c 200000 /dev/zero >&2 && echo out";
        assert_eq!(shell().query(&["-c", noisy]).as_deref(), Some("out\n"));
    }
}
