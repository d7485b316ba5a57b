//! Builds container images without a container engine.
//!
//! An image here has one layer and a few settings, and is written as a docker-archive: the tar file
//! that `docker save` writes and containerd imports. It is reproducible: entries are sorted, owned
//! by root and without times.

mod archive;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::files::{FileError, failed};

pub(crate) use archive::hexadecimal;

/// An image to be written.
#[derive(Clone, Debug, Default)]
pub struct Image {
    tag: String,
    entries: BTreeMap<PathBuf, ImageEntry>,
    entrypoint: Vec<String>,
    command: Vec<String>,
    environment: Vec<String>,
    user: String,
}

#[derive(Clone, Debug)]
enum ImageEntry {
    Directory {
        mode: u32,
    },
    /// `modified` is in seconds since 1970.
    File {
        source: PathBuf,
        mode: u32,
        modified: u64,
    },
    Content {
        bytes: Vec<u8>,
        mode: u32,
    },
    Link {
        target: PathBuf,
    },
}

/// Why an image could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file of the image or the archive could not be read or written.
    #[error("failed to build image {tag:?}")]
    File {
        /// The image's name.
        tag: String,
        /// Which file, and why.
        source: FileError,
    },
    /// A path is neither a file, a directory nor a symbolic link.
    #[error("failed to build image {tag:?}: {path:?} is not a file, directory or symbolic link")]
    Kind {
        /// The image's name.
        tag: String,
        /// The file.
        path: PathBuf,
    },
    /// The machine has no busybox.
    #[error("busybox is missing: install the package busybox-static")]
    NoBusybox,
}

impl Image {
    /// An empty image. The tag should start with a registry that does not exist, such as
    /// `flux-operator.test/`, so that it is never pulled.
    pub fn new(tag: &str) -> Image {
        Image {
            tag: tag.to_owned(),
            environment: vec![format!("PATH={}", command::SYSTEM_PATH)],
            ..Image::default()
        }
    }

    /// An image with a shell and the usual small programs, from this machine's busybox.
    pub fn busybox(tag: &str) -> Result<Image, ImageError> {
        let busybox = command::find("busybox").ok_or(ImageError::NoBusybox)?;
        let applets = command::run(Command::new(&busybox).arg("--list"))
            .map_err(|_| ImageError::NoBusybox)?;
        let users = "root:x:0:0:root:/root:/bin/sh\nflux:x:1000:1000:flux:/home/flux:/bin/sh\n";
        let mut image = Image::new(tag)
            .file(&busybox, "/bin/busybox", 0o755)
            .content(users, "/etc/passwd", 0o644)
            .content("root:x:0:\nflux:x:1000:\n", "/etc/group", 0o644)
            .directory("/tmp", 0o1777)
            .directory("/var/tmp", 0o1777)
            .directory("/root", 0o700)
            .command(["/bin/sh"]);
        for applet in applets.lines().filter(|applet| *applet != "busybox") {
            image = image.link("busybox", &format!("/bin/{applet}"));
        }
        Ok(image)
    }

    /// Adds a file of this machine, without its time, so that the same program gives the same
    /// image.
    pub fn file(self, source: &Path, path: &str, mode: u32) -> Image {
        self.entry(path, ImageEntry::File { source: source.to_owned(), mode, modified: 0 })
    }

    /// Adds a file with this content.
    pub fn content(self, content: &str, place: &str, mode: u32) -> Image {
        self.entry(place, ImageEntry::Content { bytes: content.as_bytes().to_vec(), mode })
    }

    /// Adds a directory. Parent directories are added automatically.
    pub fn directory(self, place: &str, mode: u32) -> Image {
        self.entry(place, ImageEntry::Directory { mode })
    }

    /// Adds a symbolic link to `target`.
    pub fn link(self, target: &str, place: &str) -> Image {
        self.entry(place, ImageEntry::Link { target: target.into() })
    }

