//! Inner stage: starts the broker, and restarts a worker's broker until the
//! instance has shut down.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use flux_operator_wire::{EndingReason, TERMINATED};
use rustix::process::{Pid, Signal};

use crate::arguments::{self, Stage};
use crate::broker_process::{BrokerEnd, BrokerProcess};
use crate::delay::Delay;
use crate::ending::{chain, say};
use crate::flux_command::FluxCommand;
use crate::launch::Launch;
use crate::layout::{Layout, local_uri};
use crate::lead::{self, IfSilent, Lead};
use crate::notice::{self, Notice};
use crate::rank::{Rank, RankError};
use crate::search::{self, NotFound};
use crate::{archive, config, endpoint, environment, files, processes, program, report};
use crate::{lead_watch, own_program, signals, user_files};

/// A broker that ran for this long had started successfully.
const LONG: Duration = Duration::from_secs(30);

/// How long a worker waits before it restarts its broker.
const RESTART: Delay = Delay::new(Duration::from_millis(200), Duration::from_secs(5));

/// How long a broker has to exit after SIGTERM.
const GRACE: Duration = Duration::from_millis(1500);

enum Event {
    /// The stage must stop; the broker has received the same signal.
    Stop,
    /// The agent has died, so the stage must stop the broker itself.
    Orphaned,
    /// The lead was found at this address.
    Lead(IpAddr),
    /// The lead has moved to this address.
    LeadMoved(IpAddr),
    /// The broker exited.
    Ended(BrokerEnd),
}

/// The result of waiting for the broker.
enum Waited {
    Ended(BrokerEnd),
    Stopped,
    LeadMoved(IpAddr),
}

/// Why the stage cannot start.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error("failed to determine the rank")]
    Rank { source: RankError },
    #[error("failed to find flux")]
    FluxMissing { source: NotFound },
    #[error("failed to find the agent's program")]
    Program { source: io::Error },
    #[error("failed to handle signals")]
    Signals { source: io::Error },
}

impl PrepareError {
    fn reason(&self) -> EndingReason {
        match self {
            PrepareError::Rank { .. } => EndingReason::BadPlan,
            PrepareError::FluxMissing { .. } => EndingReason::FluxMissing,
            PrepareError::Program { .. } | PrepareError::Signals { .. } => {
                EndingReason::BrokerFailed
            }
        }
    }
}

/// Runs the broker until it has exited and is not restarted.
pub fn run(stage: &Stage) -> ExitCode {
    let notices = Layout::new(&stage.place.root).notices();
    match BrokerStage::new(stage) {
        Ok(mut broker) => ExitCode::from(broker.run()),
        Err(error) => {
            let message = chain(&error);
            notice::send(&notices, &Notice::Failed { reason: error.reason(), message });
            ExitCode::FAILURE
        }
    }
}

struct BrokerStage<'a> {
    stage: &'a Stage,
    rank: Rank,
    layout: Layout,
    launch: Launch,
    events: Receiver<Event>,
    sender: Sender<Event>,
}

