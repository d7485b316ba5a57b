//! Encrypted and mutually authenticated connections between brokers.
//!
//! All brokers of an instance have the same certificate, and every holder of it is a member of the
//! instance. So a connection starts with a Noise handshake `NNpsk0` whose shared key is derived
//! from the certificate's secret key: each connection has new keys, and a peer without the
//! certificate can neither send nor receive. After that, data is sent in transport messages of up
//! to 64 KiB, each prefixed with its length in two bytes.

use std::io::{self, Read, Write};
use std::sync::Arc;

use flux_operator_flux::Certificate;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::{StatelessTransportState, params::HashChoice};

use crate::socket::DeadlineSocket;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// A handshake message: an ephemeral key of 32 bytes and a tag of 16.
const HANDSHAKE_LENGTH: usize = 48;

/// The maximum length of a transport message, by the Noise specification, and of its content.
const MAX_MESSAGE: usize = 65535;
const MAX_PLAINTEXT: usize = MAX_MESSAGE - 16;

/// The key that both sides share. Has no `Debug`, so that it cannot be printed.
#[derive(Clone)]
pub struct SharedKey([u8; 32]);

/// Why the handshake with a peer failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("the peer sent an invalid handshake")]
    InvalidMessage,
    #[error("the peer does not have the certificate of this instance")]
    Certificate { source: snow::Error },
    #[error("failed to communicate with the peer")]
    Connection { source: io::Error },
    #[error("failed to set up the encryption")]
    Setup { source: snow::Error },
}

/// The receiving half.
pub struct Reader {
    pub socket: DeadlineSocket,
    state: Arc<StatelessTransportState>,
    nonce: u64,
    plain: Vec<u8>,
    position: usize,
}

/// The sending half.
pub struct Writer {
    pub socket: DeadlineSocket,
    state: Arc<StatelessTransportState>,
    nonce: u64,
}

impl SharedKey {
    /// The key that all holders of `certificate` share.
    pub fn new(certificate: &Certificate) -> Self {
        let text = certificate.to_secret_text();
        let secret = text.lines().find(|line| line.trim_start().starts_with("secret-key"));
        let mut hash = DefaultResolver
            .resolve_hash(&HashChoice::Blake2s)
            .expect("the hash is compiled in, see Cargo.toml");
        hash.input(b"fluxlet broker link 1\0");
        hash.input(secret.unwrap_or_default().trim().as_bytes());
        let mut key = [0; 32];
        hash.result(&mut key);
        Self(key)
    }
}

/// Performs the handshake as the side that connects: both sides prove that they have the key.
pub fn connect(
    socket: DeadlineSocket,
    key: &SharedKey,
) -> Result<(Reader, Writer), HandshakeError> {
    handshake(socket, key, true)
}

/// Performs the handshake as the side that accepts.
pub fn accept(socket: DeadlineSocket, key: &SharedKey) -> Result<(Reader, Writer), HandshakeError> {
    handshake(socket, key, false)
}

fn handshake(
    mut socket: DeadlineSocket,
    key: &SharedKey,
    initiator: bool,
) -> Result<(Reader, Writer), HandshakeError> {
    let setup = |source| HandshakeError::Setup { source };
    let pattern = PATTERN.parse().map_err(setup)?;
    let builder = snow::Builder::new(pattern).psk(0, &key.0).map_err(setup)?;
    let mut state = if initiator { builder.build_initiator() } else { builder.build_responder() }
        .map_err(setup)?;
    let failed = |source| HandshakeError::Connection { source };
    while !state.is_handshake_finished() {
        if state.is_my_turn() {
            let mut message = [0; 2 + HANDSHAKE_LENGTH];
            message[1] = HANDSHAKE_LENGTH as u8;
            state.write_message(&[], &mut message[2..]).map_err(setup)?;
            socket.write_all(&message).map_err(failed)?;
        } else {
            let mut message = [0; 2 + HANDSHAKE_LENGTH];
            socket.read_exact(&mut message[..2]).map_err(failed)?;
            if message[..2] != [0, HANDSHAKE_LENGTH as u8] {
                return Err(HandshakeError::InvalidMessage);
            }
            socket.read_exact(&mut message[2..]).map_err(failed)?;
            state
                .read_message(&message[2..], &mut [])
                .map_err(|source| HandshakeError::Certificate { source })?;
        }
    }
    let state = Arc::new(state.into_stateless_transport_mode().map_err(setup)?);
    let other = DeadlineSocket::without_deadline(socket.socket.try_clone().map_err(failed)?);
    let reader = Reader { socket, state: state.clone(), nonce: 0, plain: Vec::new(), position: 0 };
    Ok((reader, Writer { socket: other, state, nonce: 0 }))
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position == self.plain.len() {
            let mut header = [0; 2];
            // End of file between messages is normal; within a message it is an error.
            if self.socket.read(&mut header[..1])? == 0 {
                return Ok(0);
            }
            self.socket.read_exact(&mut header[1..])?;
            let mut message = vec![0; usize::from(u16::from_be_bytes(header))];
            self.socket.read_exact(&mut message)?;
            self.plain.resize(message.len(), 0);
            let length = self
                .state
                .read_message(self.nonce, &message, &mut self.plain)
                .map_err(io::Error::other)?;
            self.nonce += 1;
            self.plain.truncate(length);
            self.position = 0;
        }
        let length = buffer.len().min(self.plain.len() - self.position);
        buffer[..length].copy_from_slice(&self.plain[self.position..][..length]);
        self.position += length;
        Ok(length)
    }
}

