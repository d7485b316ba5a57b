//! The archive: the state of an instance, kept until the next instance starts.
//!
//! Flux writes it when it shuts down. It writes to a draft beside the archive,
//! which replaces the archive once the broker has exited by itself, so that a
//! lead that is killed while writing does not destroy the previous archive.

use std::io;
use std::path::{Path, PathBuf};

use crate::files;
use crate::termination::{error_chain, log};

/// The path of the draft. It keeps the archive's extension, because Flux chooses the
/// compression by it.
pub fn draft_path(archive: &str) -> PathBuf {
    let archive = Path::new(archive);
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    archive.with_file_name(format!(".new-{name}"))
}

/// Creates the archive's directory and removes an old draft. If that fails, Flux reports an
/// error when it writes.
pub fn prepare(archive: &str) {
    if let Some(directory) = Path::new(archive).parent()
        && let Err(error) = files::create_directory(directory)
    {
        log(&error_chain(&error));
    }
    remove(&draft_path(archive));
}

/// Replaces the archive by the draft, if Flux has written one.
pub fn commit(archive: &str) {
    let draft = draft_path(archive);
    if draft.exists()
        && let Err(error) = std::fs::rename(&draft, archive)
    {
        log(&format!("failed to save the archive {archive:?}: {error}"));
    }
}

fn remove(draft: &Path) {
    match std::fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log(&format!("failed to remove {draft:?}: {error}"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_replaced_only_by_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/state.tgz");
        let archive = path.to_str().unwrap();
        prepare(archive);
        commit(archive);
        assert!(!path.exists());
        std::fs::write(draft_path(archive), "cut off").unwrap();
        prepare(archive);
        commit(archive);
        assert!(!path.exists());
        for state in ["one", "two"] {
            std::fs::write(draft_path(archive), state).unwrap();
            commit(archive);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), state);
        }
        assert!(draft_path(archive).to_string_lossy().ends_with(".tgz"));
    }
}
