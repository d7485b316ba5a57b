//! How a handshake between a broker and the lead proceeds, from the bytes of each side.
//!
//! The gateway relays a handshake and reads the names of its commands, until the lead accepts the
//! broker:
//!
//! ```text
//!            ZMTP with CURVE (ZeroMQ RFC 26)       fluxlet
//! client ──► greeting, HELLO                       message
//! lead   ──► greeting, WELCOME
//! client ──► INITIATE
//! lead   ──► READY, or ERROR, or it disconnects    message, or it disconnects
//! ```
//!
//! READY, or fluxlet's message, proves that the client has the certificate. It is withheld until the
//! client has a place. What the client sends after INITIATE is withheld too, because a client with
//! the certificate could send its first message without waiting for READY. So a lead never receives
//! the hello of a broker for which there is no rank; Flux would let it replace the broker that has
//! the rank.

use crate::greeting::{
    FLUXLET_MESSAGE, GREETING, GREETING_PIECES, Protocol, is_valid_greeting, recognize,
};

/// The maximum size of a command. The longest, INITIATE, has 257 bytes and some properties of a
/// socket.
const MAX_COMMAND: u64 = 8 * 1024;

/// The longest name of a command in a handshake.
const LONGEST_NAME: usize = "INITIATE".len();

/// What follows from the bytes of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The number of bytes, from the start, to forward to the other side.
    pub(crate) forward: usize,
    /// What is known then.
    pub(crate) outcome: Outcome,
}

/// What is known about a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// More bytes are needed.
    Pending,
    /// This side has done its part, or has accepted the other one. All further bytes are withheld.
    Done,
    /// The lead has refused the client.
    Refused,
    /// This side does not keep to the protocol.
    Malformed,
}

