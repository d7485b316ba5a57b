//! Copies this program to a directory that is shared with other containers.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::ending::{chain, say};
use crate::files::{self, WriteError};

/// The name of the copy.
const NAME: &str = "flux-operator-agent";

#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("failed to read this program")]
    Read { source: io::Error },
    #[error("failed to copy this program")]
    Write { source: WriteError },
}

/// Copies this program into `directory`.
pub fn run(directory: &Path) -> ExitCode {
    match copy(directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn copy(directory: &Path) -> Result<(), CopyError> {
    let write = |source| CopyError::Write { source };
    // Not its path: the file there may have been replaced since this process started.
    let program = std::fs::read("/proc/self/exe").map_err(|source| CopyError::Read { source })?;
    files::create_directory(directory).map_err(write)?;
    files::write(&directory.join(NAME), program, 0o755).map_err(write)
}
