//! The events of a broker's event loop. One queue, so that they are handled in order.

use std::process::ExitStatus;
use std::sync::mpsc::Sender;

use super::clients::ClientEvent;
use crate::message::{Hello, Message, Report};

/// An event.
pub enum LoopEvent {
    Client(ClientEvent),
    /// A broker has joined; its messages have the same connection number.
    Joined {
        hello: Hello,
        connection: u64,
        messages: Sender<Vec<u8>>,
    },
    /// A message from a broker.
    Message {
        rank: u32,
        connection: u64,
        message: Box<Message>,
    },
    /// A connection between brokers was closed, for this reason.
    Disconnected {
        rank: u32,
        connection: u64,
        reason: String,
    },
    /// A report of tasks on this host.
    Report(Report),
    Signal(i32),
    /// The initial program has exited.
    ProgramExited(std::io::Result<ExitStatus>),
}