/// The part of one side in a handshake.
#[derive(Debug)]
pub(crate) struct HandshakeSide {
    protocol: Protocol,
    role: Role,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Client,
    Lead,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The greeting, of which this many bytes were forwarded.
    Greeting(usize),
    /// The head of the command with this number.
    Command(usize),
    /// The rest of a command, and then this stage.
    Body { left: u64, next: AfterBody },
    /// Nothing more is forwarded.
    Finished(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterBody {
    Command(usize),
    Finished(Outcome),
}

/// What to do with a command.
enum Verdict {
    Forward(AfterBody),
    Withhold(Outcome),
}

impl HandshakeSide {
    /// The client's side.
    pub(crate) fn of_client(protocol: Protocol) -> HandshakeSide {
        HandshakeSide { protocol, role: Role::Client, stage: Stage::Greeting(0) }
    }

    /// The lead's side.
    pub(crate) fn of_lead(protocol: Protocol) -> HandshakeSide {
        HandshakeSide { protocol, role: Role::Lead, stage: Stage::Greeting(0) }
    }

    /// Whether its greeting has been forwarded.
    pub(crate) fn has_greeted(&self) -> bool {
        !matches!(self.stage, Stage::Greeting(_))
    }

    /// Examines the bytes of this side that have not been forwarded, and returns how many of them to
    /// forward. The caller forwards them, and calls again with the others and those that have arrived
    /// meanwhile.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Progress {
        let mut forward = 0;
        loop {
            let rest = &bytes[forward..];
            let before = self.stage;
            forward += match before {
                Stage::Greeting(forwarded) => self.advance_greeting(forwarded, rest),
                Stage::Command(number) => self.advance_command(number, rest),
                Stage::Body { left, next } => self.advance_body(left, next, rest),
                Stage::Finished(outcome) => return Progress { forward, outcome },
            };
            if self.stage == before {
                return Progress { forward, outcome: Outcome::Pending };
            }
        }
    }

    fn advance_greeting(&mut self, forwarded: usize, bytes: &[u8]) -> usize {
        match (self.protocol, self.role) {
            (Protocol::Zmtp, _) => {
                if !is_valid_greeting(forwarded, bytes) {
                    self.stage = Stage::Finished(Outcome::Malformed);
                    return 0;
                }
                let arrived = forwarded + bytes.len();
                let pieces = GREETING_PIECES.iter().rev();
                let piece = pieces.copied().find(|piece| *piece <= arrived).unwrap_or(forwarded);
                self.stage = match piece {
                    GREETING => Stage::Command(0),
                    _ => Stage::Greeting(piece),
                };
                piece - forwarded
            }
            (Protocol::Fluxlet, Role::Client) if bytes.len() >= FLUXLET_MESSAGE => {
                self.stage = Stage::Finished(Outcome::Done);
                FLUXLET_MESSAGE
            }
            (Protocol::Fluxlet, Role::Lead) => {
                use crate::greeting::Recognition::{Garbage, Incomplete, Recognized};
                match recognize(bytes) {
                    Incomplete => {}
                    // Withheld: the client may have it once there is a place.
                    Recognized(Protocol::Fluxlet) => self.stage = Stage::Finished(Outcome::Done),
                    Recognized(_) | Garbage => self.stage = Stage::Finished(Outcome::Malformed),
                }
                0
            }
            (Protocol::Fluxlet, Role::Client) => 0,
            (Protocol::Request, _) => {
                self.stage = Stage::Finished(Outcome::Malformed);
                0
            }
        }
    }

    fn advance_command(&mut self, number: usize, bytes: &[u8]) -> usize {
        let command = match Command::read(bytes) {
            Ok(Some(command)) => command,
            Ok(None) => return 0,
            Err(NotACommand) => {
                self.stage = Stage::Finished(Outcome::Malformed);
                return 0;
            }
        };
        match self.judge(number, command.name) {
            Verdict::Forward(next) => {
                self.stage = Stage::Body { left: command.length, next };
                // The head is forwarded with the body.
                0
            }
            Verdict::Withhold(outcome) => {
                self.stage = Stage::Finished(outcome);
                0
            }
        }
    }

    fn judge(&self, number: usize, name: &[u8]) -> Verdict {
        match (self.role, number, name) {
            (Role::Client, 0, b"HELLO") | (Role::Lead, 0, b"WELCOME") => {
                Verdict::Forward(AfterBody::Command(1))
            }
            (Role::Client, 1, b"INITIATE") => Verdict::Forward(AfterBody::Finished(Outcome::Done)),
            (Role::Lead, 1, b"READY") => Verdict::Withhold(Outcome::Done),
            // The client may know why: its log has the reason then.
            (Role::Lead, _, b"ERROR") => Verdict::Forward(AfterBody::Finished(Outcome::Refused)),
            _ => Verdict::Withhold(Outcome::Malformed),
        }
    }

    fn advance_body(&mut self, left: u64, next: AfterBody, bytes: &[u8]) -> usize {
        let forward = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        self.stage = match (left - forward as u64, next) {
            (0, AfterBody::Command(number)) => Stage::Command(number),
            (0, AfterBody::Finished(outcome)) => Stage::Finished(outcome),
            (left, next) => Stage::Body { left, next },
        };
        forward
    }
}

/// A command of ZMTP 3: flags, its size in one byte or eight, the length of its name, its name, data.
#[derive(Debug, PartialEq, Eq)]
struct Command<'a> {
    /// The length of the whole command.
    length: u64,
    name: &'a [u8],
}

/// The bytes are not those of a command.
#[derive(Debug, PartialEq, Eq)]
struct NotACommand;

impl Command<'_> {
    /// Reads the head of a command. None if more bytes are needed.
    fn read(bytes: &[u8]) -> Result<Option<Command<'_>>, NotACommand> {
        const SHORT: u8 = 0x04;
        const LONG: u8 = 0x06;
        let (size, head) = match bytes {
            [] | [SHORT] => return Ok(None),
            [SHORT, size, ..] => (u64::from(*size), 2),
            [LONG, rest @ ..] => match rest.first_chunk() {
                Some(size) => (u64::from_be_bytes(*size), 9),
                None => return Ok(None),
            },
            _ => return Err(NotACommand),
        };
        if size > MAX_COMMAND {
            return Err(NotACommand);
        }
        let Some((name_length, body)) = bytes[head..].split_first() else { return Ok(None) };
        let name_length = usize::from(*name_length);
        if name_length > LONGEST_NAME || name_length as u64 >= size {
            return Err(NotACommand);
        }
        let length = size + head as u64;
        Ok(body.get(..name_length).map(|name| Command { length, name }))
    }
}

#[cfg(test)]
mod tests;
