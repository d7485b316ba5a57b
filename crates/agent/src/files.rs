//! Writes files atomically.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file or directory could not be created.
#[derive(Debug, thiserror::Error)]
#[error("failed to write {path:?}")]
pub struct WriteError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Writes a file with these permissions, atomically replacing an existing one.
///
/// A symbolic link at `path` is replaced, not followed: some of our files have well-known names
/// in directories that others can write to.
pub fn write(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(mode);
    let mut file = match options.open(&draft) {
        // Left over from an earlier process with our process ID.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&draft).and_then(|()| options.open(&draft)).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    // The umask may have cleared some of the bits.
    let exact = fs::Permissions::from_mode(mode);
    file.write_all(content.as_ref())
        .and_then(|()| file.set_permissions(exact))
        .and_then(|()| fs::rename(&draft, path))
        .map_err(failed)
}

/// Creates a symbolic link to `target`, replacing an existing link.
pub fn link(target: &Path, path: &Path) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    std::os::unix::fs::symlink(target, path).map_err(failed)
}

/// Creates a directory and its parents.
pub fn create_directory(path: &Path) -> Result<(), WriteError> {
    fs::create_dir_all(path).map_err(|source| WriteError { path: path.to_owned(), source })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Writes a script, in another process: a program cannot be executed while it is open for
    /// writing, and a process that another test starts has copies of all our open files for a
    /// moment.
    pub fn write_script(path: &Path, script: &str) {
        let write = Command::new("/bin/sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(path)
            .stdin(Stdio::piped())
            .spawn();
        let mut write = write.unwrap();
        write.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(write.wait().unwrap().success());
    }

    #[test]
    fn a_file_is_replaced_with_the_permissions_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (content, mode) in [("one", 0o600), ("two", 0o755)] {
            write(&path, content, mode).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        let path = directory.path().join("file");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        write(&path, "ours", 0o644).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
    }
}
