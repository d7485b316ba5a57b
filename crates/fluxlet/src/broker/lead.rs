//! The lead's broker: rank 0, which runs the instance.
//!
//! It waits for enough brokers, runs the initial program, and shuts the instance down when the
//! program exits or when it is stopped. A shutdown takes less than two seconds, because that is all
//! a pod gets.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::SIGHUP;

use super::clients::{ClientEvent, Clients};
use super::executor::Executor;
use super::links::MessageSender;
use super::log::Level;
use super::loop_event::LoopEvent;
use super::program::{self, RunningProgram};
use super::{Broker, BrokerError, host, join_listener, resources};
use crate::frame;
use crate::instance::{Action, Input, Instance, InstanceSettings, Origin};
use crate::message::{Hello, Message, PROTOCOL, Refusal, RefusalKind, Reply, Request, TaskRequest};
use crate::time::now;

/// How long jobs and the program have to exit.
const EXIT_GRACE: Duration = Duration::from_millis(1000);
/// How long the workers then have to disconnect.
const DISCONNECT_TIMEOUT: Duration = Duration::from_millis(500);

struct LeadState {
    broker: Broker,
    instance: Instance,
    clients: Clients,
    links: BTreeMap<u32, (u64, MessageSender)>,
    /// Connections of brokers that announced that they leave.
    leaving: Vec<u64>,
    executor: Executor,
    quorum: usize,
    program: Option<RunningProgram>,
    started: bool,
    stop: Option<ShutdownProgress>,
    code: u8,
    /// Clients that requested the shutdown and get a reply when it is complete.
    shutdown_clients: Vec<(Origin, u64)>,
    configuration: serde_json::Value,
}

/// The progress of a shutdown.
struct ShutdownProgress {
    kill_at: Instant,
    killed: bool,
}

/// Runs the instance until it has shut down, and returns the exit code.
pub fn run(mut broker: Broker) -> Result<u8, BrokerError> {
    let (nodes, configured) =
        resources::nodes(&broker.boot, broker.config.resource.as_ref(), now())
            .map_err(|source| BrokerError::Resources { source })?;
    let size = broker.boot.hosts.len();
    let quorum = broker.attributes.get("broker.quorum").and_then(|text| text.parse().ok());
    let quorum: usize = quorum.unwrap_or(size).clamp(1, size);
    broker.attributes.set("broker.quorum", quorum.to_string());
    let configuration = serde_json::to_value(&broker.config).unwrap_or_default();
    join_listener::listen(&mut broker, &configuration)?;
    let settings = InstanceSettings {
        owner: rustix::process::geteuid().as_raw(),
        level: broker.boot.nested.as_ref().map_or(0, |nested| nested.level),
        path: broker.attributes.get("jobid-path").unwrap_or("/").to_owned(),
        configured,
    };
    let sender = broker.sender.clone();
    let report = move |report| drop(sender.send(LoopEvent::Report(report)));
    let environment = vec![("FLUX_URI".to_owned(), broker.host.uri.clone())];
    let executor = Executor::new(
        Arc::new(report),
        host::system_name(),
        environment,
        broker.host.rundir.clone(),
    );
    let mut lead = LeadState {
        instance: Instance::new(settings, nodes, now()),
        clients: Clients::default(),
        links: BTreeMap::new(),
        leaving: Vec::new(),
        executor,
        quorum,
        program: None,
        started: false,
        stop: None,
        code: 0,
        shutdown_clients: Vec::new(),
        configuration,
        broker,
    };
    lead.run()
}

