//! Connections between brokers: workers connect to the lead.
//!
//! A peer has a few seconds to prove that it has the certificate and to send its rank. Until then
//! it costs one thread and a few hundred bytes, and the number of such connections is limited, so
//! peers without the certificate can do little harm.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread;
use std::time::Duration;

use super::log::{Level, Log, error_chain};
use super::loop_event::LoopEvent;
use crate::frame::{self, ReadError};
use crate::message::{Hello, Message, PROTOCOL, Welcome};
use crate::secure::{self, HandshakeError, SharedKey};
use crate::socket::{self, DeadlineSocket, Listener, Socket, SocketError};

/// How long the handshake of a broker may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many handshakes may be in progress. Brokers that are rejected try again.
const MAX_HANDSHAKES: usize = 256;

/// What the lead needs to accept brokers.
pub struct JoinAcceptor {
    pub key: SharedKey,
    pub hosts: Vec<String>,
    pub welcome: Welcome,
    pub events: SyncSender<LoopEvent>,
    pub log: Log,
}

/// Why a broker was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("failed to reach the lead")]
    Dial { source: SocketError },
    #[error("failed to prove membership")]
    Handshake { source: HandshakeError },
    #[error("failed to read the first message")]
    Read { source: ReadError },
    #[error("failed to send the first message")]
    Write { source: std::io::Error },
    #[error("the first message is unexpected")]
    Unexpected,
    #[error("{reason}")]
    Refused { reason: String },
}

/// A worker's connection to the lead.
pub struct Link {
    pub welcome: Welcome,
    pub messages: SyncSender<Vec<u8>>,
    pub address: Option<std::net::IpAddr>,
}

