//! One broker process.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::Pid;

use crate::processes;
use crate::tail::Tail;

/// How long to wait for output that the broker wrote before it exited.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// A running broker.
#[derive(Debug)]
pub struct BrokerProcess {
    /// Its process.
    pub process: Pid,
    tail: Tail,
}

/// How a broker exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerExit {
    /// Its exit code, or 128 plus the signal that killed it.
    pub code: u8,
    /// It was killed by a signal. A broker whose program was killed exits by itself with the
    /// same code.
    pub killed: bool,
}

impl BrokerProcess {
    /// Starts `flux` with these arguments and this variable; `on_exit` is called when it has
    /// exited. Its standard error is forwarded.
    pub fn start(
        flux: &Path,
        words: &[String],
        variable: Option<(&str, String)>,
        on_exit: impl FnOnce(BrokerExit) + Send + 'static,
    ) -> io::Result<BrokerProcess> {
        let mut child =
            Command::new(flux).args(words).envs(variable).stderr(Stdio::piped()).spawn()?;
        let process = Pid::from_child(&child);
        let tail = Tail::default();
        let (passed, all_passed) = mpsc::channel();
        if let Some(errors) = child.stderr.take() {
            let tail = tail.clone();
            thread::spawn(move || {
                tail.forward(errors, io::stderr());
                // There is no receiver any more if the broker exited long ago.
                let _ = passed.send(());
            });
        }
        thread::spawn(move || {
            let exit = child.wait().map_or(BrokerExit { code: u8::MAX, killed: true }, exit_of);
            // With a timeout: a process that outlives the broker may keep the stream open.
            let _ = all_passed.recv_timeout(OUTPUT_TIMEOUT);
            on_exit(exit);
        });
        Ok(BrokerProcess { process, tail })
    }

    /// The end of its standard error. It follows what the broker still writes.
    pub fn tail(&self) -> Tail {
        self.tail.clone()
    }

    /// The end of its standard error until now.
    pub fn last_output(&self) -> String {
        self.tail.text()
    }
}

fn exit_of(status: ExitStatus) -> BrokerExit {
    BrokerExit { code: processes::exit_code(status), killed: status.code().is_none() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> (BrokerExit, String) {
        let (sender, receiver) = mpsc::channel();
        let words = ["-c".to_owned(), script.to_owned()];
        let on_exit = move |end| sender.send(end).unwrap();
        let broker = BrokerProcess::start(Path::new("/bin/sh"), &words, None, on_exit).unwrap();
        let end = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        (end, broker.last_output())
    }

    #[test]
    fn the_exit_code_and_the_last_output_are_known() {
        let (end, output) = run("echo one >&2; echo two >&2; exit 3");
        assert_eq!(end, BrokerExit { code: 3, killed: false });
        assert_eq!(output, "one\ntwo");
    }

    #[test]
    fn a_killed_broker_is_distinguished_from_one_that_exits_with_that_code() {
        assert_eq!(run("kill -9 $$").0, BrokerExit { code: 137, killed: true });
        assert_eq!(run("exit 137").0, BrokerExit { code: 137, killed: false });
    }

    #[test]
    fn a_process_that_keeps_the_stream_open_does_not_delay_the_exit() {
        let (end, words) = run("echo last >&2; sleep 5 & exit 0");
        assert_eq!((end.code, words.as_str()), (0, "last"));
    }
}
