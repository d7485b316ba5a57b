//! Staying with one child: what the first process of a container does.
//!
//! It takes signals, reaps whatever ends below it, and when it is told to stop
//! it ends everything below it: SIGTERM first, and SIGKILL to what is left after a
//! while.

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
use crate::processes::{self, Ended, Reaped};
use crate::signals;

/// How long SIGKILL may take until we leave it to whoever cleans up after us.
const KILL_LIMIT: Duration = Duration::from_millis(400);

/// How long notices may take that were sent before a child ended. They are in
/// the pipe already.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

enum Event {
    Stop,
    Children,
    Notice(Notice),
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The child ended with this code.
    Ended(u8),
    /// We are to stop.
    Stop,
}

/// Takes signals and stays with children.
pub struct Supervisor {
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// The pipe that notices come from.
    notices: Option<PathBuf>,
}

impl Supervisor {
    /// Starts to take signals; from now on only [`Waited::Stop`] says that one came.
    pub fn new() -> io::Result<Supervisor> {
        // A group of our own, so that a signal to it reaches ours and only ours.
        if rustix::process::getpgrp() != rustix::process::getpid() {
            rustix::process::setpgid(None, None)?;
        }
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let (sender, events) = mpsc::channel();
        let signalled = sender.clone();
        signals::on_stop(move || signalled.send(Event::Stop).is_ok())?;
        let mut ended = Signals::new([SIGCHLD])?;
        let signalled = sender.clone();
        thread::spawn(move || {
            for _ in ended.forever() {
                if signalled.send(Event::Children).is_err() {
                    return;
                }
            }
        });
        Ok(Supervisor { events, sender, notices: None })
    }

    /// Takes the end of the standard input as a signal to stop: whoever started
    /// us holds the other end, and is gone.
    pub fn stop_on_eof(&self) {
        let sender = self.sender.clone();
        thread::spawn(move || {
            let mut input = io::stdin();
            let mut buffer = [0; 256];
            while !matches!(input.read(&mut buffer), Ok(0) | Err(_)) {}
            // If the other end of this is gone too, we are ending already.
            let _ = sender.send(Event::Stop);
        });
    }

    /// Takes notices from the pipe at `path`.
    pub fn listen(&mut self, path: PathBuf, pipe: File) {
        let sender = self.sender.clone();
        thread::spawn(move || {
            notice::read(pipe, |notice| sender.send(Event::Notice(notice)).is_ok());
        });
        self.notices = Some(path);
    }

    /// Starts a child.
    pub fn spawn(&mut self, command: &mut Command) -> io::Result<Pid> {
        // Not waited for through the standard library: `wait` reaps all there are.
        command.spawn().map(|child| Pid::from_child(&child))
    }

    /// Waits until `child` ends or we are to stop. `seen` gets every notice that
    /// was sent until then.
    pub fn wait(&mut self, child: Pid, seen: &mut dyn FnMut(Notice)) -> Waited {
        loop {
            match self.events.recv().expect("we hold a sender ourselves") {
                Event::Stop => return Waited::Stop,
                Event::Notice(notice) => seen(notice),
                Event::Children => {
                    if let Some(code) = reap_until(child) {
                        return self.flush(code, seen);
                    }
                }
            }
        }
    }

    /// Waits until we are to stop.
    pub fn wait_for_stop(&mut self) {
        loop {
            match self.events.recv().expect("we hold a sender ourselves") {
                Event::Stop => return,
                Event::Notice(_) => {}
                Event::Children => while matches!(processes::reap(), Reaped::Ended(_)) {},
            }
        }
    }

    /// Ends everything below us: politely first, for `grace`, but `lost` at once.
    pub fn stop(&mut self, lost: Option<Pid>, grace: Duration) {
        if let Some(lost) = lost {
            processes::signal(&[lost], Signal::KILL);
            processes::signal(&processes::descendants(rustix::process::getpid()), Signal::TERM);
        } else {
            // Not every process below: a broker tells its own children itself. The
            // signal comes back to us as one more `Stop`, which nobody waits for.
            let _ = rustix::process::kill_process_group(rustix::process::getpgrp(), Signal::TERM);
        }
        let deadline = Instant::now() + grace;
        while self.children_left() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.events.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        self.kill_rest();
    }

    /// Kills whatever is left below us.
    pub fn kill_rest(&mut self) {
        let deadline = Instant::now() + KILL_LIMIT;
        while self.children_left() && Instant::now() < deadline {
            // Again and again: a process may start another one meanwhile.
            processes::signal(&processes::descendants(rustix::process::getpid()), Signal::KILL);
            let _ = self.events.recv_timeout(Duration::from_millis(10));
        }
    }

    fn children_left(&self) -> bool {
        loop {
            match processes::reap() {
                Reaped::Ended(_) => {}
                Reaped::Running => return true,
                Reaped::None => return false,
            }
        }
    }

    /// Takes the notices that were sent before a child ended with `code`.
    fn flush(&mut self, code: u8, seen: &mut dyn FnMut(Notice)) -> Waited {
        let Some(notices) = &self.notices else { return Waited::Ended(code) };
        notice::send(notices, &Notice::Flushed);
        let deadline = Instant::now() + FLUSH_LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(Event::Notice(Notice::Flushed)) | Err(_) => return Waited::Ended(code),
                Ok(Event::Notice(notice)) => seen(notice),
                Ok(Event::Stop) => return Waited::Stop,
                Ok(Event::Children) => while matches!(processes::reap(), Reaped::Ended(_)) {},
            }
        }
    }
}

/// Reaps all that have ended; the code of `child` if it is among them.
fn reap_until(child: Pid) -> Option<u8> {
    let mut found = None;
    while let Reaped::Ended(Ended { process, code }) = processes::reap() {
        if process == child {
            found = Some(code);
        }
    }
    found
}
