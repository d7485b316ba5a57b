//! Files of a Go module that are used beside its program, such as its CRDs.

use std::fs;
use std::path::Path;

use crate::files::{self, FileError, failed};

/// Copies files, and the files of directories, from a module into `place`, which is replaced. They are
/// all in one directory there.
pub(crate) fn copy(module: &Path, paths: &[&str], place: &Path) -> Result<(), FileError> {
    files::remove_tree(place)?;
    files::create_directory(place)?;
    for path in paths {
        let source = module.join(path);
        if source.is_dir() {
            for entry in fs::read_dir(&source).map_err(failed("list", &source))?.flatten() {
                copy_file(&entry.path(), place)?;
            }
        } else {
            copy_file(&source, place)?;
        }
    }
    Ok(())
}

/// Copies the content only: files of Go's module cache are read-only.
fn copy_file(source: &Path, place: &Path) -> Result<(), FileError> {
    let content = fs::read(source).map_err(failed("read", source))?;
    files::write(&place.join(source.file_name().unwrap_or_default()), content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_the_content_of_directories_are_copied() {
        let base = std::env::temp_dir().join(format!("testbed-copy-{}", std::process::id()));
        files::create_directory(&base.join("module/crds")).unwrap();
        files::write(&base.join("module/crds/a.yaml"), "a").unwrap();
        files::write(&base.join("module/b.yaml"), "b").unwrap();
        let place = base.join("place");
        copy(&base.join("module"), &["crds", "b.yaml"], &place).unwrap();
        assert_eq!(fs::read_to_string(place.join("a.yaml")).unwrap(), "a");
        assert_eq!(fs::read_to_string(place.join("b.yaml")).unwrap(), "b");
        files::remove_tree(&base).unwrap();
    }
}
