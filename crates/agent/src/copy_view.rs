//! Copies a view, the directory that contains Flux, out of its image.
//!
//! Runs in the view's image, which need not contain anything but the view. The
//! copy is mounted at the paths it was built for, so links and paths in programs
//! stay valid.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::termination::{error_chain, log};

/// The directories of a view image, and their names in the copy.
const VIEW_DIRECTORIES: [(&str, &str); 2] =
    [("/opt/views", "views"), ("/opt/software", "software")];

#[derive(Debug, thiserror::Error)]
enum CopyViewError {
    #[error(
        "the image has no Flux view in {directory}/._view: set flux.container.image to a view \
         image, or flux.container.disable if Flux is in the runner's own image"
    )]
    NoView { directory: String },
    #[error("failed to copy {path:?}")]
    Copy { path: PathBuf, source: io::Error },
}

/// Copies the view of this image into `directory`.
pub fn run(directory: &Path) -> ExitCode {
    match copy(Path::new("/"), directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn copy(image: &Path, directory: &Path) -> Result<(), CopyViewError> {
    for (place, name) in VIEW_DIRECTORIES {
        let source = image.join(place.trim_start_matches('/'));
        let target = directory.join(name);
        let failed = |source| CopyViewError::Copy { path: target.clone(), source };
        if name == "views" && !source.join("._view").is_dir() {
            return Err(CopyViewError::NoView { directory: place.to_owned() });
        }
        // Left by a container that was interrupted.
        match fs::remove_dir_all(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        if source.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            // A view without links to software; the mount still needs a directory.
            fs::create_dir_all(&target).map_err(failed)?;
        }
    }
    Ok(())
}

/// Copies a directory with modes and links. Anything but files, links and directories is
/// skipped.
fn copy_tree(source: &Path, target: &Path) -> Result<(), CopyViewError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| CopyViewError::Copy { path, source }
    };
    fs::create_dir_all(target).map_err(failed(target))?;
    for entry in fs::read_dir(source).map_err(failed(source))? {
        let entry = entry.map_err(failed(source))?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        let kind = entry.file_type().map_err(failed(&from))?;
        if kind.is_dir() {
            copy_tree(&from, &to)?;
        } else if kind.is_symlink() {
            let link = fs::read_link(&from).map_err(failed(&from))?;
            symlink(link, &to).map_err(failed(&to))?;
        } else if kind.is_file() {
            fs::copy(&from, &to).map_err(failed(&from))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_view_is_copied_with_links_and_modes_repeatedly() {
        let image = tempfile::tempdir().unwrap();
        let view = image.path().join("opt/views/._view/hash/bin");
        let software = image.path().join("opt/software/flux/bin");
        fs::create_dir_all(&view).unwrap();
        fs::create_dir_all(&software).unwrap();
        crate::files::write(&software.join("flux"), "program", 0o755).unwrap();
        symlink("/opt/software/flux/bin/flux", view.join("flux")).unwrap();
        let target = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            copy(image.path(), target.path()).unwrap();
            let link = fs::read_link(target.path().join("views/._view/hash/bin/flux")).unwrap();
            assert_eq!(link, Path::new("/opt/software/flux/bin/flux"));
            let program = target.path().join("software/flux/bin/flux");
            assert_eq!(fs::metadata(program).unwrap().permissions().mode() & 0o777, 0o755);
        }
    }

    #[test]
    fn a_view_may_have_no_software_but_must_exist() {
        let image = tempfile::tempdir().unwrap();
        let target = tempfile::tempdir().unwrap();
        let error = copy(image.path(), target.path()).unwrap_err().to_string();
        assert!(error.contains("flux.container.image"), "{error}");
        fs::create_dir_all(image.path().join("opt/views/._view/hash/bin")).unwrap();
        copy(image.path(), target.path()).unwrap();
        assert!(target.path().join("software").is_dir());
    }
}
