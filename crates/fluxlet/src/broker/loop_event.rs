//! What wakes a broker's loop. One queue, so that things are handled in the order they happened.

use std::process::ExitStatus;
use std::sync::mpsc::Sender;

use super::clients::ClientEvent;
use crate::message::{Hello, Message, Report};

/// Something happened.
pub enum LoopEvent {
    Client(ClientEvent),
    /// A broker has joined; its messages follow, under the same number.
    Joined {
        hello: Hello,
        connection: u64,
        messages: Sender<Vec<u8>>,
    },
    /// From a broker.
    Message {
        rank: u32,
        connection: u64,
        message: Box<Message>,
    },
    /// A connection between brokers has ended, for this reason.
    Left {
        rank: u32,
        connection: u64,
        reason: String,
    },
    /// From tasks on this host.
    Report(Report),
    Signal(i32),
    /// The initial program has ended.
    Program(std::io::Result<ExitStatus>),
}
