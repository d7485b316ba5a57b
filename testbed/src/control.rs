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
pub(crate) enum ControlRequest {
    /// Check that it is alive.
    Ping,
    /// Stop everything.
    Shutdown,
    /// Stop one component and keep it stopped.
    Stop(String),
    /// Start a stopped component and wait until it is ready.
    Start(String),
}

impl fmt::Display for ControlRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlRequest::Ping => write!(formatter, "answer"),
            ControlRequest::Shutdown => write!(formatter, "end"),
            ControlRequest::Stop(component) => write!(formatter, "stop {component}"),
            ControlRequest::Start(component) => write!(formatter, "start {component}"),
        }
    }
}

impl FromStr for ControlRequest {
    type Err = String;

    fn from_str(line: &str) -> Result<ControlRequest, String> {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["answer"] => Ok(ControlRequest::Ping),
            ["end"] => Ok(ControlRequest::Shutdown),
            ["stop", component] => Ok(ControlRequest::Stop(component.to_owned())),
            ["start", component] => Ok(ControlRequest::Start(component.to_owned())),
            _ => Err(format!("unknown request {line:?}")),
        }
    }
}

/// Why a request to a supervisor failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It could not be reached, or did not respond in time.
    #[error("the supervisor does not respond")]
    Unreachable(#[source] io::Error),
    /// It refused the request.
    #[error("the supervisor refused: {message}")]
    Refused {
        /// Its message.
        message: String,
    },
}

/// Sends a request and waits for the response.
pub(crate) fn send(
    socket: &Path,
    request: &ControlRequest,
    limit: Duration,
) -> Result<(), ControlError> {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        writeln!(stream, "{request}")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    };
    match ask().map_err(ControlError::Unreachable)?.trim() {
        "ok" => Ok(()),
        "" => Err(ControlError::Unreachable(io::ErrorKind::UnexpectedEof.into())),
        message => Err(ControlError::Refused { message: message.to_owned() }),
    }
}

/// Whether a supervisor is alive. A busy one, which is starting a component, is; one that is being
/// killed is not, although its lock may still be held for a moment.
pub(crate) fn is_alive(socket: &Path) -> bool {
    match send(socket, &ControlRequest::Ping, Duration::from_secs(5)) {
        Ok(()) | Err(ControlError::Refused { .. }) => true,
        Err(ControlError::Unreachable(error)) => {
            matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
        }
    }
}

/// The supervisor's side of the protocol.
#[derive(Debug)]
pub(crate) struct ControlListener(UnixListener);

/// A request that was not answered yet.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) request: ControlRequest,
    stream: UnixStream,
}

impl ControlListener {
    pub(crate) fn bind(socket: &Path) -> io::Result<ControlListener> {
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        Ok(ControlListener(listener))
    }

    /// Waits up to `limit`, which must be less than a second, for a request.
    pub(crate) fn next(&self, limit: Duration) -> Option<PendingRequest> {
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
            Ok(request) => Some(PendingRequest { request, stream }),
            Err(message) => {
                respond(stream, Err(message));
                None
            }
        }
    }
}

impl PendingRequest {
    pub(crate) fn answer(self, result: Result<(), String>) {
        respond(self.stream, result);
    }
}

fn respond(mut stream: UnixStream, result: Result<(), String>) {
    let line = match result {
        Ok(()) => "ok".to_owned(),
        Err(message) => message.replace('\n', " "),
    };
    // The client may have disconnected; that is not an error.
    let _disconnected = writeln!(stream, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_parse_as_they_are_printed() {
        for request in [
            ControlRequest::Ping,
            ControlRequest::Shutdown,
            ControlRequest::Stop("a".into()),
            ControlRequest::Start("b".into()),
        ] {
            assert_eq!(request.to_string().parse::<ControlRequest>(), Ok(request));
        }
        assert!("stop".parse::<ControlRequest>().is_err());
        assert!("rm everything".parse::<ControlRequest>().is_err());
    }

    #[test]
    fn a_request_over_the_socket_is_answered() {
        let socket = std::env::temp_dir().join(format!("testbed-control-{}", std::process::id()));
        let listener = ControlListener::bind(&socket).unwrap();
        assert!(listener.next(Duration::from_millis(1)).is_none());
        let asker = {
            let socket = socket.clone();
            std::thread::spawn(move || {
                let limit = Duration::from_secs(10);
                let yes = send(&socket, &ControlRequest::Shutdown, limit);
                let no = send(&socket, &ControlRequest::Stop("x".into()), limit);
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