impl Writer {
    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        for plain in bytes.chunks(MAX_PLAINTEXT) {
            let mut message = vec![0; 2 + plain.len() + 16];
            let length = self
                .state
                .write_message(self.nonce, plain, &mut message[2..])
                .map_err(io::Error::other)?;
            self.nonce += 1;
            let header = u16::try_from(length).map_err(io::Error::other)?;
            message[..2].copy_from_slice(&header.to_be_bytes());
            self.socket.write_all(&message[..2 + length])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Duration;

    use flux_operator_flux::{Metadata, SecretKey};

    use super::*;
    use crate::socket::Socket;

    const LIMIT: Duration = Duration::from_secs(20);

    fn key(byte: u8) -> SharedKey {
        let metadata = Metadata::new("test").unwrap();
        SharedKey::new(&Certificate::new(SecretKey::from_bytes([byte; 32]), metadata))
    }

    fn pair() -> (DeadlineSocket, DeadlineSocket) {
        let (one, two) = UnixStream::pair().unwrap();
        (
            DeadlineSocket::new(Socket::Unix(one), LIMIT),
            DeadlineSocket::new(Socket::Unix(two), LIMIT),
        )
    }

    #[test]
    fn bytes_arrive_in_order_and_whole() {
        let (one, two) = pair();
        let sent: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
        let expected = sent.clone();
        let sender = thread::spawn(move || {
            let (_reader, mut writer) = connect(one, &key(1)).unwrap();
            writer.send(&sent).unwrap();
        });
        let (mut reader, _writer) = accept(two, &key(1)).unwrap();
        let mut received = vec![0; expected.len()];
        reader.read_exact(&mut received).unwrap();
        sender.join().unwrap();
        assert!(received == expected);
    }

    #[test]
    fn another_certificate_is_rejected_by_both_sides() {
        let (one, two) = pair();
        let other = thread::spawn(move || connect(one, &key(1)).map(drop));
        assert!(matches!(accept(two, &key(2)), Err(HandshakeError::Certificate { .. })));
        assert!(matches!(other.join().unwrap(), Err(HandshakeError::Connection { .. })));
    }

    #[test]
    fn garbage_is_rejected() {
        let (mut one, two) = pair();
        one.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(matches!(accept(two, &key(1)), Err(HandshakeError::InvalidMessage)));
    }

    #[test]
    fn a_forged_message_is_an_error() {
        let (one, mut two) = pair();
        let shared = key(1);
        let sender = thread::spawn(move || connect(one, &key(1)).map(drop));
        let (mut reader, _writer) = {
            let clone = DeadlineSocket::new(two.socket.try_clone().unwrap(), LIMIT);
            accept(clone, &shared).unwrap()
        };
        sender.join().unwrap().unwrap();
        assert_eq!(two.read(&mut [0]).unwrap(), 0);
        let (mut forger, socket) = pair();
        reader.socket = socket;
        forger.write_all(&[0, 17]).unwrap();
        forger.write_all(&[7; 17]).unwrap();
        assert!(reader.read(&mut [0]).is_err());
    }
}
