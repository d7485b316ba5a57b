//! Slots are claimed machine-wide, by locks.
//!
//! `/run/flux-operator-testbed/<slot>.lock` is held by the supervisor (it is its standard input)
//! and by the `unshare` it runs under, so the kernel gives it back however they end. The file's
//! content says whose it is; that alone is how a running testbed is found, so a lost `state.json`
//! or a deleted clone does not hide one.
//!
//! `/run/flux-operator-testbed/<slot>/` holds the testbed's sockets: a path below a deep target
//! directory would be longer than the 108 bytes a socket's address has.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::files::{self, FileError, failed};
use crate::layout::Home;
use crate::slot::{Port, SLOTS, Slot};
use crate::{cgroup, network, prerequisites};

/// Whose a slot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    /// The testbed's directory.
    pub(crate) home: Home,
    /// The process to end when the supervisor does not answer.
    pub(crate) pid: i32,
}

/// A slot of ours. Dropping it gives the slot back, unless a child inherited the lock.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) slot: Slot,
    pub(crate) lock: File,
}

/// Why no slot could be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Every slot is taken.
    #[error("all {SLOTS} slots of this machine are taken: end a testbed with `testbed down`")]
    Full,
    /// A file could not be made.
    #[error("failed to claim a slot")]
    File(#[source] FileError),
}

/// The directory of the locks and sockets.
#[derive(Clone, Debug)]
pub(crate) struct RunDirectory(PathBuf);

impl RunDirectory {
    /// Root's is the machine's; every other user has one of their own.
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

    /// Claims a free slot and removes what an earlier testbed left in it.
    pub(crate) fn claim(&self) -> Result<Claim, ClaimError> {
        files::create_directory(&self.0).map_err(ClaimError::File)?;
        // Kubernetes' programs serve only to whom they know, but a socket has no such check.
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
            // Whoever held it before holds it no more.
            let path = self.lock_of(slot);
            lock.set_len(0).map_err(failed("empty", &path)).map_err(ClaimError::File)?;
            return Ok(Claim { slot, lock });
        }
        Err(ClaimError::Full)
    }

    /// Who holds which slot at this moment.
    pub(crate) fn holders(&self) -> Vec<(Slot, Holder)> {
        Slot::all().filter_map(|slot| Some((slot, self.holder(slot)?))).collect()
    }

    /// The slot of the testbed in `home`, if it runs.
    pub(crate) fn find(&self, home: &Home) -> Option<(Slot, Holder)> {
        self.holders().into_iter().find(|(_, holder)| holder.home == *home)
    }

    /// Removes what testbeds that ended otherwise than by `down` left behind, and every file here
    /// that nobody needs.
    pub(crate) fn sweep_free_slots(&self) {
        for slot in Slot::all() {
            let lock_file = self.lock_of(slot);
            if !lock_file.exists() {
                continue;
            }
            if let Ok(Some(_lock)) = self.try_lock(slot) {
                self.sweep(slot);
                // While the lock is held: whoever opened the file before sees that it is gone.
                let _gone_already = fs::remove_file(&lock_file);
            }
        }
        // Fails while another testbed's files are in it, which is what is wanted.
        let _in_use = fs::remove_dir(&self.0);
    }

    /// Removes what is left of a testbed whose slot is ours now.
    fn sweep(&self, slot: Slot) {
        if prerequisites::is_root() {
            network::remove_link(slot);
            // Processes of a namespace whose first process was killed take a moment to die.
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

    fn holder(&self, slot: Slot) -> Option<Holder> {
        let mut file = File::open(self.lock_of(slot)).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None;
        }
        let mut content = String::new();
        file.read_to_string(&mut content).ok()?;
        serde_json::from_str(&content).ok()
    }

    /// Takes a slot's lock; none when somebody holds it.
    fn try_lock(&self, slot: Slot) -> Result<Option<File>, FileError> {
        let path = self.lock_of(slot);
        loop {
            // Again each time: who swept the last file removes the directory too.
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
            // It was removed between open and lock; what is there now is another file.
        }
    }
}

impl Claim {
    /// Writes down whose the slot is.
    pub(crate) fn record(&mut self, holder: &Holder) -> io::Result<()> {
        let text = serde_json::to_string(holder).expect("a holder has only string keys");
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

/// Another user's testbed, or any other program, may use the slot's ports. A testbed that just
/// died gives them back within the moment this waits.
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
    fn a_lock_has_one_holder_and_is_free_when_that_ends() {
        let run = in_scratch("claim");
        let slot = Slot::new(2).unwrap();
        let holder = Holder { home: Home::at("/somewhere".into()), pid: 7 };
        let lock = run.try_lock(slot).unwrap().unwrap();
        let mut claim = Claim { slot, lock };
        claim.record(&holder).unwrap();
        assert!(run.try_lock(slot).unwrap().is_none());
        assert_eq!(run.holders(), [(slot, holder.clone())]);
        assert_eq!(run.find(&holder.home), Some((slot, holder)));
        drop(claim);
        // Another test may be starting a program at this moment; until that has closed what it
        // inherited, the lock is held.
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