impl<'a> BrokerStage<'a> {
    fn new(stage: &'a Stage) -> Result<BrokerStage<'a>, PrepareError> {
        let rank = Rank::read(&stage.place).map_err(|source| PrepareError::Rank { source })?;
        let layout = Layout::new(&stage.place.root);
        // Only now, because a hook may have installed it.
        let name = stage.place.flux.as_deref().unwrap_or("flux");
        let flux = search::program(name, std::env::var_os("PATH").as_deref())
            .map_err(|source| PrepareError::FluxMissing { source })?;
        let program = match rank.leads() {
            true => program_words(stage).map_err(|source| PrepareError::Program { source })?,
            false => Vec::new(),
        };
        let launch = Launch::new(flux, program);
        let (sender, events) = mpsc::channel();
        // A signal is sent to the whole process group, so the broker receives it too.
        let signalled = sender.clone();
        signals::on_stop(move || signalled.send(Event::Stop).is_ok())
            .map_err(|source| PrepareError::Signals { source })?;
        watch_agent(stage.agent, &sender);
        Ok(BrokerStage { stage, rank, layout, launch, events, sender })
    }

    fn run(&mut self) -> u8 {
        // Shells that users open should have the variables that hooks have set.
        if let Err(error) =
            user_files::write(&self.rank.plan, &self.layout, &environment::of_process)
        {
            say(&chain(&error));
        }
        if self.rank.leads() { self.run_lead() } else { self.run_worker() }
    }

    fn run_lead(&mut self) -> u8 {
        let start = Instant::now();
        if let Some(archive) = &self.rank.plan.broker.archive {
            archive::prepare(archive);
        }
        let Some(broker) = self.start() else { return 1 };
        if self.rank.plan.report.is_some() {
            report::start(
                &self.stage.place,
                &self.rank,
                &self.layout,
                self.command(),
                broker.tail(),
            );
        }
        let Waited::Ended(end) = self.wait(&broker) else { return TERMINATED };
        if self.rank.plan.logging.timed {
            program::say_time("fluxstart", start.elapsed());
        }
        self.tell_end(&broker, end);
        end.code
    }

    fn run_worker(&mut self) -> u8 {
        let mut delay = RESTART;
        let mut known = None;
        loop {
            let Ok(lead) = self.find_lead(known.take()) else { return TERMINATED };
            let start = Instant::now();
            let Some(broker) = self.start() else { return 1 };
            let running = Arc::new(AtomicBool::new(true));
            self.watch_join(&running);
            self.watch_lead(&running, lead);
            let waited = self.wait(&broker);
            running.store(false, Ordering::Relaxed);
            let pause = match waited {
                Waited::Stopped => return TERMINATED,
                Waited::Ended(end) if end.code == 0 || self.rank.plan.complete_workers => {
                    self.tell_end(&broker, end);
                    return end.code;
                }
                Waited::Ended(end) => {
                    self.tell(&Notice::BrokerLost { code: end.code });
                    if start.elapsed() > LONG {
                        delay.reset();
                    }
                    let pause = delay.grow();
                    let (code, seconds) = (end.code, pause.as_secs_f32());
                    self.say(&format!(
                        "the broker exited with {code}, restarting in {seconds:.1} s"
                    ));
                    pause
                }
                Waited::LeadMoved(address) => {
                    self.say(&format!("the lead has moved to {address}"));
                    self.tell(&Notice::BrokerLost { code: 0 });
                    known = Some(address);
                    Duration::ZERO
                }
            };
            if self.stopped_within(pause) {
                return TERMINATED;
            }
        }
    }

    /// Finds the lead's address, writes it into the configuration and returns it. `None` if the
    /// plan's endpoint needs no address. Fails if the stage must stop.
    fn find_lead(&self, known: Option<IpAddr>) -> Result<Option<SocketAddr>, ()> {
        let sender = self.sender.clone();
        let found = move |address| {
            // Without a receiver the stage is already stopping.
            let _ = sender.send(Event::Lead(address));
        };
        let address = match (known, endpoint::host(&self.rank.plan.lead)) {
            (Some(address), _) => address,
            (None, endpoint::Host::Name(name)) => {
                let search =
                    lead::find(&name, &self.stage.place, &self.rank, IfSilent::UseLater, found);
                self.wait_for_lead(search)?
            }
            (None, _) => return Ok(None),
        };
        let lead = endpoint::with_host(&self.rank.plan.lead, address);
        if let Some(lead) = lead {
            self.configure_lead(lead);
        }
        Ok(lead)
    }

    fn wait_for_lead(&self, search: Lead) -> Result<IpAddr, ()> {
        let address = loop {
            match self.next_event() {
                Event::Lead(address) => break address,
                Event::Stop | Event::Orphaned => return Err(()),
                Event::LeadMoved(_) | Event::Ended(_) => {}
            }
        };
        search.end();
        Ok(address)
    }

    fn configure_lead(&self, lead: SocketAddr) {
        if self.rank.plan.verbatim_config.is_some() {
            return;
        }
        let path = self.layout.broker_config();
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        if let Some(new) = config::with_lead(&old, lead)
            && let Err(error) = files::write(&path, new, 0o644)
        {
            say(&chain(&error));
        }
    }

    /// Starts the broker. `None` if that failed, which has been reported to the agent.
    fn start(&self) -> Option<BrokerProcess> {
        let sender = self.sender.clone();
        let ended = move |end| {
            let _ = sender.send(Event::Ended(end));
        };
        match self.launch.start(&self.rank, &self.layout, ended) {
            Ok(broker) => {
                let process = broker.process.as_raw_nonzero().get();
                self.tell(&Notice::BrokerStarted { process });
                Some(broker)
            }
            Err(error) => {
                self.tell(&Notice::Failed { reason: error.reason(), message: chain(&error) });
                None
            }
        }
    }

    /// Waits until the broker has exited, by itself or because the stage must stop.
    fn wait(&self, broker: &BrokerProcess) -> Waited {
        let mut stopping = false;
        loop {
            match self.next_event() {
                // A second answer to the search.
                Event::Lead(_) => {}
                Event::Stop => stopping = true,
                Event::Ended(end) => {
                    self.keep_archive(end);
                    return if stopping { Waited::Stopped } else { Waited::Ended(end) };
                }
                Event::Orphaned => {
                    self.end(broker);
                    return Waited::Stopped;
                }
                Event::LeadMoved(_) if stopping => {}
                Event::LeadMoved(address) => {
                    self.end(broker);
                    return Waited::LeadMoved(address);
                }
            }
        }
    }

    /// Saves the archive of the lead's broker, if it was not killed.
    fn keep_archive(&self, end: BrokerEnd) {
        if let Some(archive) = &self.rank.plan.broker.archive
            && self.rank.leads()
            && !end.killed
        {
            archive::keep(archive);
        }
    }

    /// Stops the broker and all its descendants.
    fn end(&self, broker: &BrokerProcess) {
        processes::signal(&[broker.process], Signal::TERM);
        if self.ended_within(GRACE) {
            return;
        }
        processes::signal(&processes::descendants(rustix::process::getpid()), Signal::KILL);
        self.ended_within(GRACE);
    }

    fn ended_within(&self, limit: Duration) -> bool {
        self.within(limit, |event| matches!(event, Event::Ended(_)))
    }

    fn stopped_within(&self, limit: Duration) -> bool {
        self.within(limit, |event| matches!(event, Event::Stop | Event::Orphaned))
    }

    fn within(&self, limit: Duration, wanted: impl Fn(&Event) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(event) if wanted(&event) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    fn next_event(&self) -> Event {
        self.events.recv().expect("we hold a sender ourselves")
    }

    /// Notifies the agent when the broker has joined the instance.
    fn watch_join(&self, running: &Arc<AtomicBool>) {
        let command = self.command();
        let notices = self.layout.notices();
        let running = Arc::clone(running);
        thread::spawn(move || {
            let mut delay = Delay::new(Duration::from_millis(100), Duration::from_secs(1));
            while running.load(Ordering::Relaxed) {
                // This asks rank 0, so it fails at once while the broker has not joined.
                if command.tell(&["overlay", "status", "--summary"]) {
                    notice::send(&notices, &Notice::Online);
                    return;
                }
                thread::sleep(delay.grow());
            }
        });
    }

    /// Detects that the lead has moved from the address the broker was configured with.
    fn watch_lead(&self, running: &Arc<AtomicBool>, lead: Option<SocketAddr>) {
        let endpoint::Host::Name(name) = endpoint::host(&self.rank.plan.lead) else { return };
        let Some(lead) = lead else { return };
        let (place, rank) = (self.stage.place.clone(), self.rank.clone());
        let (running, sender) = (Arc::clone(running), self.sender.clone());
        thread::spawn(move || {
            let find = |found| lead::find(&name, &place, &rank, IfSilent::Ignore, found);
            if let Some(address) = lead_watch::watch(lead, &running, find) {
                let _ = sender.send(Event::LeadMoved(address));
            }
        });
    }

    fn command(&self) -> FluxCommand {
        let socket = match self.rank.plan.broker.socket {
            true => self.layout.socket(),
            false => self.layout.default_socket(self.rank.number),
        };
        FluxCommand { flux: self.launch.flux.clone(), uri: local_uri(&socket) }
    }

    fn tell_end(&self, broker: &BrokerProcess, end: BrokerEnd) {
        let BrokerEnd { code, killed } = end;
        self.tell(&Notice::BrokerEnded { code, killed, tail: broker.last_words() });
    }

    fn tell(&self, notice: &Notice) {
        notice::send(&self.layout.notices(), notice);
    }

    fn say(&self, message: &str) {
        if !self.rank.plan.logging.quiet {
            say(message);
        }
    }
}

/// The command line of the initial program: the agent's program stage.
fn program_words(stage: &Stage) -> io::Result<Vec<String>> {
    let program = own_program::path()?.to_string_lossy().into_owned();
    let own = [program, "program".to_owned(), arguments::AGENT.to_owned(), stage.agent.to_string()];
    Ok(own.into_iter().chain(stage.place.to_words()).collect())
}

/// Detects that the agent was killed. In a pod everything is killed with the first process, but
/// not on a machine without containers.
fn watch_agent(agent: i32, sender: &Sender<Event>) {
    let opened = Pid::from_raw(agent).and_then(|agent| processes::open(agent).ok());
    // An old kernel has no pidfd; then this is not detected.
    let Some(agent) = opened else { return };
    let sender = sender.clone();
    thread::spawn(move || {
        processes::wait_for_end(&agent);
        let _ = sender.send(Event::Orphaned);
    });
}
