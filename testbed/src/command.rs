//! Runs other programs to completion: `ip`, `go`, `ctr`, `apt-get`.

use std::io;
use std::process::{Command, ExitStatus, Stdio};

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The program could not be started.
    #[error("failed to start {program:?}")]
    Start {
        /// The program's name or path.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The program exited with an error.
    #[error("{line:?} exited with {status}: {message}")]
    Failed {
        /// The whole command line.
        line: String,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its standard error.
        message: String,
    },
}

/// Runs a program without input and returns its standard output.
pub(crate) fn run(command: &mut Command) -> Result<String, CommandError> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| CommandError::Start {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(CommandError::Failed {
            line: line_of(command),
            status: output.status,
            message: last_characters(message.trim(), 2000).to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Finds a program in this process' `PATH` or in the administrator's directories, which are not in
/// an ordinary user's `PATH` on Debian.
pub(crate) fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_PATH.split(':').map(Into::into))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// The `PATH` of components, after the testbed's own programs.
pub(crate) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn line_of(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn last_characters(text: &str, count: usize) -> &str {
    match text.char_indices().rev().nth(count) {
        Some((index, character)) => &text[index + character.len_utf8()..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_line_and_the_message() {
        let error = run(Command::new("sh").args(["-c", "echo no >&2; exit 3"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#""sh -c echo no >&2; exit 3" exited with exit status: 3: no"#
        );
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("no-such-program")).unwrap_err();
        assert_eq!(error.to_string(), r#"failed to start "no-such-program""#);
        assert_eq!(find("no-such-program"), None);
    }

    #[test]
    fn only_the_end_of_a_long_message_is_kept() {
        assert_eq!(last_characters("abc", 5), "abc");
        assert_eq!(last_characters("abcdef", 3), "def");
        assert_eq!(last_characters("aäöü", 2), "öü");
    }
}
