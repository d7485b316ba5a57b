//! Copies bytes between two connections.

use std::io;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;

use crate::socket::{finish_writing, write_all};

/// The size of one read. The buffer exists only while there is data, so an idle connection costs
/// almost nothing.
const BUFFER: usize = 16 * 1024;

/// One of the two connections, and the count of bytes that were sent to it.
pub(crate) struct Side<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) received: &'a Counter,
}

/// Copies bytes in both directions until both have ended, or one has failed. When the first has
/// ended, calls `on_end`; the other one has `linger` to end too.
pub(crate) async fn relay(
    one: Side<'_>,
    other: Side<'_>,
    linger: Duration,
    on_end: impl FnOnce(),
) -> io::Result<()> {
    let mut forth = std::pin::pin!(copy(one.stream, &other));
    let mut back = std::pin::pin!(copy(other.stream, &one));
    let there = tokio::select! {
        result = &mut forth => result.map(|()| true),
        result = &mut back => result.map(|()| false),
    };
    on_end();
    let rest = async { if there? { back.await } else { forth.await } };
    match tokio::time::timeout(linger, rest).await {
        Ok(result) => result,
        Err(_elapsed) => Ok(()),
    }
}

/// Copies bytes until the end of the stream, and signals that end.
pub(crate) async fn copy(from: &TcpStream, to: &Side<'_>) -> io::Result<()> {
    loop {
        from.readable().await?;
        let mut buffer = Vec::with_capacity(BUFFER);
        loop {
            // Both sockets can be ready all the time, and other connections have to be served too.
            consume_budget().await;
            buffer.clear();
            match from.try_read_buf(&mut buffer) {
                Ok(0) => return finish_writing(to.stream),
                Ok(length) => {
                    write_all(to.stream, &buffer).await?;
                    to.received.inc_by(length as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const LONG: Duration = Duration::from_secs(60);

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    fn start(
        linger: Duration,
        near: TcpStream,
        far: TcpStream,
    ) -> (tokio::task::JoinHandle<io::Result<()>>, tokio::sync::oneshot::Receiver<()>, [Counter; 2])
    {
        let counts = [Counter::default(), Counter::default()];
        let [of_near, of_far] = counts.clone();
        let (ended, first_end) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let one = Side { stream: &near, received: &of_near };
            let other = Side { stream: &far, received: &of_far };
            relay(one, other, linger, || ended.send(()).unwrap_or_default()).await
        });
        (task, first_end, counts)
    }

    #[tokio::test]
    async fn a_peer_that_has_finished_sending_still_receives() {
        let ((mut client, near), (far, mut server)) = (pair().await, pair().await);
        let (task, first_end, counts) = start(LONG, near, far);
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut question = Vec::new();
        server.read_to_end(&mut question).await.unwrap();
        first_end.await.unwrap();
        let answer = vec![7; 1_000_000];
        let ((), received) = tokio::join!(
            async {
                server.write_all(&answer).await.unwrap();
                server.shutdown().await.unwrap();
            },
            async {
                let mut received = Vec::new();
                client.read_to_end(&mut received).await.unwrap();
                received
            }
        );
        assert!(question == b"question" && received == answer);
        task.await.unwrap().unwrap();
        assert_eq!(counts.map(|count| count.get()), [1_000_000, 8]);
    }

    #[tokio::test]
    async fn the_other_direction_ends_after_a_while() {
        let ((client, near), (far, mut server)) = (pair().await, pair().await);
        let (task, _, _) = start(Duration::from_millis(10), near, far);
        drop(client);
        task.await.unwrap().unwrap();
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_reset_connection_ends_both() {
        let ((client, near), (far, mut server)) = (pair().await, pair().await);
        let (task, _, _) = start(LONG, near, far);
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        assert!(task.await.unwrap().is_err());
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    }
}
