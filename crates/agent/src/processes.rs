//! The processes below this one.
//!
//! An agent is the first process of its container, or acts like it: whoever
//! loses its parent becomes the agent's child, so nothing that was started
//! under it can stay behind.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};

/// All processes below `ancestor`, nearest first.
pub fn descendants(ancestor: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let processes: Vec<(i32, i32)> = names
        .filter_map(|name| {
            let process = name.parse().ok()?;
            Some((process, parent(&fs::read_to_string(format!("/proc/{name}/stat")).ok()?)?))
        })
        .collect();
    below(ancestor.as_raw_nonzero().get(), &processes)
        .into_iter()
        .filter_map(Pid::from_raw)
        .collect()
}

/// Sends a signal to each; those that are gone already do not mind.
pub fn signal(processes: &[Pid], signal: Signal) {
    for process in processes {
        let _ = rustix::process::kill_process(*process, signal);
    }
}

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub process: Pid,
    /// Its exit code, or 128 and the signal that ended it, as a shell says it.
    pub code: u8,
}

/// What there is to know about children.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaped {
    /// One ended.
    Ended(Ended),
    /// All are running.
    Running,
    /// There are none.
    None,
}

/// Looks for a child that has ended, without waiting for one.
pub fn reap() -> Reaped {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((process, status))) => {
                // Stopped or continued is not ended.
                if let Some(code) = code_of(status) {
                    return Reaped::Ended(Ended { process, code });
                }
            }
            Ok(None) => return Reaped::Running,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Reaped::None,
        }
    }
}

/// Keeps hold of a process, so that its end can be waited for.
pub fn open(process: Pid) -> rustix::io::Result<OwnedFd> {
    rustix::process::pidfd_open(process, PidfdFlags::empty())
}

/// Waits until a process has ended that need not be a child.
pub fn wait_for_end(process: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, poll};
    while poll(&mut [PollFd::new(process, PollFlags::IN)], None) == Err(rustix::io::Errno::INTR) {}
}

fn code_of(status: WaitStatus) -> Option<u8> {
    let code =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.map(|code| u8::try_from(code).unwrap_or(u8::MAX))
}

/// The exit code of a child that somebody else waited for, in the same form.
pub fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// The parent in a line of `/proc/PID/stat`. The name before it may hold anything.
fn parent(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

fn below(ancestor: i32, processes: &[(i32, i32)]) -> Vec<i32> {
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(&current) = found.get(next) {
        next += 1;
        for &(process, parent) in processes {
            // Processes come and go while they are listed; a circle must not hang us.
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
        assert_eq!(below(1, &[(2, 1), (3, 2), (4, 9), (5, 3), (9, 0)]), [2, 3, 5]);
        assert_eq!(below(1, &[(1, 2), (2, 1)]), [2]);
        assert_eq!(below(7, &[]), [] as [i32; 0]);
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
    fn a_child_of_ours_is_below_us() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Pid::from_child(&child);
        assert!(descendants(rustix::process::getpid()).contains(&process));
        let held = open(process).unwrap();
        signal(&[process], Signal::KILL);
        wait_for_end(&held);
        assert_eq!(exit_code(child.wait().unwrap()), 137);
    }
}
