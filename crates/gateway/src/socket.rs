//! Options of sockets, and reads and writes that can be cancelled.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A peer that has not answered for this long is dead. Flux sends nothing on an idle connection
/// for longer, so the kernel has to probe.
const DEAD_AFTER: Duration = Duration::from_secs(20);

/// Of 20 s: idle for 5 s, then three probes, each 5 s after the one before.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// The size of one read during a handshake, whose messages have some hundred bytes.
const READ_SIZE: usize = 1024;

/// The number of bytes that a socket takes for a peer that does not read. Without this limit the kernel
/// takes up to 4 MiB (`tcp_wmem`). What is on its way to the peer is not counted, so a long way is as
/// fast as before.
const MAX_UNSENT: u32 = 16 * 1024;

/// Sets the options of a connection, so that small messages are sent at once and a dead peer is
/// noticed: by keepalive if nothing is being sent, and by the timeout otherwise; and so that a slow peer
/// costs little memory.
pub(crate) fn set_options(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_notsent_lowat(MAX_UNSENT)?;
    socket.set_tcp_user_timeout(Some(DEAD_AFTER))
}

/// Appends what has arrived to `buffer`. Returns 0 at the end of the stream. Loses no bytes if it is
/// cancelled.
pub(crate) async fn read_some(stream: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        // On the stack, and not in the future: it lives only until the next `await`.
        let mut chunk = [0; READ_SIZE];
        match stream.try_read(&mut chunk) {
            Ok(length) => {
                buffer.extend_from_slice(&chunk[..length]);
                return Ok(length);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends all of `bytes`.
pub(crate) async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Signals the end of the stream to the peer, which may still send.
pub(crate) fn finish_writing(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).shutdown(Shutdown::Write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_peer_that_does_not_read_costs_little_memory() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_far, _) = listener.accept().await.unwrap();
        set_options(&near).unwrap();
        let mut sent = 0;
        // The peer's window closes, and then the socket takes no more.
        while let Ok(length) = near.try_write(&[0; 16 * 1024]) {
            sent += length;
        }
        assert!(sent < 1_000_000, "{sent}");
    }

    #[tokio::test]
    async fn the_kernel_is_told_to_probe_and_to_give_up_after_20_s() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        set_options(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(DEAD_AFTER));
        let probing = socket.tcp_keepalive_time().unwrap()
            + socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert_eq!(probing, DEAD_AFTER);
    }
}
