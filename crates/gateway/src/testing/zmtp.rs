//! The bytes of a handshake of ZMTP, without cryptography.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A greeting with this mechanism.
pub(crate) fn greeting(mechanism: &[u8]) -> Vec<u8> {
    let mut greeting = vec![0; 64];
    greeting[0] = 0xFF;
    greeting[8] = 1;
    greeting[9] = 0x7F;
    greeting[10] = 3;
    greeting[11] = 1;
    greeting[12..12 + mechanism.len()].copy_from_slice(mechanism);
    greeting
}

/// A command with this name and so many bytes of data.
pub(crate) fn command(name: &[u8], data: usize) -> Vec<u8> {
    let size = u8::try_from(1 + name.len() + data).unwrap();
    [&[0x04, size, name.len() as u8], name, &vec![0xAB; data]].concat()
}

/// A command whose size is in eight bytes.
pub(crate) fn long_command(name: &[u8], data: usize) -> Vec<u8> {
    let size = (1 + name.len() + data) as u64;
    [&[0x06], &size.to_be_bytes()[..], &[name.len() as u8], name, &vec![0xAB; data]].concat()
}

/// The bytes of a handshake whose key is this byte.
pub(crate) fn hello(key: u8) -> Vec<u8> {
    let mut hello = command(b"HELLO", 194);
    hello[50] = key;
    hello
}

/// The key in a handshake.
pub(crate) fn key_in(hello: &[u8]) -> u8 {
    hello[50]
}

/// What a lead sends after HELLO.
pub(crate) fn welcome() -> Vec<u8> {
    command(b"WELCOME", 160)
}

/// What a broker sends after WELCOME.
pub(crate) fn initiate() -> Vec<u8> {
    long_command(b"INITIATE", 300)
}

/// What a lead sends to a broker that it accepts.
pub(crate) fn ready() -> Vec<u8> {
    command(b"READY", 60)
}

/// Exchanges greetings as libzmq does: each piece only after the peer's piece before.
pub(crate) async fn greet(stream: &mut TcpStream, mechanism: &[u8]) -> io::Result<()> {
    let own = greeting(mechanism);
    let mut peers = [0; 64];
    for piece in [0..10, 10..11, 11..64] {
        stream.write_all(&own[piece.clone()]).await?;
        stream.read_exact(&mut peers[piece]).await?;
    }
    assert_eq!(peers[..], greeting(b"CURVE"));
    Ok(())
}
