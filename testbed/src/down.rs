//! `down`: stops a testbed and removes all its files.

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::claim::{RunDirectory, SlotHolder};
use crate::control::{self, ControlRequest};
use crate::files::{self, FileError};
use crate::layout::{Layout, TestbedDirectory, TestbedName};
use crate::slot::Slot;
use crate::up;

/// How long a supervisor may take to exit when asked, and again when killed. It kills what it
/// started without waiting; a second is usual, but a busy kernel takes longer to remove namespaces.
const LIMIT: Duration = Duration::from_secs(15);

/// Why a testbed could not be stopped.
#[derive(Debug, thiserror::Error)]
pub enum DownError {
    /// Its process does not exit.
    #[error("process {pid} of the testbed in slot {slot} does not exit")]
    Alive {
        /// The process that holds the slot.
        pid: i32,
        /// The slot.
        slot: Slot,
    },
    /// Its process could not be killed.
    #[error("failed to kill process {pid} of the testbed in slot {slot}")]
    Kill {
        /// The process that holds the slot.
        pid: i32,
        /// The slot.
        slot: Slot,
        /// Why.
        source: io::Error,
    },
    /// Its files could not be removed.
    #[error("failed to remove the testbed's files")]
    File(#[source] FileError),
}

/// Stops the testbed with this name, if it is running, and removes its remains, also if it exited
/// otherwise. Returns whether there was anything to remove.
pub fn down(layout: &Layout, name: &TestbedName) -> Result<bool, DownError> {
    let _lock = up::lock(layout).map_err(DownError::File)?;
    stop_and_remove(&layout.home(name))
}

/// [`down`] for a caller that already holds the lock.
pub(crate) fn stop_and_remove(home: &TestbedDirectory) -> Result<bool, DownError> {
    let run = RunDirectory::of_this_user();
    let found = run.find(home);
    if let Some((slot, holder)) = &found {
        stop_supervisor(&run, *slot, holder)?;
    }
    run.sweep_free_slots();
    let existed = home.path().exists();
    files::remove_tree(home.path()).map_err(DownError::File)?;
    Ok(found.is_some() || existed)
}

fn stop_supervisor(run: &RunDirectory, slot: Slot, holder: &SlotHolder) -> Result<(), DownError> {
    let socket = run.of_slot(slot).join("control.sock");
    // A supervisor that does not respond is killed.
    let free = || wait_until_released(run, &holder.home, LIMIT);
    if control::send(&socket, &ControlRequest::Shutdown, LIMIT).is_ok() && free() {
        return Ok(());
    }
    let pid = holder.pid;
    if let Some(process) = Pid::from_raw(pid).filter(|_| is_supervisor(pid, &holder.home)) {
        match kill_process(process, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                return Err(DownError::Kill { pid, slot, source: error.into() });
            }
        }
    }
    match free() {
        true => Ok(()),
        false => Err(DownError::Alive { pid, slot }),
    }
}

/// Whether this process was started for the testbed: the original may have exited, and another
/// process may have its pid now.
fn is_supervisor(pid: i32, home: &TestbedDirectory) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let home = home.path().as_os_str().as_encoded_bytes();
    line.split(|byte| *byte == 0).any(|word| word == home)
}

/// Waits until the testbed holds no slot any more: the last process that has the lock open waits
/// for all others to exit.
pub(crate) fn wait_until_released(
    run: &RunDirectory,
    home: &TestbedDirectory,
    limit: Duration,
) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if run.find(home).is_none() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_supervisor_is_recognized_by_its_command_line() {
        let home = TestbedDirectory::at("/base/a".into());
        let mut child =
            Command::new("sh").args(["-c", "sleep 60; true", "/base/a"]).spawn().unwrap();
        let pid = child.id().try_into().unwrap();
        // Until it has executed the other program, the child has this process' command line.
        let limit = Instant::now() + Duration::from_secs(10);
        while !is_supervisor(pid, &home) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_supervisor(pid, &home));
        assert!(!is_supervisor(pid, &TestbedDirectory::at("/base/b".into())));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_supervisor(pid, &home));
    }
}