/// Accepts brokers for as long as the process lives.
pub fn serve(listener: Listener, acceptor: JoinAcceptor) {
    let acceptor = Arc::new(acceptor);
    let busy = Arc::new(AtomicUsize::new(0));
    thread::spawn(move || {
        for connection in 1.. {
            let (socket, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    acceptor.log.add(Level::Error, &format!("failed to accept a broker: {error}"));
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            if busy.fetch_add(1, Ordering::SeqCst) >= MAX_HANDSHAKES {
                busy.fetch_sub(1, Ordering::SeqCst);
                acceptor.log.add(Level::Error, &format!("rejected {peer}: too many connections"));
                continue;
            }
            let (acceptor, busy) = (acceptor.clone(), busy.clone());
            thread::spawn(move || {
                let admitted = accept_broker(socket, &acceptor);
                busy.fetch_sub(1, Ordering::SeqCst);
                match admitted {
                    Ok((hello, reader, writer)) => {
                        serve_connection(&acceptor, connection, hello, reader, writer)
                    }
                    Err(error) => {
                        acceptor.log.add(
                            Level::Error,
                            &format!("rejected {peer}: {}", error_chain(&error)),
                        );
                    }
                }
            });
        }
    });
}

/// Performs the handshake with a broker, and checks its rank and host.
fn accept_broker(
    socket: Socket,
    acceptor: &JoinAcceptor,
) -> Result<(Hello, secure::Reader, secure::Writer), JoinError> {
    let write = |source| JoinError::Write { source };
    socket.set_options().map_err(write)?;
    let timed = DeadlineSocket::new(socket, HANDSHAKE_TIMEOUT);
    let (mut reader, mut writer) =
        secure::accept(timed, &acceptor.key).map_err(|source| JoinError::Handshake { source })?;
    let message = frame::read(&mut reader).map_err(|source| JoinError::Read { source })?;
    let Message::Hello(hello) = message else { return Err(JoinError::Unexpected) };
    if let Err(reason) = check_hello(&hello, &acceptor.hosts) {
        send(&mut writer, &Message::Refused { reason: reason.clone() }).map_err(write)?;
        return Err(JoinError::Refused { reason });
    }
    send(&mut writer, &Message::Welcome(acceptor.welcome.clone())).map_err(write)?;
    reader.socket.clear_deadline().map_err(write)?;
    Ok((hello, reader, writer))
}

/// Flux's checks: the same version, and the host that has this rank in the table.
fn check_hello(hello: &Hello, hosts: &[String]) -> Result<(), String> {
    let Hello { protocol, rank, hostname, .. } = hello;
    if *protocol != PROTOCOL {
        return Err(format!("{hostname} (rank {rank}) has version {protocol}, not {PROTOCOL}"));
    }
    match hosts.get(*rank as usize) {
        None | Some(_) if *rank == 0 => Err(format!("{hostname} claims rank {rank}")),
        None => Err(format!("{hostname} claims rank {rank} of {}", hosts.len())),
        Some(host) if host != hostname => {
            Err(format!("{hostname} claims rank {rank}, which is {host}: mismatched config?"))
        }
        Some(_) => Ok(()),
    }
}

/// Passes messages both ways until the connection is closed.
fn serve_connection(
    acceptor: &JoinAcceptor,
    connection: u64,
    hello: Hello,
    mut reader: secure::Reader,
    writer: secure::Writer,
) {
    let rank = hello.rank;
    let (messages, outgoing) = channel();
    thread::spawn(move || write(writer, &outgoing));
    let _loop_has_ended = acceptor.events.send(LoopEvent::Joined { hello, connection, messages });
    let error = loop {
        match frame::read(&mut reader) {
            Ok(message) => {
                let message = Box::new(message);
                if acceptor.events.send(LoopEvent::Message { rank, connection, message }).is_err() {
                    return;
                }
            }
            Err(error) => break error,
        }
    };
    let reason = error_chain(&error);
    let _loop_has_ended =
        acceptor.events.send(LoopEvent::Disconnected { rank, connection, reason });
}

fn write(mut writer: secure::Writer, frames: &Receiver<Vec<u8>>) {
    for frame in frames {
        if writer.send(&frame).is_err() {
            break;
        }
    }
    let _nothing_to_flush = writer.socket.flush();
    writer.socket.socket.shut_down();
}

/// Connects to the lead, once.
pub fn join(
    endpoint: &str,
    key: &SharedKey,
    hello: Hello,
    timeout: Duration,
    events: SyncSender<LoopEvent>,
) -> Result<Link, JoinError> {
    let write_failed = |source| JoinError::Write { source };
    let socket = socket::connect(endpoint, timeout).map_err(|source| JoinError::Dial { source })?;
    socket.set_options().map_err(write_failed)?;
    let address = socket.local_address();
    let (mut reader, mut writer) =
        secure::connect(DeadlineSocket::new(socket, HANDSHAKE_TIMEOUT), key)
            .map_err(|source| JoinError::Handshake { source })?;
    send(&mut writer, &Message::Hello(hello)).map_err(write_failed)?;
    let first = frame::read(&mut reader).map_err(|source| JoinError::Read { source })?;
    let welcome = match first {
        Message::Welcome(welcome) => welcome,
        Message::Refused { reason } => return Err(JoinError::Refused { reason }),
        _ => return Err(JoinError::Unexpected),
    };
    reader.socket.clear_deadline().map_err(write_failed)?;
    // Bounded: a task that prints more than can be sent has to wait.
    let (messages, outgoing) = std::sync::mpsc::sync_channel(64);
    thread::spawn(move || write(writer, &outgoing));
    thread::spawn(move || {
        let reason = loop {
            match frame::read(&mut reader) {
                Ok(message) => {
                    let message = Box::new(message);
                    if events.send(LoopEvent::Message { rank: 0, connection: 0, message }).is_err()
                    {
                        return;
                    }
                }
                Err(error) => break error_chain(&error),
            }
        };
        let _loop_has_ended =
            events.send(LoopEvent::Disconnected { rank: 0, connection: 0, reason });
    });
    Ok(Link { welcome, messages, address })
}

/// A queue to one broker.
pub type MessageSender = Sender<Vec<u8>>;

fn send(writer: &mut secure::Writer, message: &Message) -> std::io::Result<()> {
    writer.send(&frame::encode(message).map_err(std::io::Error::other)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_in_the_table_gets_its_rank() {
        let hosts = ["fs-0", "fs-1"].map(str::to_owned);
        let hello = |protocol, rank, hostname: &str| {
            let hostname = hostname.to_owned();
            check_hello(&Hello { protocol, rank, hostname, cores: 1, unfit: None }, &hosts)
        };
        assert_eq!(hello(PROTOCOL, 1, "fs-1"), Ok(()));
        for (protocol, rank, hostname, word) in [
            (PROTOCOL + 1, 1, "fs-1", "version"),
            (PROTOCOL, 0, "fs-0", "claims rank 0"),
            (PROTOCOL, 2, "fs-2", "claims rank 2"),
            (PROTOCOL, 1, "fs-0", "mismatched config?"),
        ] {
            let reason = hello(protocol, rank, hostname).unwrap_err();
            assert!(reason.contains(word), "{reason}");
        }
    }
}
