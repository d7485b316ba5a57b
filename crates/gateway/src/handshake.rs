//! How a handshake between a broker and the lead proceeds, from the bytes of each side.
//!
//! The gateway relays a handshake and reads the names of its commands, until the lead accepts the
//! broker:
//!
//! ```text
//!            ZMTP with CURVE (ZeroMQ RFC 26)       fluxlet
//! client ──► greeting, HELLO                       message
//! lead   ──► greeting, WELCOME                     message, or it disconnects
//! client ──► INITIATE
//! lead   ──► READY, or ERROR, or it disconnects
//! ```
//!
//! The client's first line is its [`opening`](crate::opening), and complete when the lead is
//! connected. The lead's greeting is not forwarded: the gateway has greeted the client itself.
//!
//! WELCOME shows that the client knows the certificate's public key, or has recorded the HELLO of
//! one that does. READY or fluxlet's message proves that it has the whole certificate. That last
//! message is withheld until the client has a place. What the client sends after INITIATE is withheld
//! too, because a client with the certificate could send its first message without waiting for READY.
//! So a lead never receives the hello of a broker for which there is no rank; Flux would let it replace
//! the broker that has the rank.

use crate::opening::{
    FLUXLET_LENGTH, FLUXLET_MESSAGE, GREETING_LENGTH, Protocol, is_valid_greeting, starts_like,
};

/// The maximum size of a command. The longest, INITIATE, has 257 bytes and some properties of a
/// socket.
const MAX_COMMAND: u64 = 8 * 1024;

/// The longest name of a command in a handshake.
const LONGEST_NAME: usize = "INITIATE".len();

/// What follows from the bytes of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relayed {
    /// The number of bytes, from the start, that are not for the other side.
    pub(crate) skip: usize,
    /// The number of bytes, after those, to forward to the other side.
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
pub(crate) struct HandshakeSide(Stage);

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The lead's greeting.
    Greeting,
    /// The message of a lead of fluxlet.
    Message,
    /// This command.
    Command(Awaited),
    /// The rest of a command, and then this stage.
    Body { left: u64, next: AfterBody },
    /// Nothing more is forwarded.
    Finished(Outcome),
}

/// A command, or ERROR in place of the lead's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Welcome,
    Initiate,
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterBody {
    Command(Awaited),
    Finished(Outcome),
}

/// What to do with a command.
enum Verdict {
    Forward(AfterBody),
    Withhold(Outcome),
}

impl HandshakeSide {
    /// The side of a client whose opening has been forwarded.
    pub(crate) fn of_client(protocol: Protocol) -> HandshakeSide {
        HandshakeSide(match protocol {
            Protocol::Zmtp => Stage::Command(Awaited::Initiate),
            Protocol::Fluxlet => Stage::Finished(Outcome::Done),
            Protocol::Request => Stage::Finished(Outcome::Malformed),
        })
    }

    /// The lead's side.
    pub(crate) fn of_lead(protocol: Protocol) -> HandshakeSide {
        HandshakeSide(match protocol {
            Protocol::Zmtp => Stage::Greeting,
            Protocol::Fluxlet => Stage::Message,
            Protocol::Request => Stage::Finished(Outcome::Malformed),
        })
    }

    /// Whether the lead has greeted.
    pub(crate) fn has_greeted(&self) -> bool {
        self.0 != Stage::Greeting
    }

    /// Whether WELCOME of the lead has been forwarded.
    pub(crate) fn has_welcomed(&self) -> bool {
        self.0 == Stage::Command(Awaited::Ready)
    }

    /// Examines the bytes of this side that have not been forwarded, and returns how many of them to
    /// forward. The caller forwards them, and calls again with the others and those that have arrived
    /// meanwhile.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Relayed {
        let (mut skip, mut forward) = (0, 0);
        loop {
            let rest = &bytes[skip + forward..];
            let before = self.0;
            match before {
                Stage::Greeting => skip = self.advance_greeting(rest),
                Stage::Message => self.advance_message(rest),
                Stage::Command(awaited) => self.advance_command(awaited, rest),
                Stage::Body { left, next } => forward += self.advance_body(left, next, rest),
                Stage::Finished(outcome) => return Relayed { skip, forward, outcome },
            }
            if self.0 == before {
                return Relayed { skip, forward, outcome: Outcome::Pending };
            }
        }
    }

    fn advance_greeting(&mut self, bytes: &[u8]) -> usize {
        if !is_valid_greeting(bytes) {
            self.0 = Stage::Finished(Outcome::Malformed);
            return 0;
        }
        if bytes.len() < GREETING_LENGTH {
            return 0;
        }
        self.0 = Stage::Command(Awaited::Welcome);
        GREETING_LENGTH
    }

    fn advance_message(&mut self, bytes: &[u8]) {
        if !starts_like(bytes, FLUXLET_LENGTH) {
            self.0 = Stage::Finished(Outcome::Malformed);
        } else if bytes.len() >= FLUXLET_MESSAGE {
            // Withheld: the client may have it once there is a place.
            self.0 = Stage::Finished(Outcome::Done);
        }
    }

    fn advance_command(&mut self, awaited: Awaited, bytes: &[u8]) {
        self.0 = match Command::read(bytes) {
            Ok(None) => return,
            Err(NotACommand) => Stage::Finished(Outcome::Malformed),
            Ok(Some(command)) => match judge(awaited, command.name) {
                // The head is forwarded with the body.
                Verdict::Forward(next) => Stage::Body { left: command.length, next },
                Verdict::Withhold(outcome) => Stage::Finished(outcome),
            },
        };
    }

    fn advance_body(&mut self, left: u64, next: AfterBody, bytes: &[u8]) -> usize {
        let forward = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        self.0 = match (left - forward as u64, next) {
            (0, AfterBody::Command(awaited)) => Stage::Command(awaited),
            (0, AfterBody::Finished(outcome)) => Stage::Finished(outcome),
            (left, next) => Stage::Body { left, next },
        };
        forward
    }
}

fn judge(awaited: Awaited, name: &[u8]) -> Verdict {
    match (awaited, name) {
        (Awaited::Welcome, b"WELCOME") => Verdict::Forward(AfterBody::Command(Awaited::Ready)),
        (Awaited::Initiate, b"INITIATE") => Verdict::Forward(AfterBody::Finished(Outcome::Done)),
        (Awaited::Ready, b"READY") => Verdict::Withhold(Outcome::Done),
        // The client may know why: its log has the reason then.
        (Awaited::Welcome | Awaited::Ready, b"ERROR") => {
            Verdict::Forward(AfterBody::Finished(Outcome::Refused))
        }
        _ => Verdict::Withhold(Outcome::Malformed),
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
