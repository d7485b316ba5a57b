//! Imports images to the node.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, CommandError};
use crate::component::Settings;
use crate::files::{self, FileError};
use crate::image::{Image, ImageError};
use crate::layout::Layout;
use crate::node::{BUSYBOX_IMAGE, PAUSE_IMAGE};

/// Why an image could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The container runtime refused it.
    #[error("failed to import {file:?}")]
    Runtime {
        /// The archive.
        file: PathBuf,
        /// Its error.
        source: CommandError,
    },
    /// The archive could not be written.
    #[error("failed to build an image for the node")]
    Image(#[source] ImageError),
    /// The directory of images could not be created.
    #[error("failed to create the directory for images")]
    File(#[source] FileError),
}

/// Writes the images that every node has: the pause image, and one with a shell for tests.
pub(crate) fn write_node_images(layout: &Layout) -> Result<(), ImportError> {
    files::create_directory(&layout.images()).map_err(ImportError::File)?;
    let pause = Image::new(PAUSE_IMAGE)
        .file(&layout.bin().join("pause"), "/pause", 0o755)
        .entrypoint(["/pause"]);
    let busybox = Image::busybox(BUSYBOX_IMAGE).map_err(ImportError::Image)?;
    for (image, file) in [(pause, "pause.tar"), (busybox, "busybox.tar")] {
        image.write(&layout.images().join(file)).map_err(ImportError::Image)?;
    }
    Ok(())
}

/// Imports these images. This must happen before the kubelet starts, because the first pod needs
/// the pause image.
pub(crate) fn import_node_images(settings: &Settings) -> Result<(), ImportError> {
    for file in ["pause.tar", "busybox.tar"] {
        let file = settings.images.join(file);
        import(&settings.bin, &settings.runtime_socket(), &file)?;
    }
    Ok(())
}

/// Imports an archive into containerd's namespace for Kubernetes.
pub(crate) fn import(bin: &Path, socket: &Path, file: &Path) -> Result<(), ImportError> {
    command::run(
        Command::new(bin.join("ctr"))
            .arg("--address")
            .arg(socket)
            .args(["--namespace", "k8s.io", "images", "import"])
            .arg(file),
    )
    .map(drop)
    .map_err(|source| ImportError::Runtime { file: file.to_owned(), source })
}
