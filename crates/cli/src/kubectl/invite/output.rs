//! Where the file of an invitation goes: to standard output, unless that is a terminal, or to a file
//! that only its owner can read.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use tempfile::NamedTempFile;

use crate::print;

/// Where to write.
#[derive(Debug)]
pub(super) enum Output {
    /// To standard output.
    Standard,
    /// To a file. Until everything is written, it is a temporary one beside it.
    File { path: PathBuf, temporary: NamedTempFile },
}

impl Output {
    /// Prepares to write. Fails if the text would appear on a terminal, or cannot be written.
    pub(super) fn open(file: Option<&Path>, stdout_is_terminal: bool) -> Result<Output> {
        let Some(path) = file else {
            if stdout_is_terminal {
                bail!(
                    "the invitation contains the keys of the Flux instance and is not printed to a \
                     terminal\n\
                     hint: redirect it with `> join.yaml`, or give --output-file join.yaml"
                );
            }
            return Ok(Output::Standard);
        };
        let shown = path.display();
        // Renaming would replace a device.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            bail!("{shown} is not a regular file\nhint: give another --output-file");
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // It has mode 0600.
        let temporary = NamedTempFile::new_in(folder).map_err(|error| {
            // The error itself names the temporary file, which means nothing to the user.
            let (folder, kind) = (folder.display(), error.kind());
            anyhow!("failed to create {shown}: {kind}\nhint: can you write to {folder}?")
        })?;
        Ok(Output::File { path: path.to_owned(), temporary })
    }

    /// The name of the file, to suggest commands with it.
    pub(super) fn file_name(&self) -> String {
        match self {
            Output::Standard => "join.yaml".to_owned(),
            Output::File { path, .. } => path.display().to_string(),
        }
    }

    /// Writes everything.
    pub(super) fn write(self, text: &str) -> Result<()> {
        match self {
            Output::Standard => print::output(text),
            Output::File { path, mut temporary } => {
                let what = || format!("failed to write {}", path.display());
                temporary.write_all(text.as_bytes()).with_context(what)?;
                temporary.persist(&path).with_context(what)?;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn keys_are_not_printed_to_a_terminal() {
        let error = Output::open(None, true).unwrap_err().to_string();
        let expected = "the invitation contains the keys of the Flux instance and is not printed \
            to a terminal\nhint: redirect it with `> join.yaml`";
        assert!(error.starts_with(expected), "{error}");
        assert!(matches!(Output::open(None, false), Ok(Output::Standard)));
    }

    #[test]
    fn only_the_owner_can_read_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("join.yaml");
        std::fs::write(&path, "before").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let output = Output::open(Some(&path), true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        assert_eq!(output.file_name(), path.display().to_string());
        output.write("keys").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "keys");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn nothing_is_left_over_if_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        drop(Output::open(Some(&folder.path().join("join.yaml")), false).unwrap());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn devices_and_missing_folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("device");
        symlink("/dev/null", &device).unwrap();
        for path in [device.as_path(), folder.path()] {
            let error = Output::open(Some(path), false).unwrap_err().to_string();
            assert!(error.contains("is not a regular file\nhint: "), "{error}");
        }
        let missing = folder.path().join("no/join.yaml");
        let error = Output::open(Some(&missing), false).unwrap_err().to_string();
        let expected = format!("failed to create {}: entity not found\nhint: ", missing.display());
        assert!(error.starts_with(&expected), "{error}");
    }
}
