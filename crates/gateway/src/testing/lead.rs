//! A lead that speaks the handshakes of Flux and fluxlet, without cryptography, and then sends back
//! what it receives.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::zmtp;

/// What the lead does with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// Accepts it if it has the lead's key. Otherwise disconnects, as libzmq does.
    Normal,
    /// Sends ERROR in place of READY.
    Error,
    /// Accepts it, and does not disconnect when the client does.
    Lingers,
    /// Sends nothing.
    Silent,
    /// Disconnects at once.
    Disconnects,
}

/// What happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeadEvent {
    /// It was accepted.
    Accepted,
    /// It sent this after the handshake.
    Received(Vec<u8>),
    /// A connection that was accepted has ended.
    Ended,
}

/// The key of the lead.
pub(crate) const KEY: u8 = 7;

pub(crate) struct Lead {
    pub(crate) address: SocketAddr,
    pub(crate) events: mpsc::UnboundedReceiver<LeadEvent>,
    /// The number of bytes received from all connections.
    pub(crate) bytes: Arc<AtomicUsize>,
    /// The number of connections, also those that were not accepted.
    pub(crate) connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Lead {
    pub(crate) async fn start(conduct: Conduct) -> Lead {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let (bytes, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        let (counted, all) = (Arc::clone(&bytes), Arc::clone(&connections));
        tasks.spawn(async move {
            let mut clients = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                all.fetch_add(1, Ordering::SeqCst);
                let client = Client { stream, bytes: Arc::clone(&counted), events: sender.clone() };
                clients.spawn(async move { drop(client.serve(conduct).await) });
                while clients.try_join_next().is_some() {}
            }
        });
        Lead { address, events, bytes, connections, _tasks: tasks }
    }

    /// The next event.
    pub(crate) async fn event(&mut self) -> LeadEvent {
        super::soon(self.events.recv()).await.unwrap()
    }
}

struct Client {
    stream: TcpStream,
    bytes: Arc<AtomicUsize>,
    events: mpsc::UnboundedSender<LeadEvent>,
}

impl Client {
    async fn serve(mut self, conduct: Conduct) -> io::Result<()> {
        match conduct {
            Conduct::Disconnects => return Ok(()),
            Conduct::Silent => {
                let mut ignored = [0; 1024];
                while self.read(&mut ignored).await? > 0 {}
                return Ok(());
            }
            Conduct::Normal | Conduct::Lingers | Conduct::Error => {}
        }
        let mut first = [0];
        self.stream.peek(&mut first).await?;
        let is_accepted = match first[0] {
            0x00 => self.shake_as_fluxlet().await?,
            _ => self.shake_as_flux(conduct).await?,
        };
        if !is_accepted {
            return Ok(());
        }
        self.report(LeadEvent::Accepted);
        let mut received = vec![0; 65_536];
        loop {
            match self.read(&mut received).await {
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    self.report(LeadEvent::Received(received[..length].to_vec()));
                    self.stream.write_all(&received[..length]).await?;
                }
            }
        }
        self.report(LeadEvent::Ended);
        if conduct == Conduct::Lingers {
            return std::future::pending().await;
        }
        Ok(())
    }

    async fn shake_as_flux(&mut self, conduct: Conduct) -> io::Result<bool> {
        // All arrives at once. Like libzmq, it sends the rest of its greeting after it has read that.
        let greeting = zmtp::greeting(b"CURVE");
        self.stream.write_all(&greeting[..10]).await?;
        let opening = self.receive(greeting.len() + zmtp::hello(0).len()).await?;
        if zmtp::key_in(&opening[greeting.len()..]) != KEY {
            return Ok(false);
        }
        self.stream.write_all(&greeting[10..]).await?;
        self.stream.write_all(&zmtp::welcome()).await?;
        self.receive(zmtp::initiate().len()).await?;
        if conduct == Conduct::Error {
            self.stream.write_all(&zmtp::command(b"ERROR", 4)).await?;
            return Ok(false);
        }
        self.stream.write_all(&zmtp::ready()).await?;
        Ok(true)
    }

    async fn shake_as_fluxlet(&mut self) -> io::Result<bool> {
        let message = self.receive(50).await?;
        if message[2] != KEY {
            return Ok(false);
        }
        self.stream.write_all(&message).await?;
        Ok(true)
    }

    async fn receive(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).await?;
        self.bytes.fetch_add(length, Ordering::SeqCst);
        Ok(bytes)
    }

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer).await?;
        self.bytes.fetch_add(length, Ordering::SeqCst);
        Ok(length)
    }

    fn report(&self, event: LeadEvent) {
        // The receiver is dropped when the test is over.
        let _ = self.events.send(event);
    }
}
