//! Claims slots machine-wide, with file locks.
//!
//! `/run/flux-operator-testbed/<slot>.lock` is locked by the supervisor (as its standard input) and
//! by the `unshare` it runs under, so that the kernel releases it however they exit. The content of
//! the file names the testbed; only this is used to find a running testbed, so a lost `state.json`
//! or a deleted clone does not hide one.
//!
//! `/run/flux-operator-testbed/<slot>/` contains the testbed's sockets: a path below a deep target
//! directory could exceed the 108 bytes of a socket address.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::files::{self, FileError, failed};
use crate::layout::TestbedDirectory;
use crate::slot::{Port, SLOTS, Slot};
use crate::{cgroup, network, prerequisites};

/// The testbed that holds a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotHolder {
    /// The testbed's directory.
    pub(crate) home: TestbedDirectory,
    /// The process to kill if the supervisor does not respond.
    pub(crate) pid: i32,
}

/// A claimed slot. Dropping it releases the slot, unless a child inherited the lock.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) slot: Slot,
    pub(crate) lock: File,
}

/// Why no slot could be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Every slot is in use.
    #[error("all {SLOTS} slots of this machine are in use: stop a testbed with `testbed down`")]
    Full,
    /// A file could not be created.
    #[error("failed to claim a slot")]
    File(#[source] FileError),
}

/// The directory of the locks and sockets.
#[derive(Clone, Debug)]
pub(crate) struct RunDirectory(PathBuf);

impl RunDirectory {
    /// The directory for root is shared by the machine; every other user has their own.
    pub(crate) fn of_this_user() -> RunDirectory {
        const NAME: &str = "flux-operator-testbed";
        if prerequisites::is_root() {
            return RunDirectory(Path::new("/run").join(NAME));
        }
        match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_dir()) {
            Some(path) => RunDirectory(PathBuf::from(path).join(NAME)),
            None => {
                let user = rustix::process::geteuid().as_raw();
                RunDirectory(std::env::temp_dir().join(format!("{NAME}-{user}")))
            }
        }
    }

    /// The directory of a slot's sockets.
    pub(crate) fn of_slot(&self, slot: Slot) -> PathBuf {
        self.0.join(slot.to_string())
    }

    fn lock_of(&self, slot: Slot) -> PathBuf {
        self.0.join(format!("{slot}.lock"))
    }

    /// Claims a free slot and removes the remains of an earlier testbed in it.
    pub(crate) fn claim(&self) -> Result<Claim, ClaimError> {
        files::create_directory(&self.0).map_err(ClaimError::File)?;
        // Kubernetes' programs authenticate their clients, but a socket does not.
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o700))
            .map_err(failed("protect", &self.0))
            .map_err(ClaimError::File)?;
        for slot in Slot::all() {
            let Some(lock) = self.try_lock(slot).map_err(ClaimError::File)? else {
                continue;
            };
            self.sweep(slot);
            if !ports_are_free(slot) {
                continue;
            }
            let directory = self.of_slot(slot);
            files::create_directory(&directory).map_err(ClaimError::File)?;
            // The previous holder has exited.
            let path = self.lock_of(slot);
            lock.set_len(0).map_err(failed("empty", &path)).map_err(ClaimError::File)?;
            return Ok(Claim { slot, lock });
        }
        Err(ClaimError::Full)
    }

    /// The slots that are in use, and their holders.
    pub(crate) fn holders(&self) -> Vec<(Slot, SlotHolder)> {
        Slot::all().filter_map(|slot| Some((slot, self.holder(slot)?))).collect()
    }

    /// The slot of the testbed in `home`, if it is running.
    pub(crate) fn find(&self, home: &TestbedDirectory) -> Option<(Slot, SlotHolder)> {
        self.holders().into_iter().find(|(_, holder)| holder.home == *home)
    }

    /// Removes the remains of testbeds that were not stopped by `down`, and all files here that are
    /// no longer needed.
    pub(crate) fn sweep_free_slots(&self) {
        for slot in Slot::all() {
            let lock_file = self.lock_of(slot);
            if !lock_file.exists() {
                continue;
            }
            if let Ok(Some(_lock)) = self.try_lock(slot) {
                self.sweep(slot);
                // Removed while locked: a process that has opened the file notices that it was
                // removed.
                let _already_removed = fs::remove_file(&lock_file);
            }
        }
        // Fails if the directory contains files of another testbed, as intended.
        let _in_use = fs::remove_dir(&self.0);
    }

    /// Removes the remains of a testbed whose slot is ours now.
    fn sweep(&self, slot: Slot) {
        if prerequisites::is_root() {
            network::remove_link(slot);
            // The processes of a killed pid namespace take a moment to exit.
            for _ in 0..50 {
                if cgroup::remove(slot) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
        let directory = self.of_slot(slot);
        if let Err(error) = files::remove_tree(&directory) {
            eprintln!("warning: {error}: {}", error.source);
        }
    }

    fn holder(&self, slot: Slot) -> Option<SlotHolder> {
        let mut file = File::open(self.lock_of(slot)).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None;
        }
        let mut content = String::new();
        file.read_to_string(&mut content).ok()?;
        serde_json::from_str(&content).ok()
    }

    /// Locks a slot; None if it is locked.
    fn try_lock(&self, slot: Slot) -> Result<Option<File>, FileError> {
        let path = self.lock_of(slot);
        loop {
            // Inside the loop, because the process that removes the last file also removes the
            // directory.
            files::create_directory(&self.0)?;
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(failed("open", &path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(failed("lock", &path)(error.into())),
            }
            if is_still_at(&file, &path) {
                return Ok(Some(file));
            }
            // It was removed between open and lock; the path now refers to another file.
        }
    }
}

impl Claim {
    /// Records the holder of the slot.
    pub(crate) fn record(&mut self, holder: &SlotHolder) -> io::Result<()> {
        let text = serde_json::to_string(holder).expect("a holder can be serialized");
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        self.lock.write_all(text.as_bytes())
    }
}

fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(found)) => (held.dev(), held.ino()) == (found.dev(), found.ino()),
        _ => false,
    }
}

