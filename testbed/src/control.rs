//! The protocol between other processes and a supervisor: a request line and a response line over a
//! socket.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// A request to a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Check that it is alive.
    Answer,
    /// Stop everything.
    End,
    /// Stop one component and keep it stopped.
    Stop(String),
    /// Start a stopped component and wait until it is ready.
    Start(String),
}

impl fmt::Display for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Answer => write!(formatter, "answer"),
            Request::End => write!(formatter, "end"),
            Request::Stop(component) => write!(formatter, "stop {component}"),
            Request::Start(component) => write!(formatter, "start {component}"),
        }
    }
}

impl FromStr for Request {
    type Err = String;

    fn from_str(line: &str) -> Result<Request, String> {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["answer"] => Ok(Request::Answer),
            ["end"] => Ok(Request::End),
            ["stop", component] => Ok(Request::Stop(component.to_owned())),
            ["start", component] => Ok(Request::Start(component.to_owned())),
            _ => Err(format!("unknown request {line:?}")),
        }
    }
}

/// Why a request to a supervisor failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It could not be reached, or did not respond in time.
    #[error("the supervisor does not respond")]
    Silent(#[source] io::Error),
    /// It refused the request.
    #[error("the supervisor refused: {message}")]
    Refused {
        /// Its message.
        message: String,
    },
}

/// Sends a request and waits for the response.
pub(crate) fn send(socket: &Path, request: &Request, limit: Duration) -> Result<(), ControlError> {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        writeln!(stream, "{request}")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    };
    match ask().map_err(ControlError::Silent)?.trim() {
        "ok" => Ok(()),
        "" => Err(ControlError::Silent(io::ErrorKind::UnexpectedEof.into())),
        message => Err(ControlError::Refused { message: message.to_owned() }),
    }
}

/// Whether a supervisor is alive. A busy one, which is starting a component, is; one that is being
/// killed is not, although its lock may still be held for a moment.
pub(crate) fn is_alive(socket: &Path) -> bool {
    match send(socket, &Request::Answer, Duration::from_secs(5)) {
        Ok(()) | Err(ControlError::Refused { .. }) => true,
        Err(ControlError::Silent(error)) => {
            matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
        }
    }
}

/// The supervisor's side of the protocol.
#[derive(Debug)]
pub(crate) struct Listener(UnixListener);

/// A request that was not answered yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    stream: UnixStream,
}

impl Listener {
    pub(crate) fn bind(socket: &Path) -> io::Result<Listener> {
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        Ok(Listener(listener))
    }

    /// Waits up to `limit` for a request.
    pub(crate) fn next(&self, limit: Duration) -> Option<Pending> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let limit = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
        let mut waiting = [PollFd::new(&self.0, PollFlags::IN)];
        // An interruption by a signal counts as no request: the caller checks its state and calls
        // again.
        if poll(&mut waiting, Some(&limit)).unwrap_or(0) == 0 {
            return None;
        }
        let (stream, _) = self.0.accept().ok()?;
        // A client that sends nothing must not block the supervisor for long.
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).ok()?;
        match line.parse() {
            Ok(request) => Some(Pending { request, stream }),
            Err(message) => {
                answer(stream, Err(message));
                None
            }
        }
    }
}

impl Pending {
    pub(crate) fn answer(self, result: Result<(), String>) {
        answer(self.stream, result);
    }
}

fn answer(mut stream: UnixStream, result: Result<(), String>) {
    let line = match result {
        Ok(()) => "ok".to_owned(),
        Err(message) => message.replace('\n', " "),
    };
    // The client may have disconnected; that is not an error.
    let _gone = writeln!(stream, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        for request in
            [Request::Answer, Request::End, Request::Stop("a".into()), Request::Start("b".into())]
        {
            assert_eq!(request.to_string().parse::<Request>(), Ok(request));
        }
        assert!("stop".parse::<Request>().is_err());
        assert!("rm everything".parse::<Request>().is_err());
    }

    #[test]
    fn a_question_over_the_socket_is_answered() {
        let socket = std::env::temp_dir().join(format!("testbed-control-{}", std::process::id()));
        let listener = Listener::bind(&socket).unwrap();
        assert!(listener.next(Duration::from_millis(1)).is_none());
        let asker = {
            let socket = socket.clone();
            std::thread::spawn(move || {
                let limit = Duration::from_secs(10);
                let yes = send(&socket, &Request::End, limit);
                let no = send(&socket, &Request::Stop("x".into()), limit);
                (yes, no)
            })
        };
        let mut answers = [Ok(()), Err("no such component".to_owned())].into_iter();
        while answers.len() > 0 {
            if let Some(pending) = listener.next(Duration::from_millis(100)) {
                pending.answer(answers.next().unwrap());
            }
        }
        let (yes, no) = asker.join().unwrap();
        assert!(yes.is_ok());
        assert_eq!(no.unwrap_err().to_string(), "the supervisor refused: no such component");
        drop(listener);
        assert!(!is_alive(&socket));
        std::fs::remove_file(&socket).unwrap();
        assert!(!is_alive(&socket));
    }
}
