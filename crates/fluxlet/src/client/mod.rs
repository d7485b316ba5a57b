//! A client of a broker: connects to its local socket, sends requests and receives replies.

use std::collections::BTreeMap;
use std::io::{BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use flux_operator_flux::JobId;
use serde::{Deserialize, Serialize};

use crate::frame::{self, ReadError};
use crate::message::{Refusal, RefusalKind, Reply, Request};

/// A request or reply on the local socket.
#[derive(Debug, Serialize, Deserialize)]
pub struct TaggedMessage<T> {
    pub tag: u64,
    pub body: T,
}

/// A connection to a broker.
pub struct Client {
    writer: UnixStream,
    reader: BufReader<UnixStream>,
    last_tag: u64,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{uri}: not a URI of the form local://PATH")]
    Uri { uri: String },
    #[error("{uri}: broker socket {} was not found", path.display())]
    NoSocket { uri: String, path: PathBuf },
    #[error("{uri}: failed to connect to the broker")]
    Connect { uri: String, source: std::io::Error },
    #[error("failed to communicate with the broker")]
    Read { source: ReadError },
    #[error("failed to send to the broker")]
    Write { source: std::io::Error },
    #[error("{}", .0.text)]
    Refused(Refusal),
    #[error("timeout")]
    Timeout,
    #[error("the broker sent an unexpected reply")]
    UnexpectedReply,
}

impl ClientError {
    /// The kind of the refusal, if the broker refused the request.
    pub fn refusal(&self) -> Option<RefusalKind> {
        match self {
            Self::Refused(refusal) => Some(refusal.kind),
            _ => None,
        }
    }
}

impl Client {
    /// Connects to `local://PATH`. `ssh://HOST/PATH`, for other hosts, is not supported.
    pub fn connect(uri: &str) -> Result<Self, ClientError> {
        let path = uri.strip_prefix("local://");
        let path = path.ok_or_else(|| ClientError::Uri { uri: uri.to_owned() })?;
        let stream = UnixStream::connect(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => {
                ClientError::NoSocket { uri: uri.to_owned(), path: PathBuf::from(path) }
            }
            _ => ClientError::Connect { uri: uri.to_owned(), source },
        })?;
        let reader = stream.try_clone();
        let reader =
            reader.map_err(|source| ClientError::Connect { uri: uri.to_owned(), source })?;
        Ok(Self { writer: stream, reader: BufReader::new(reader), last_tag: 0 })
    }

    /// Sets how long to wait for each reply; `None` waits forever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), ClientError> {
        let write = |source| ClientError::Write { source };
        self.reader.get_ref().set_read_timeout(timeout).map_err(write)
    }

    /// Sends a request and returns its tag, which identifies the replies to it.
    pub fn send(&mut self, request: Request) -> Result<u64, ClientError> {
        self.last_tag += 1;
        let message = TaggedMessage { tag: self.last_tag, body: request };
        frame::write(&mut self.writer, &message).map_err(|source| ClientError::Write { source })?;
        Ok(self.last_tag)
    }

    /// Receives the next reply to any request, including refusals.
    pub fn receive(&mut self) -> Result<(u64, Reply), ClientError> {
        let message: TaggedMessage<Reply> =
            frame::read(&mut self.reader).map_err(|source| match &source {
                ReadError::Read { source: cause }
                    if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    ClientError::Timeout
                }
                _ => ClientError::Read { source },
            })?;
        Ok((message.tag, message.body))
    }

    /// Sends a request and calls `handle` with each reply until the last one.
    pub fn for_each_reply(
        &mut self,
        request: Request,
        mut handle: impl FnMut(Reply),
    ) -> Result<(), ClientError> {
        let tag = self.send(request)?;
        loop {
            match self.receive()? {
                (found, _) if found != tag => {}
                (_, Reply::Done) => return Ok(()),
                (_, Reply::Error(refusal)) => return Err(ClientError::Refused(refusal)),
                (_, reply) => handle(reply),
            }
        }
    }

    /// Sends a request and returns its first reply.
    pub fn first_reply(&mut self, request: Request) -> Result<Reply, ClientError> {
        let mut first = None;
        self.for_each_reply(request, |reply| {
            first.get_or_insert(reply);
        })?;
        first.ok_or(ClientError::UnexpectedReply)
    }

    /// Sends a request and waits until it is done.
    pub fn execute(&mut self, request: Request) -> Result<(), ClientError> {
        self.for_each_reply(request, drop)
    }

    pub fn text(&mut self, request: Request) -> Result<String, ClientError> {
        match self.first_reply(request)? {
            Reply::Text(text) => Ok(text),
            _ => Err(ClientError::UnexpectedReply),
        }
    }

    pub fn attributes(&mut self) -> Result<BTreeMap<String, String>, ClientError> {
        match self.first_reply(Request::Attributes)? {
            Reply::Attributes(attributes) => Ok(attributes),
            _ => Err(ClientError::UnexpectedReply),
        }
    }

    pub fn submit(
        &mut self,
        submission: crate::submission::Submission,
    ) -> Result<JobId, ClientError> {
        match self.first_reply(Request::Submit(Box::new(submission)))? {
            Reply::Id(id) => Ok(id),
            _ => Err(ClientError::UnexpectedReply),
        }
    }
}
