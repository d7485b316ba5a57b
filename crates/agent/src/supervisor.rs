//! Supervises one child, as the first process of a container.
//!
//! It handles signals, reaps descendants that exit, and stops all descendants when
//! it has to stop: with SIGTERM first, and after a grace period with SIGKILL.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;

use crate::notice::{self, Notice};
use crate::processes::{self, ExitedChild, Reaped};
use crate::signals;

/// How long to wait after SIGKILL. What is left then is killed with the container.
const KILL_LIMIT: Duration = Duration::from_millis(400);

/// How long to wait for notices that were sent before a child exited. They are already in the
/// pipe.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

enum Event {
    Stop,
    ChildExited,
    Notice(Notice),
}

/// The result of waiting for a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The child exited with this code.
    Exited(u8),
    /// A signal to stop was received.
    Stop,
}

/// Handles signals and supervises children.
pub struct Supervisor {
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// The pipe that notices come from.
    notices: Option<PathBuf>,
}

impl Supervisor {
    /// Starts to handle signals; from now on they are reported only as [`WaitOutcome::Stop`].
    pub fn new() -> io::Result<Supervisor> {
        // A process group of our own, so that a signal to it reaches our descendants only.
        if rustix::process::getpgrp() != rustix::process::getpid() {
            rustix::process::setpgid(None, None)?;
        }
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let (sender, events) = mpsc::channel();
        let signalled = sender.clone();
        signals::on_stop(move || signalled.send(Event::Stop).is_ok())?;
        let mut child_signals = Signals::new([SIGCHLD])?;
        let signalled = sender.clone();
        thread::spawn(move || {
            for _ in child_signals.forever() {
                if signalled.send(Event::ChildExited).is_err() {
                    return;
                }
            }
        });
        Ok(Supervisor { events, sender, notices: None })
    }

    /// Treats the end of standard input as a signal to stop: the process that started us, which
    /// held the other end, has exited.
    pub fn stop_on_eof(&self) {
        let sender = self.sender.clone();
        thread::spawn(move || {
            let mut input = io::stdin();
            let mut buffer = [0; 256];
            while !matches!(input.read(&mut buffer), Ok(0) | Err(_)) {}
            // Without a receiver this process is already stopping.
            let _ = sender.send(Event::Stop);
        });
    }

    /// Receives notices from the pipe at `path`.
    pub fn listen(&mut self, path: PathBuf, pipe: File) {
        let sender = self.sender.clone();
        thread::spawn(move || {
            notice::read(pipe, |notice| sender.send(Event::Notice(notice)).is_ok());
        });
        self.notices = Some(path);
    }

    /// Starts a child.
    pub fn spawn(&mut self, command: &mut Command) -> io::Result<Pid> {
        // The standard library does not wait for it: `wait` reaps all children.
        command.spawn().map(|child| Pid::from_child(&child))
    }

    /// Waits until `child` exits or a signal to stop is received. `on_notice` is called with every
    /// notice that was sent until then.
    pub fn wait(&mut self, child: Pid, on_notice: &mut dyn FnMut(Notice)) -> WaitOutcome {
        loop {
            match self.events.recv().expect("we hold a sender ourselves") {
                Event::Stop => return WaitOutcome::Stop,
                Event::Notice(notice) => on_notice(notice),
                Event::ChildExited => {
                    if let Some(code) = reap_all(child) {
                        return self.flush(code, on_notice);
                    }
                }
            }
        }
    }

    /// Waits for a signal to stop.
    pub fn wait_for_stop(&mut self) {
        loop {
            match self.events.recv().expect("we hold a sender ourselves") {
                Event::Stop => return,
                Event::Notice(_) => {}
                Event::ChildExited => while matches!(processes::reap(), Reaped::Exited(_)) {},
            }
        }
    }

    /// Stops all descendants, with SIGTERM and, after `grace`, with SIGKILL. `kill_first` is killed
    /// at once.
    pub fn stop(&mut self, kill_first: Option<Pid>, grace: Duration) {
        if let Some(process) = kill_first {
            processes::signal(&[process], Signal::KILL);
            processes::signal(&processes::descendants(rustix::process::getpid()), Signal::TERM);
        } else {
            // Only the process group: a broker stops its own children itself. This process
            // receives the signal too, as another `Stop`, which is ignored.
            let _ = rustix::process::kill_process_group(rustix::process::getpgrp(), Signal::TERM);
        }
        let deadline = Instant::now() + grace;
        while self.has_children() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.events.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        self.kill_remaining();
    }

    /// Kills all remaining descendants.
    pub fn kill_remaining(&mut self) {
        let deadline = Instant::now() + KILL_LIMIT;
        while self.has_children() && Instant::now() < deadline {
            // Repeatedly: a process may start another one meanwhile.
            processes::signal(&processes::descendants(rustix::process::getpid()), Signal::KILL);
            let _ = self.events.recv_timeout(Duration::from_millis(10));
        }
    }

    fn has_children(&self) -> bool {
        loop {
            match processes::reap() {
                Reaped::Exited(_) => {}
                Reaped::Running => return true,
                Reaped::NoChildren => return false,
            }
        }
    }

    /// Receives the notices that were sent before a child exited with `code`.
    fn flush(&mut self, code: u8, on_notice: &mut dyn FnMut(Notice)) -> WaitOutcome {
        let Some(notices) = &self.notices else { return WaitOutcome::Exited(code) };
        notice::send(notices, &Notice::Flushed);
        let deadline = Instant::now() + FLUSH_LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(Event::Notice(Notice::Flushed)) | Err(_) => return WaitOutcome::Exited(code),
                Ok(Event::Notice(notice)) => on_notice(notice),
                Ok(Event::Stop) => return WaitOutcome::Stop,
                Ok(Event::ChildExited) => while matches!(processes::reap(), Reaped::Exited(_)) {},
            }
        }
    }
}

/// Reaps all children that have exited; returns the exit code of `child` if it is one of them.
fn reap_all(child: Pid) -> Option<u8> {
    let mut found = None;
    while let Reaped::Exited(ExitedChild { process, code }) = processes::reap() {
        if process == child {
            found = Some(code);
        }
    }
    found
}
