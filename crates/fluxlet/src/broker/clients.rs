//! The local socket of a broker, to which clients of this host connect.
//!
//! Only the user who runs the broker, and root, may connect. Each connection has a thread that
//! reads and one that writes; a client never blocks the broker's event loop.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use super::log::{Level, Log};
use super::loop_event::LoopEvent;
use crate::client::TaggedMessage;
use crate::frame;
use crate::message::{Reply, Request};
use crate::socket::{Listener, Socket};

/// An event of a client.
pub enum ClientEvent {
    Opened { channel: u64, replies: Sender<Vec<u8>> },
    Request { channel: u64, tag: u64, request: Request },
    Closed { channel: u64 },
}

/// The open connections.
#[derive(Default)]
pub struct Clients(HashMap<u64, Sender<Vec<u8>>>);

impl Clients {
    pub fn insert(&mut self, channel: u64, replies: Sender<Vec<u8>>) {
        self.0.insert(channel, replies);
    }

    pub fn remove(&mut self, channel: u64) {
        self.0.remove(&channel);
    }

    /// Sends a reply; it is dropped if the client has disconnected.
    pub fn reply(&self, channel: u64, tag: u64, reply: Reply) {
        if let (Some(replies), Ok(frame)) =
            (self.0.get(&channel), frame::encode(&TaggedMessage { tag, body: reply }))
        {
            let _client_disconnected = replies.send(frame);
        }
    }
}

/// Accepts clients for as long as the process lives.
pub fn serve(listener: Listener, events: SyncSender<LoopEvent>, log: Log) {
    thread::spawn(move || {
        for channel in 1.. {
            match listener.accept() {
                Ok((Socket::Unix(stream), _)) => {
                    if is_allowed(&stream) {
                        handle_client(channel, stream, events.clone());
                    } else {
                        log.add(Level::Error, "rejected a client of another user");
                    }
                }
                Ok((Socket::Tcp(_), _)) => {}
                Err(error) => {
                    log.add(Level::Error, &format!("failed to accept a client: {error}"));
                    // Most likely there is no free file descriptor; some will be closed.
                    thread::sleep(std::time::Duration::from_millis(100));
                }
            }
        }
    });
}

fn is_allowed(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

fn handle_client(channel: u64, stream: UnixStream, events: SyncSender<LoopEvent>) {
    let (replies, receiver) = self::channel();
    let Ok(writer) = stream.try_clone() else { return };
    thread::spawn(move || write_frames(writer, &receiver));
    thread::spawn(move || {
        let send = |event| events.send(LoopEvent::Client(event)).is_ok();
        if !send(ClientEvent::Opened { channel, replies }) {
            return;
        }
        let mut reader = BufReader::new(stream);
        while let Ok(TaggedMessage { tag, body: request }) =
            frame::read::<TaggedMessage<Request>>(&mut reader)
        {
            if !send(ClientEvent::Request { channel, tag, request }) {
                return;
            }
        }
        send(ClientEvent::Closed { channel });
    });
}

fn write_frames(mut stream: UnixStream, frames: &Receiver<Vec<u8>>) {
    for frame in frames {
        if stream.write_all(&frame).is_err() {
            break;
        }
    }
    let _already_closed = stream.shutdown(std::net::Shutdown::Both);
}
