//! Copies this program to a directory that is shared with other containers.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::files::{self, WriteError};
use crate::termination::{error_chain, log};

/// The name of the copy.
const PROGRAM_NAME: &str = "flux-operator-agent";

#[derive(Debug, thiserror::Error)]
enum CopyProgramError {
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
            log(&error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn copy(directory: &Path) -> Result<(), CopyProgramError> {
    let write = |source| CopyProgramError::Write { source };
    // Not its path: the file there may have been replaced since this process started.
    let program =
        std::fs::read("/proc/self/exe").map_err(|source| CopyProgramError::Read { source })?;
    files::create_directory(directory).map_err(write)?;
    files::write(&directory.join(PROGRAM_NAME), program, 0o755).map_err(write)
}
