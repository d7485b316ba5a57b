//! Notices: events that inner stages report to the agent through a named pipe.
//!
//! Each notice is a line of JSON. Writes of at most PIPE_BUF bytes are atomic, so
//! the broker stage and the program stage need not coordinate. It is a pipe rather
//! than a socket because the path would be too long for a socket.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use flux_operator_wire::TerminationReason;
use rustix::fs::{CWD, Mode, OFlags};
use serde::{Deserialize, Serialize};

/// Writes of up to this size are atomic (PIPE_BUF).
const MAX_BYTES: usize = 4096;

/// An event in an inner stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// The broker is running.
    BrokerStarted {
        /// Its process ID.
        process: i32,
    },
    /// The broker has joined the instance.
    Online,
    /// Enough brokers are online and the program has been started.
    ProgramStarted,
    /// The placeholder program of a cluster that stays up was signalled that the instance shuts
    /// down.
    ShutdownRequested,
    /// The broker exited and will be restarted.
    BrokerRestarting {
        /// Its exit code.
        code: u8,
    },
    /// The broker exited and will not be restarted.
    BrokerExited {
        /// Its exit code.
        code: u8,
        /// It was killed by a signal.
        killed: bool,
        /// Its last output.
        last_output: String,
    },
    /// The stage failed.
    Failed {
        /// Why, as one CamelCase word.
        reason: TerminationReason,
        /// Why, for humans.
        message: String,
    },
    /// A marker: everything that was sent before it has been read.
    Flushed,
}

/// Creates the pipe and opens it for reading. It stays open even without writers.
pub fn listen(path: &Path) -> io::Result<File> {
    // A pipe that is left over may contain old notices.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    rustix::fs::mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
    // Open for writing too, so that reading never returns end of file.
    OpenOptions::new().read(true).write(true).open(path)
}

/// Reads notices until `handle` returns false. Invalid lines are skipped: any process in the
/// container can write to the pipe.
pub fn read(pipe: File, mut handle: impl FnMut(Notice) -> bool) {
    let mut lines = BufReader::new(pipe);
    loop {
        let mut line = Vec::new();
        let limit = MAX_BYTES as u64 + 1;
        match (&mut lines).take(limit).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if let Ok(notice) = serde_json::from_slice(&line)
            && !handle(notice)
        {
            return;
        }
    }
}

/// Sends a notice. It is not an error if the agent has exited: then the sender is about to exit
/// too.
pub fn send(path: &Path, notice: &Notice) {
    let opened = OpenOptions::new()
        .write(true)
        // Without a reader the open fails instead of waiting for one.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    if let Ok(mut pipe) = opened {
        // The pipe has space for sixteen of the longest notices; it is full only if the agent
        // does not read.
        let _ = pipe.write_all(&line(notice));
    }
}

fn line(notice: &Notice) -> Vec<u8> {
    let text = |notice: &Notice| {
        let mut line = serde_json::to_vec(notice).expect("text and numbers are JSON");
        line.push(b'\n');
        line
    };
    let whole = text(notice);
    if whole.len() <= MAX_BYTES {
        return whole;
    }
    // Escapes make text up to six times longer.
    let mut cut = notice.clone();
    if let Notice::BrokerExited { last_output: long, .. } | Notice::Failed { message: long, .. } =
        &mut cut
    {
        *long = crate::tail::last_bytes(long, MAX_BYTES / 6 - 64).to_owned();
    }
    text(&cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn notices_arrive_in_order_despite_invalid_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notices");
        send(&path, &Notice::Online);
        let pipe = listen(&path).unwrap();
        let (sender, receiver) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            read(pipe, |notice| {
                let more = notice != Notice::Flushed;
                sender.send(notice).unwrap();
                more
            });
        });
        let sent = [
            Notice::BrokerStarted { process: 7 },
            Notice::BrokerExited { code: 1, killed: false, last_output: "\"\n\u{1}".into() },
            Notice::Failed { reason: TerminationReason::FluxMissing, message: String::new() },
            Notice::Flushed,
        ];
        send(&path, &sent[0]);
        let mut garbage = OpenOptions::new().write(true).open(&path).unwrap();
        garbage.write_all(b"garbage\n\xff{}\n").unwrap();
        garbage.write_all(&[b'x'; 3 * MAX_BYTES]).unwrap();
        garbage.write_all(b"\n").unwrap();
        for notice in &sent[1..] {
            send(&path, notice);
        }
        reader.join().unwrap();
        assert_eq!(receiver.iter().collect::<Vec<_>>(), sent);
    }

    #[test]
    fn a_long_message_keeps_its_end() {
        for message in ["\u{1}".repeat(9000), "ƒ".repeat(9000)] {
            let notice =
                Notice::BrokerExited { code: 3, killed: true, last_output: message.clone() };
            let line = line(&notice);
            assert!(line.len() <= MAX_BYTES);
            let Notice::BrokerExited { code: 3, killed: true, last_output: tail } =
                serde_json::from_slice(&line).unwrap()
            else {
                panic!()
            };
            assert!(!tail.is_empty() && message.ends_with(&tail));
        }
    }
}
