//! Where this program is, for stages that run it again.

use std::io;
use std::path::PathBuf;

/// This program by the name it was called, if that is a whole path. One program
/// may be several, told apart by the link it is called through, so that where
/// the link leads would be another program.
pub fn path() -> io::Result<PathBuf> {
    let called = std::env::args_os().next().map(PathBuf::from);
    match called.filter(|path| path.is_absolute()) {
        Some(path) => Ok(path),
        None => std::env::current_exe(),
    }
}
