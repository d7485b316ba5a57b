//! The supervisor's own view of the file system.
//!
//! Some paths are fixed in Kubernetes' programs: `/run/netns`, `/run/containerd`, `/var/lib/cni`,
//! `/var/lib/kubelet`, `/var/log/containers`. In the supervisor's mount namespace `/run`,
//! `/var/lib` and `/var/log` are empty file systems in memory, into which only the testbed's own
//! directories are bound. So a node finds what it expects, two nodes do not interfere, and nothing
//! is left on the machine when the namespace is removed.

use std::path::{Path, PathBuf};

use rustix::mount::{self, MountFlags, MountPropagationFlags};

use crate::component::Settings;
use crate::files::{self, FileError, failed};

/// Directories that are replaced by empty ones.
const HIDDEN: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// Large directories of the node: the path that programs use, and the path in the testbed's
/// directory.
const BOUND: [(&str, &str); 3] = [
    ("/var/lib/containerd", "containerd"),
    ("/var/lib/kubelet", "kubelet"),
    ("/var/log/pods", "log/pods"),
];

/// Sets up the mounts of a node. Requires its own mount namespace with private propagation.
///
/// `base` is the directory of all testbeds, which stays visible.
pub(crate) fn set_up(settings: &Settings, base: &Path) -> Result<(), FileError> {
    let run_directory = settings.sockets.parent().unwrap_or(&settings.sockets);
    let kept = [base, run_directory];
    let staging = settings.home.join("staging");
    files::create_directory(&staging)?;
    for hidden in HIDDEN {
        hide(Path::new(hidden), &kept, &staging)?;
    }
    for (place, source) in BOUND {
        let source = settings.home.join(source);
        files::create_directory(&source)?;
        files::create_directory(Path::new(place))?;
        bind(&source, Path::new(place))?;
    }
    // As on a usual node: a pod may request mount propagation, which runc refuses if the root is
    // private. Our namespace is private already, so nothing reaches the host.
    mount::mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)
        .map_err(|error| failed("share mounts of", Path::new("/"))(error.into()))
}

/// Mounts an empty file system over `directory`, except for the `kept` directories in it. It is
/// prepared at `staging` and then moved, because afterwards the kept directories could not be
/// reached.
fn hide(directory: &Path, kept: &[&Path], staging: &Path) -> Result<(), FileError> {
    // If one of them is a link (/var/run to /run), its target is used.
    let directory = directory.canonicalize().map_err(failed("resolve", directory))?;
    mount::mount("tmpfs", staging, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755")
        .map_err(|error| failed("mount tmpfs at", staging)(error.into()))?;
    for (source, place) in binds(&directory, kept) {
        let place = staging.join(place);
        files::create_directory(&place)?;
        bind(source, &place)?;
    }
    mount::mount_move(staging, &directory)
        .map_err(|error| failed("move the mount to", &directory)(error.into()))
}

fn binds<'a>(directory: &Path, kept: &[&'a Path]) -> Vec<(&'a Path, PathBuf)> {
    kept.iter()
        .filter_map(|path| Some((*path, path.strip_prefix(directory).ok()?.to_owned())))
        .collect()
}

fn bind(source: &Path, place: &Path) -> Result<(), FileError> {
    mount::mount_bind(source, place).map_err(|error| failed("bind", source)(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_in_the_hidden_directory_are_bound_into_it() {
        let base = Path::new("/var/lib/ci/clone/target/testbed");
        let run = Path::new("/run/flux-operator-testbed");
        assert_eq!(
            binds(Path::new("/var/lib"), &[base, run]),
            [(base, PathBuf::from("ci/clone/target/testbed"))]
        );
        assert_eq!(
            binds(Path::new("/run"), &[base, run]),
            [(run, PathBuf::from("flux-operator-testbed"))]
        );
        assert!(binds(Path::new("/var/log"), &[base, run]).is_empty());
    }

    #[test]
    fn every_bound_path_is_in_a_hidden_directory() {
        for (place, _) in BOUND {
            assert!(HIDDEN.iter().any(|hidden| place.starts_with(hidden)), "{place}");
        }
    }
}
