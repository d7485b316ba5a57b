//! Brokers of another cluster, without cryptography.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{soon, zmtp};

/// A broker of Flux, whose handshake the lead has accepted.
pub(crate) async fn connect(address: SocketAddr, key: u8) -> io::Result<TcpStream> {
    let mut stream = begin(address, key).await?;
    stream.write_all(&zmtp::initiate()).await?;
    let mut ready = vec![0; zmtp::ready().len()];
    soon(stream.read_exact(&mut ready)).await?;
    assert_eq!(ready, zmtp::ready());
    Ok(stream)
}

/// A broker of Flux that has received WELCOME.
pub(crate) async fn begin(address: SocketAddr, key: u8) -> io::Result<TcpStream> {
    let mut stream = reach(address).await;
    soon(zmtp::greet(&mut stream, b"CURVE")).await?;
    stream.write_all(&zmtp::hello(key)).await?;
    let mut welcome = vec![0; zmtp::welcome().len()];
    soon(stream.read_exact(&mut welcome)).await?;
    assert_eq!(welcome, zmtp::welcome());
    Ok(stream)
}

/// A broker of fluxlet, whose handshake the lead has accepted.
pub(crate) async fn connect_fluxlet(address: SocketAddr, key: u8) -> io::Result<TcpStream> {
    let mut stream = reach(address).await;
    let mut message = [key; 50];
    message[..2].copy_from_slice(&[0, 48]);
    stream.write_all(&message).await?;
    let mut answer = [0; 50];
    soon(stream.read_exact(&mut answer)).await?;
    assert_eq!(answer, message);
    Ok(stream)
}

/// A connection to a port that is opened soon.
pub(crate) async fn reach(address: SocketAddr) -> TcpStream {
    soon(async {
        loop {
            match TcpStream::connect(address).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

/// Sends bytes, and returns what comes back until the connection ends.
pub(crate) async fn send(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = reach(address).await;
    // The gateway may disconnect while we send.
    let _ = stream.write_all(bytes).await;
    wait_for_end(&mut stream).await
}

/// Waits until the connection has ended, and returns what came before.
pub(crate) async fn wait_for_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    // A connection that is cut may be reset.
    let _ = soon(stream.read_to_end(&mut received)).await;
    received
}

/// Sends bytes, and checks that the lead sends them back.
pub(crate) async fn exchange(stream: &mut TcpStream, bytes: &[u8]) {
    let (mut reader, mut writer) = stream.split();
    let mut received = vec![0; bytes.len()];
    let (sent, read) =
        tokio::join!(writer.write_all(bytes), soon(reader.read_exact(&mut received)));
    sent.unwrap();
    read.unwrap();
    assert!(received == bytes);
}