impl LeadState {
    fn run(&mut self) -> Result<u8, BrokerError> {
        let hostname = self.broker.boot.hosts[0].clone();
        let cores = host::core_count();
        let hello = Hello { protocol: PROTOCOL, rank: 0, hostname, cores, unfit: None };
        self.input(Input::NodeUp(hello));
        loop {
            self.advance();
            if self.stop.is_some() && self.is_shut_down() {
                return Ok(self.disconnect_workers());
            }
            match self.broker.events.recv_timeout(self.next_timeout()) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => self.input(Input::Tick),
                Err(RecvTimeoutError::Disconnected) => return Ok(self.code),
            }
        }
    }

    /// How long to wait for events before something has to be done.
    fn next_timeout(&self) -> Duration {
        let deadline = self.instance.next_deadline();
        let jobs = deadline.and_then(|time| Duration::try_from_secs_f64(time - now()).ok());
        let jobs = if deadline.is_some() { jobs.or(Some(Duration::ZERO)) } else { None };
        let stop = self.stop.as_ref().map(|stop| {
            if stop.killed {
                DISCONNECT_TIMEOUT
            } else {
                stop.kill_at.saturating_duration_since(Instant::now())
            }
        });
        jobs.into_iter().chain(stop).min().unwrap_or(Duration::from_secs(3600))
    }

    /// Starts the program when enough brokers are online, and continues a shutdown.
    fn advance(&mut self) {
        if let Some(stop) = &mut self.stop {
            if !stop.killed && Instant::now() >= stop.kill_at {
                stop.killed = true;
                if let Some(program) = &self.program {
                    program.signal(Signal::KILL);
                }
                self.executor.kill_all();
            }
            return;
        }
        if self.started || self.instance.online_count() < self.quorum {
            return;
        }
        self.started = true;
        self.broker.log.add(Level::Info, "quorum reached");
        if self.broker.attributes.get("broker.rc2_none").is_some() {
            return;
        }
        let environment = [
            ("FLUX_URI".to_owned(), OsString::from(&self.broker.host.uri)),
            ("PATH".to_owned(), self.broker.host.path()),
        ];
        let words = &self.broker.options.program;
        match program::start(words, &environment, self.broker.sender.clone()) {
            Ok(program) => self.program = Some(program),
            Err((text, code)) => {
                self.code = code;
                let level = if code == 1 { Level::Critical } else { Level::Error };
                self.broker.log.add(level, &text);
                self.begin_shutdown(Signal::HUP);
            }
        }
    }

    fn handle(&mut self, event: LoopEvent) {
        match event {
            LoopEvent::Client(event) => self.handle_client(event),
            LoopEvent::Joined { hello, connection, messages } => {
                self.join(hello, connection, messages);
            }
            LoopEvent::Message { rank, connection, message } => {
                if self.links.get(&rank).is_some_and(|(current, _)| *current == connection) {
                    self.message(rank, connection, *message);
                }
            }
            LoopEvent::Disconnected { rank, connection, reason } => {
                self.remove_worker(rank, connection, &reason)
            }
            LoopEvent::Report(report) => self.input(Input::Report { rank: 0, report }),
            LoopEvent::Signal(SIGHUP) => {}
            LoopEvent::Signal(signal) => {
                self.broker.log.add(Level::Info, &format!("shutting down on signal {signal}"));
                // Flux sends its program SIGHUP, whatever signal it received itself.
                self.begin_shutdown(Signal::HUP);
            }
            LoopEvent::ProgramExited(status) => self.program_exited(status),
        }
    }

    fn join(&mut self, hello: Hello, connection: u64, messages: MessageSender) {
        let rank = hello.rank;
        if self.stop.is_some() {
            return;
        }
        if self.links.contains_key(&rank) {
            let host = &hello.hostname;
            let text = format!(
                "{host} (rank {rank}) reconnected after crash, dropping old connection state"
            );
            self.broker.log.add(Level::Error, &text);
            self.links.remove(&rank);
            self.input(Input::NodeDown { rank, orderly: false });
        }
        self.links.insert(rank, (connection, messages));
        let text = format!("{} (rank {rank}) joined", hello.hostname);
        self.broker.log.add(Level::Info, &text);
        self.input(Input::NodeUp(hello));
    }

    fn remove_worker(&mut self, rank: u32, connection: u64, reason: &str) {
        if self.links.get(&rank).is_none_or(|(current, _)| *current != connection) {
            return;
        }
        self.links.remove(&rank);
        let orderly = self.stop.is_some() || self.leaving.contains(&connection);
        let host = &self.broker.boot.hosts[rank as usize];
        let level = if orderly { Level::Info } else { Level::Error };
        self.broker.log.add(level, &format!("{host} (rank {rank}) left: {reason}"));
        self.leaving.retain(|leaving| *leaving != connection);
        self.input(Input::NodeDown { rank, orderly });
    }

    fn message(&mut self, rank: u32, connection: u64, message: Message) {
        match message {
            Message::Report(report) => self.input(Input::Report { rank, report }),
            Message::Request { channel, tag, request } => {
                self.request(Origin { rank, channel }, tag, request);
            }
            Message::Gone { channel } => {
                self.input(Input::ClientDisconnected(Origin { rank, channel }))
            }
            Message::Shutdown => {
                self.leaving.push(connection);
                self.remove_worker(rank, connection, "it was stopped");
            }
            // Only the lead sends these.
            Message::Hello(_)
            | Message::Welcome(_)
            | Message::Refused { .. }
            | Message::Task(_)
            | Message::Reply { .. } => {}
        }
    }

    fn handle_client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Opened { channel, replies } => self.clients.insert(channel, replies),
            ClientEvent::Closed { channel } => {
                self.clients.remove(channel);
                self.input(Input::ClientDisconnected(Origin { rank: 0, channel }));
            }
            ClientEvent::Request { channel, tag, request } => {
                self.request(Origin { rank: 0, channel }, tag, request);
            }
        }
    }

    fn request(&mut self, origin: Origin, tag: u64, request: Request) {
        let replies = match request {
            Request::Attributes => {
                vec![Reply::Attributes(self.broker.attributes.all().clone()), Reply::Done]
            }
            Request::SetAttribute { name, value } => {
                vec![match self.broker.attributes.update(&name, &value) {
                    Ok(()) => Reply::Done,
                    Err(error) => {
                        let text = error.to_string();
                        Reply::Error(Refusal { kind: RefusalKind::Invalid, text })
                    }
                }]
            }
            Request::Configuration => {
                vec![Reply::Value(self.configuration.clone()), Reply::Done]
            }
            Request::Log => {
                let lines = self.broker.log.lines().into_iter().map(Reply::Text);
                lines.chain([Reply::Done]).collect()
            }
            Request::Shutdown => {
                self.shutdown_clients.push((origin, tag));
                return self.begin_shutdown(Signal::HUP);
            }
            request => return self.input(Input::Request { origin, tag, request }),
        };
        for reply in replies {
            self.reply(origin, tag, reply);
        }
    }

    fn program_exited(&mut self, status: std::io::Result<std::process::ExitStatus>) {
        let Some(program) = self.program.take() else { return };
        match status {
            Ok(status) => {
                let (line, code) = program.describe_exit(status);
                self.code = code;
                if let Some(line) = line {
                    self.broker.log.add(Level::Error, &line);
                }
            }
            Err(error) => {
                self.code = 1;
                self.broker.log.error(&error);
            }
        }
        self.begin_shutdown(Signal::TERM);
    }

    /// Starts the shutdown: no new jobs are accepted, and running jobs are canceled.
    fn begin_shutdown(&mut self, signal: Signal) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some(ShutdownProgress { kill_at: Instant::now() + EXIT_GRACE, killed: false });
        if let Some(program) = &self.program {
            program.signal(signal);
        }
        let actions = self.instance.cancel_all(now());
        self.perform(actions);
    }

    fn is_shut_down(&self) -> bool {
        let killed = self.stop.as_ref().is_some_and(|stop| stop.killed);
        let has_waited =
            self.stop.as_ref().is_some_and(|stop| stop.kill_at.elapsed() > DISCONNECT_TIMEOUT);
        self.program.is_none() && (!self.instance.is_running() || killed && has_waited)
    }

    /// Shuts the workers down and waits briefly until they have disconnected.
    fn disconnect_workers(&mut self) -> u8 {
        self.executor.kill_all();
        for (_, messages) in self.links.values() {
            if let Ok(frame) = frame::encode(&Message::Shutdown) {
                let _already_disconnected = messages.send(frame);
            }
        }
        let until = Instant::now() + DISCONNECT_TIMEOUT;
        while !self.links.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            match self.broker.events.recv_timeout(left) {
                Ok(LoopEvent::Disconnected { rank, connection, reason }) => {
                    self.remove_worker(rank, connection, &reason);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        for (origin, tag) in std::mem::take(&mut self.shutdown_clients) {
            self.reply(origin, tag, Reply::Done);
        }
        self.code
    }

    fn input(&mut self, input: Input) {
        let actions = self.instance.handle(now(), input);
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply { origin, tag, reply } => self.reply(origin, tag, reply),
                Action::Order { rank, order } => self.order(rank, order),
                Action::Log(text) => self.broker.log.add(Level::Error, &text),
            }
        }
    }

    fn reply(&self, origin: Origin, tag: u64, reply: Reply) {
        if origin.rank == 0 {
            return self.clients.reply(origin.channel, tag, reply);
        }
        self.send(origin.rank, &Message::Reply { channel: origin.channel, tag, reply });
    }

    fn order(&self, rank: u32, order: TaskRequest) {
        if rank == 0 {
            return self.executor.execute(order);
        }
        self.send(rank, &Message::Task(order));
    }

    fn send(&self, rank: u32, message: &Message) {
        if let (Some((_, messages)), Ok(frame)) = (self.links.get(&rank), frame::encode(message)) {
            let _gone_already = messages.send(frame);
        }
    }
}
