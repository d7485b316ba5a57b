//! Printing, for every command of the program.
//!
//! `println!` panics when its reader has left, as `head` does once it has read enough. Here
//! a closed standard output is an error like any other, so that a command still cleans up
//! behind itself, and [`failure`] ends the program without a word about it. A message on
//! standard error that nobody reads is lost, and changes nothing.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Error, Result};

/// The exit code of a program whose reader has left: what shells show for one that
/// SIGPIPE, signal 13, has ended.
const READER_LEFT: u8 = 128 + 13;

/// Nobody reads standard output any more.
///
/// A type of its own, because a broken connection to the API server is a broken pipe too,
/// and must be reported.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
struct Closed;

/// Writes to standard output, at once and as it is.
pub(crate) fn output(text: impl AsRef<[u8]>) -> Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_ref()).and_then(|()| output.flush()).map_err(failed)
}

/// Writes a line to standard error.
pub(crate) fn message(line: impl Display) {
    // In one piece, so that lines of several programs do not mix.
    let _nobody_reads = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// What an error of writing to a standard stream means.
pub(crate) fn failed(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Error::new(Closed),
        _ => Error::new(error).context("failed to print"),
    }
}

/// Reports why a command failed, with `prefix` before it. Returns the exit code.
pub(crate) fn failure(prefix: &str, error: &Error) -> ExitCode {
    if error.is::<Closed>() {
        return ExitCode::from(READER_LEFT);
    }
    message(format_args!("{prefix}: {error:#}"));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn a_reader_that_left_is_no_failure_to_report() {
        let left = failed(ErrorKind::BrokenPipe.into()).context("while listing");
        assert_eq!(failure("error", &left), ExitCode::from(141));
        assert_eq!(failure("error", &failed(ErrorKind::StorageFull.into())), ExitCode::FAILURE);
    }

    #[test]
    fn a_broken_connection_is_reported() {
        let broken = Error::new(io::Error::from(ErrorKind::BrokenPipe)).context("failed to list");
        assert_eq!(failure("error", &broken), ExitCode::FAILURE);
    }
}
