//! File operations whose errors contain the path.
//!
//! `std::io::Error` does not contain the path, and most failures of a testbed are about files.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} {path:?}")]
pub struct FileError {
    /// What was attempted, as in "failed to {action}".
    pub action: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

/// Turns an `io::Error` into a `FileError`, for `map_err`.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError { action, path, source }
}

/// Creates a directory and its parents; it may already exist.
pub(crate) fn create_directory(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(failed("create directory", path))
}

/// Creates a directory that only its owner can enter; it may already exist.
pub(crate) fn create_private_directory(path: &Path) -> Result<(), FileError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed("create directory", path))
}

/// Writes a whole file.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), FileError> {
    fs::write(path, content).map_err(failed("write", path))
}

/// Writes a file that only its owner can read, for keys.
pub(crate) fn write_private(path: &Path, content: impl AsRef<[u8]>) -> Result<(), FileError> {
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(content.as_ref()))
        .map_err(failed("write", path))
}

/// Replaces a file atomically: a reader sees either the old or the new content.
pub(crate) fn replace(path: &Path, content: impl AsRef<[u8]>) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    write(&new, content)?;
    fs::rename(&new, path).map_err(failed("replace", path))
}

/// Removes a directory with its content; it need not exist.
pub(crate) fn remove_tree(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// The last `count` lines of a log. An unreadable log has none.
pub(crate) fn last_lines(path: &Path, count: usize) -> Vec<String> {
    let content = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_has_the_new_content_and_no_other_file_is_left() {
        let directory = std::env::temp_dir().join(format!("testbed-files-{}", std::process::id()));
        create_private_directory(&directory).unwrap();
        let path = directory.join("state.json");
        replace(&path, "one").unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        remove_tree(&directory).unwrap();
        remove_tree(&directory).unwrap();
    }

    #[test]
    fn an_error_names_the_file() {
        let error = write(Path::new("/nonexistent/file"), "").unwrap_err();
        assert_eq!(error.to_string(), r#"failed to write "/nonexistent/file""#);
    }
}
