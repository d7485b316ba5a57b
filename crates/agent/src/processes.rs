//! The descendants of this process.
//!
//! An agent is the first process of its container, or a subreaper: a process that
//! loses its parent becomes the agent's child, so none of its descendants can
//! outlive it.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};

/// All descendants of `ancestor`, nearest first.
pub fn descendants(ancestor: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let processes: Vec<(i32, i32)> = names
        .filter_map(|name| {
            let process = name.parse().ok()?;
            Some((process, parent(&fs::read_to_string(format!("/proc/{name}/stat")).ok()?)?))
        })
        .collect();
    descendants_in(ancestor.as_raw_nonzero().get(), &processes)
        .into_iter()
        .filter_map(Pid::from_raw)
        .collect()
}

/// Sends a signal to each process; those that have already exited are ignored.
pub fn signal(processes: &[Pid], signal: Signal) {
    for process in processes {
        let _ = rustix::process::kill_process(*process, signal);
    }
}

/// A child that has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitedChild {
    /// Which.
    pub process: Pid,
    /// Its exit code, or 128 plus the signal that killed it, as in a shell.
    pub code: u8,
}

/// The result of looking for a child that has exited.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaped {
    /// A child has exited.
    Exited(ExitedChild),
    /// All children are running.
    Running,
    /// There are no children.
    NoChildren,
}

/// Looks for a child that has exited, without waiting for one.
pub fn reap() -> Reaped {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((process, status))) => {
                // A child that was stopped or continued has not exited.
                if let Some(code) = wait_status_code(status) {
                    return Reaped::Exited(ExitedChild { process, code });
                }
            }
            Ok(None) => return Reaped::Running,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Reaped::NoChildren,
        }
    }
}

/// Opens a pidfd for a process, to wait until it has exited.
pub fn open_pidfd(process: Pid) -> rustix::io::Result<OwnedFd> {
    rustix::process::pidfd_open(process, PidfdFlags::empty())
}

/// Waits until a process, which need not be a child, has exited.
pub fn wait_for_exit(process: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, poll};
    while poll(&mut [PollFd::new(process, PollFlags::IN)], None) == Err(rustix::io::Errno::INTR) {}
}

fn wait_status_code(status: WaitStatus) -> Option<u8> {
    let code =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.map(|code| u8::try_from(code).unwrap_or(u8::MAX))
}

/// The exit code of a child that the standard library waited for, in the same form.
pub fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// The parent in a line of `/proc/PID/stat`. The name before it may contain any characters.
fn parent(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

fn descendants_in(ancestor: i32, processes: &[(i32, i32)]) -> Vec<i32> {
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(&current) = found.get(next) {
        next += 1;
        for &(process, parent) in processes {
            // The list is not a consistent snapshot, so it may contain a cycle.
            if parent == current && !found.contains(&process) {
                found.push(process);
            }
        }
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_over_generations() {
        assert_eq!(descendants_in(1, &[(2, 1), (3, 2), (4, 9), (5, 3), (9, 0)]), [2, 3, 5]);
        assert_eq!(descendants_in(1, &[(1, 2), (2, 1)]), [2]);
        assert_eq!(descendants_in(7, &[]), [] as [i32; 0]);
    }

    #[test]
    fn the_parent_is_found_after_any_name() {
        assert_eq!(parent("12 (a) S 5 12 12 0"), Some(5));
        assert_eq!(parent("12 (a) (b) S 9) S 6 1"), Some(6));
        for bad in ["", "12 (a)", "12 (a) S", "12 (a) S x"] {
            assert_eq!(parent(bad), None);
        }
    }

    #[test]
    fn a_child_of_this_process_is_a_descendant() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Pid::from_child(&child);
        assert!(descendants(rustix::process::getpid()).contains(&process));
        let pidfd = open_pidfd(process).unwrap();
        signal(&[process], Signal::KILL);
        wait_for_exit(&pidfd);
        assert_eq!(exit_code(child.wait().unwrap()), 137);
    }
}