/// Whether the slot's ports are free. Another user's testbed, or any other program, may use them. A
/// testbed that just exited releases them within the time that this waits.
fn ports_are_free(slot: Slot) -> bool {
    (0..20).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Port::ALL.into_iter().all(|port| TcpListener::bind(slot.loopback(port)).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_scratch(name: &str) -> RunDirectory {
        let path = std::env::temp_dir().join(format!("testbed-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        RunDirectory(path)
    }

    #[test]
    fn a_lock_has_one_holder_and_is_released_with_it() {
        let run = in_scratch("claim");
        let slot = Slot::new(2).unwrap();
        let holder = SlotHolder { home: TestbedDirectory::at("/somewhere".into()), pid: 7 };
        let lock = run.try_lock(slot).unwrap().unwrap();
        let mut claim = Claim { slot, lock };
        claim.record(&holder).unwrap();
        assert!(run.try_lock(slot).unwrap().is_none());
        assert_eq!(run.holders(), [(slot, holder.clone())]);
        assert_eq!(run.find(&holder.home), Some((slot, holder)));
        drop(claim);
        // Another test may be starting a program at this moment, which holds the lock until it has
        // closed inherited files.
        let is_free = || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            run.holders().is_empty()
        };
        assert!((0..100).any(|_| is_free()));
        fs::remove_dir_all(&run.0).unwrap();
    }

    #[test]
    fn a_lock_file_that_was_removed_is_not_held() {
        let run = in_scratch("claim-removed");
        let slot = Slot::new(0).unwrap();
        let first = run.try_lock(slot).unwrap().unwrap();
        fs::remove_file(run.lock_of(slot)).unwrap();
        assert!(!is_still_at(&first, &run.lock_of(slot)));
        assert!(run.try_lock(slot).unwrap().is_some());
        fs::remove_dir_all(&run.0).unwrap();
    }
}