    /// Adds a file or a whole directory of this machine with its modes, links and times: Python
    /// compiles a module at every start if its time does not match.
    pub fn tree(mut self, source: &Path, place: &str) -> Result<Image, ImageError> {
        let tag = self.tag.clone();
        let file_error = |source| ImageError::File { tag: tag.clone(), source };
        // The given path may itself be a link and is resolved; links inside a tree are kept.
        let source = source.canonicalize().map_err(failed("find", source)).map_err(file_error)?;
        let mut waiting = vec![(source, relative(place))];
        while let Some((source, place)) = waiting.pop() {
            let metadata = fs::symlink_metadata(&source)
                .map_err(failed("read", &source))
                .map_err(file_error)?;
            let mode = metadata.permissions().mode() & 0o7777;
            let entry = if metadata.is_symlink() {
                let target =
                    fs::read_link(&source).map_err(failed("read", &source)).map_err(file_error)?;
                ImageEntry::Link { target }
            } else if metadata.is_dir() {
                let children =
                    fs::read_dir(&source).map_err(failed("list", &source)).map_err(file_error)?;
                for child in children {
                    let child = child.map_err(failed("list", &source)).map_err(file_error)?;
                    waiting.push((child.path(), place.join(child.file_name())));
                }
                ImageEntry::Directory { mode }
            } else if metadata.is_file() {
                let modified = u64::try_from(metadata.mtime()).unwrap_or_default();
                ImageEntry::File { source, mode, modified }
            } else {
                return Err(ImageError::Kind { tag: self.tag, path: source });
            };
            self.entries.insert(place, entry);
        }
        Ok(self)
    }

    /// The command of a container.
    pub fn entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Image {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// The default command of a container, or the arguments of the entrypoint, if there is one.
    pub fn command<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Image {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets an environment variable, as `NAME=value`.
    pub fn environment(mut self, variable: &str) -> Image {
        let name = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
        self.environment.retain(|each| name(each) != name(variable));
        self.environment.push(variable.to_owned());
        self
    }

    /// The user of a container: a number, or a name in the image's `/etc/passwd`.
    pub fn user(mut self, user: &str) -> Image {
        self.user = user.to_owned();
        self
    }

    /// Writes the archive.
    pub fn write(&self, path: &Path) -> Result<(), ImageError> {
        archive::write(self, path)
            .map_err(|source| ImageError::File { tag: self.tag.clone(), source })
    }

    fn entry(mut self, place: &str, entry: ImageEntry) -> Image {
        self.entries.insert(relative(place), entry);
        self
    }
}

fn relative(place: &str) -> PathBuf {
    PathBuf::from(place.trim_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_set_once() {
        let image = Image::new("t").environment("A=1").environment("A=2").environment("PATH=/bin");
        assert_eq!(image.environment, ["A=2", "PATH=/bin"]);
    }

    #[test]
    fn a_tree_keeps_modes_and_links() {
        let root = std::env::temp_dir().join(format!("testbed-tree-{}", std::process::id()));
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::write(root.join("bin/program"), "#!").unwrap();
        fs::set_permissions(root.join("bin/program"), fs::Permissions::from_mode(0o750)).unwrap();
        std::os::unix::fs::symlink("program", root.join("bin/alias")).unwrap();
        let image = Image::new("t").tree(&root, "/opt/").unwrap();
        let at = |place: &str| image.entries.get(Path::new(place));
        assert!(matches!(at("opt"), Some(ImageEntry::Directory { .. })));
        assert!(matches!(at("opt/bin/program"), Some(ImageEntry::File { mode: 0o750, .. })));
        assert!(
            matches!(at("opt/bin/alias"), Some(ImageEntry::Link { target }) if target == Path::new("program"))
        );
        assert_eq!(image.entries.len(), 4);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn unsupported_files_are_refused() {
        let missing = Image::new("t").tree(Path::new("/nonexistent"), "/a").unwrap_err();
        assert_eq!(missing.to_string(), r#"failed to build image "t""#);
        let device = Image::new("t").tree(Path::new("/dev/null"), "/a").unwrap_err();
        assert!(matches!(device, ImageError::Kind { .. }));
    }
}
