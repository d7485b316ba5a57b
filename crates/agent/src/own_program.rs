//! The path of this program, to run it again as another stage.

use std::io;
use std::path::PathBuf;

/// The path that this program was called by, if it is absolute. A program that is called through
/// a link may act by the link's name, so the link must not be resolved.
pub fn path() -> io::Result<PathBuf> {
    let called = std::env::args_os().next().map(PathBuf::from);
    match called.filter(|path| path.is_absolute()) {
        Some(path) => Ok(path),
        None => std::env::current_exe(),
    }
}
