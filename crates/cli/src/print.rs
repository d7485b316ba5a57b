//! Printing, for every command of the program.
//!
//! `println!` panics when standard output is closed, as by `head` once it has read enough. Here a
//! closed standard output is an error like any other, so that a command can still clean up, and
//! [`failure`] does not print it. A message to a closed standard error is dropped.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Error, Result};

/// The exit code of a program whose standard output was closed: what shells report for a program
/// that was killed by SIGPIPE (signal 13).
const BROKEN_PIPE_CODE: u8 = 128 + 13;

/// Standard output is closed.
///
/// This is a separate type because a broken connection to the API server is a broken pipe too, and
/// must be reported.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
struct OutputClosed;

/// Writes to standard output, unbuffered and unchanged.
pub(crate) fn output(text: impl AsRef<[u8]>) -> Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_ref()).and_then(|()| output.flush()).map_err(write_error)
}

/// Writes a line to standard error.
pub(crate) fn message(line: impl Display) {
    // In one piece, so that lines of several programs do not mix.
    let _closed = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Converts an error of writing to a standard stream.
pub(crate) fn write_error(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Error::new(OutputClosed),
        _ => Error::new(error).context("failed to print"),
    }
}

/// Prints why a command failed, after `prefix`. Returns the exit code.
pub(crate) fn failure(prefix: &str, error: &Error) -> ExitCode {
    if error.is::<OutputClosed>() {
        return ExitCode::from(BROKEN_PIPE_CODE);
    }
    message(format_args!("{prefix}: {error:#}"));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn a_closed_output_is_not_reported() {
        let closed = write_error(ErrorKind::BrokenPipe.into()).context("while listing");
        assert_eq!(failure("error", &closed), ExitCode::from(141));
        assert_eq!(
            failure("error", &write_error(ErrorKind::StorageFull.into())),
            ExitCode::FAILURE
        );
    }

    #[test]
    fn a_broken_connection_is_reported() {
        let broken = Error::new(io::Error::from(ErrorKind::BrokenPipe)).context("failed to list");
        assert_eq!(failure("error", &broken), ExitCode::FAILURE);
    }
}
