//! A worker's broker: joins, runs tasks, and forwards its clients' requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::SIGHUP;

use super::clients::{ClientEvent, Clients};
use super::executor::Executor;
use super::links::{self, JoinError, Link};
use super::log::{Level, error_chain};
use super::loop_event::LoopEvent;
use super::{Broker, BrokerError, host, resources};
use crate::frame;
use crate::message::{Hello, Message, PROTOCOL, Refusal, RefusalKind, Reply, Request};

/// The first and the maximum delay between two attempts to reach the lead.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_secs(1);

/// How long tasks have to exit when the broker is stopped.
const EXIT_GRACE: Duration = Duration::from_millis(1000);

struct WorkerState {
    broker: Broker,
    clients: Clients,
    lead: SyncSender<Vec<u8>>,
    executor: Executor,
}

/// Runs the broker until the lead shuts it down or is lost.
pub fn run(mut broker: Broker) -> Result<u8, BrokerError> {
    let mut early_events = Vec::new();
    let Some(link) = join(&broker, &mut early_events)? else { return Ok(0) };
    if let Some(address) = link.address {
        broker.attributes.set("fluxlet.address", address.to_string());
    }
    broker.attributes.set("size", link.welcome.size.to_string());
    broker.attributes.set("hostlist", link.welcome.hostlist);
    let messages = link.messages.clone();
    let report = move |report| {
        if let Ok(frame) = frame::encode(&Message::Report(report)) {
            let _lead_is_lost = messages.send(frame);
        }
    };
    let executor = Executor::new(
        Arc::new(report),
        host::system_name(),
        vec![("FLUX_URI".to_owned(), broker.host.uri.clone())],
        PathBuf::from(&broker.host.rundir),
    );
    let mut worker =
        WorkerState { broker, clients: Clients::default(), lead: link.messages, executor };
    for event in early_events {
        worker.handle_client(event);
    }
    worker.run()
}

/// Retries until the lead is reached. Events of clients are kept in `early_events` meanwhile; a
/// signal stops the broker.
fn join(broker: &Broker, early_events: &mut Vec<ClientEvent>) -> Result<Option<Link>, BrokerError> {
    let lead = broker.boot.lead.as_deref().unwrap_or_default();
    let key = broker
        .boot
        .key
        .as_ref()
        .ok_or_else(|| BrokerError::Refused { reason: "there is no certificate".to_owned() })?;
    let timeout = broker.attributes.get("tbon.connect_timeout").and_then(crate::duration::parse);
    let timeout = timeout.filter(|seconds| *seconds > 0.0).unwrap_or(30.0);
    let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(MAX_DELAY);
    let rank = broker.boot.rank;
    let slot = &broker.boot.hosts[rank as usize];
    let configured = broker.config.bootstrap.as_ref().is_some_and(|table| !table.hosts.is_empty());
    let unfit = configured
        .then(|| resources::host_mismatch(broker.config.resource.as_ref(), slot, rank))
        .flatten();
    let cores = host::core_count();
    let hello = Hello { protocol: PROTOCOL, rank, hostname: slot.clone(), cores, unfit };
    let mut delay = FIRST_DELAY;
    let mut last = String::new();
    loop {
        match links::join(lead, key, hello.clone(), timeout, broker.sender.clone()) {
            Ok(link) => return Ok(Some(link)),
            Err(JoinError::Refused { reason }) => return Err(BrokerError::Refused { reason }),
            Err(error) => {
                let text = error_chain(&error);
                // Logged once: the lead may take long to start.
                if text != last {
                    broker.log.add(Level::Warning, &format!("{text}; retrying"));
                }
                last = text;
            }
        }
        let until = Instant::now() + delay;
        delay = (delay * 2).min(MAX_DELAY);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match broker.events.recv_timeout(left) {
                Ok(LoopEvent::Client(event)) => early_events.push(event),
                Ok(LoopEvent::Signal(SIGHUP)) => {}
                Ok(LoopEvent::Signal(_)) => return Ok(None),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }
}

impl WorkerState {
    fn run(&mut self) -> Result<u8, BrokerError> {
        while let Ok(event) = self.broker.events.recv() {
            match event {
                LoopEvent::Client(event) => self.handle_client(event),
                LoopEvent::Message { message, .. } => match *message {
                    Message::Task(order) => self.executor.execute(order),
                    Message::Reply { channel, tag, reply } => {
                        self.clients.reply(channel, tag, reply);
                    }
                    Message::Shutdown => {
                        self.executor.kill_all();
                        return Ok(0);
                    }
                    _ => {}
                },
                LoopEvent::Disconnected { reason, .. } => {
                    self.executor.kill_all();
                    return Err(BrokerError::LostLead { reason });
                }
                LoopEvent::Signal(SIGHUP) => {}
                LoopEvent::Signal(_) => return Ok(self.leave()),
                _ => {}
            }
        }
        Ok(0)
    }

    /// Stops the tasks and announces to the lead that this broker leaves.
    fn leave(&mut self) -> u8 {
        self.executor.signal_all(Signal::TERM);
        let until = Instant::now() + EXIT_GRACE;
        while self.executor.is_busy() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.executor.kill_all();
        self.send(&Message::Shutdown);
        // The lead closes the connection when it has read everything.
        while let Ok(event) = self.broker.events.recv_timeout(EXIT_GRACE / 2) {
            if matches!(event, LoopEvent::Disconnected { .. }) {
                break;
            }
        }
        0
    }

    fn handle_client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Opened { channel, replies } => self.clients.insert(channel, replies),
            ClientEvent::Closed { channel } => {
                self.clients.remove(channel);
                self.send(&Message::Gone { channel });
            }
            ClientEvent::Request { channel, tag, request } => match request {
                Request::Attributes => {
                    let reply = Reply::Attributes(self.broker.attributes.all().clone());
                    self.clients.reply(channel, tag, reply);
                    self.clients.reply(channel, tag, Reply::Done);
                }
                Request::SetAttribute { name, value } => {
                    let reply = match self.broker.attributes.update(&name, &value) {
                        Ok(()) => Reply::Done,
                        Err(error) => Reply::Error(Refusal {
                            kind: RefusalKind::Invalid,
                            text: error.to_string(),
                        }),
                    };
                    self.clients.reply(channel, tag, reply);
                }
                request => self.send(&Message::Request { channel, tag, request }),
            },
        }
    }

    fn send(&self, message: &Message) {
        if let Ok(frame) = frame::encode(message) {
            let _lead_is_gone = self.lead.send(frame);
        }
    }
}
