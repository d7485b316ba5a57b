//! The cgroups that contain a testbed's pods.
//!
//! The kubelet requires its root cgroup in every hierarchy: with cgroup version 1 that is one
//! directory per controller, with version 2 a single one. cgroups outlive the processes in them, so
//! they are removed by name, by `down` or by the next testbed in the same slot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::files::{FileError, failed};
use crate::slot::Slot;

const MOUNT: &str = "/sys/fs/cgroup";

/// Controllers that pods need from a unified hierarchy.
const UNIFIED_CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// Creates the slot's cgroup in every hierarchy.
pub(crate) fn create(slot: Slot) -> Result<(), FileError> {
    let mount = Path::new(MOUNT);
    if is_unified(mount) {
        enable_controllers(mount);
    }
    for hierarchy in hierarchies(mount) {
        let path = hierarchy.join(slot.cgroup());
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("create cgroup", &path)(error));
            }
            _ => inherit_cpuset(&hierarchy, &path),
        }
    }
    Ok(())
}

/// Removes the slot's cgroups. Returns `false` if some still contain a process.
pub(crate) fn remove(slot: Slot) -> bool {
    hierarchies(Path::new(MOUNT)).iter().all(|hierarchy| {
        let path = hierarchy.join(slot.cgroup());
        remove_below(&path);
        !path.exists()
    })
}

fn is_unified(mount: &Path) -> bool {
    mount.join("cgroup.controllers").exists()
}

fn hierarchies(mount: &Path) -> Vec<PathBuf> {
    if is_unified(mount) {
        return vec![mount.to_owned()];
    }
    // Some directories are links (`cpu` to `cpu,cpuacct`); creating twice is fine.
    fs::read_dir(mount)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("cgroup.procs").exists())
        .collect()
}

/// Enables the controllers for the children of the root. Errors are ignored: the kubelet reports
/// missing controllers.
fn enable_controllers(mount: &Path) {
    for controller in UNIFIED_CONTROLLERS {
        let _unsupported =
            fs::write(mount.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// In version 1 a new cpuset is empty and no process can enter it.
fn inherit_cpuset(parent: &Path, child: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if let Ok(value) = fs::read_to_string(parent.join(file)) {
            let _inherited_already = fs::write(child.join(file), value);
        }
    }
}

/// A cgroup's files cannot be removed, only the directories, from the innermost outwards.
fn remove_below(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&entry.path());
        }
    }
    // The caller checks whether a busy cgroup still exists.
    let _busy = fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_by_their_content() {
        let mount = std::env::temp_dir().join(format!("testbed-cgroup-{}", std::process::id()));
        for controller in ["cpu", "memory", "not-a-hierarchy"] {
            fs::create_dir_all(mount.join(controller)).unwrap();
        }
        fs::write(mount.join("cpu/cgroup.procs"), "").unwrap();
        fs::write(mount.join("memory/cgroup.procs"), "").unwrap();
        let mut found = hierarchies(&mount);
        found.sort();
        assert_eq!(found, [mount.join("cpu"), mount.join("memory")]);

        fs::write(mount.join("cgroup.controllers"), "cpu memory").unwrap();
        assert_eq!(hierarchies(&mount), std::slice::from_ref(&mount));
        fs::remove_dir_all(&mount).unwrap();
    }
}
