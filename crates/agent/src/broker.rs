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

use flux_operator_wire::{EXIT_REPLACE_POD, EXIT_SIGTERM, TerminationReason};
use rustix::process::{Pid, Signal};

use crate::arguments::{self, StageArguments};
use crate::backoff::Backoff;
use crate::broker_process::{BrokerExit, BrokerProcess};
use crate::flux_command::FluxCommand;
use crate::join::{NextStep, PermissionRequest};
use crate::launcher::BrokerLauncher;
use crate::layout::{Layout, local_uri};
use crate::lead_search::{self, LeadSearch, SilentAddress};
use crate::notice::{self, Notice};
use crate::rank_plan::{RankPlan, RankPlanError};
use crate::remote_lead::RemoteLeadSearch;
use crate::search_path::{self, ProgramNotFound};
use crate::termination::{error_chain, log};
use crate::{
    archive, config, connection_watch, endpoint, environment, files, processes, program, report,
};
use crate::{lead_watch, own_program, signals, user_files};

/// A broker that ran for this long had started successfully.
const STARTED_AFTER: Duration = Duration::from_secs(30);

/// How long a worker waits before it restarts its broker.
const RESTART_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// How long to wait if the two operators contradict each other about a broker's permission.
const CONTRADICTION_DELAY: Duration = Duration::from_secs(5);

/// How long a broker has to exit after SIGTERM.
const EXIT_GRACE: Duration = Duration::from_millis(1500);

enum Event {
    /// The stage must stop; the broker has received the same signal.
    Stop,
    /// The agent has died, so the stage must stop the broker itself.
    Orphaned,
    /// The lead was found at this address.
    LeadFound(IpAddr),
    /// The lead has moved to this address.
    LeadMoved(IpAddr),
    /// The broker has no connection to its lead in another Kubernetes cluster any more.
    ConnectionLost,
    /// The broker exited.
    BrokerExited(BrokerExit),
}

/// The result of waiting for the broker.
enum BrokerOutcome {
    Exited(BrokerExit),
    Stopped,
    LeadMoved(IpAddr),
    ConnectionLost,
}

/// Why the stage cannot start.
#[derive(Debug, thiserror::Error)]
enum BrokerStageError {
    #[error("failed to determine the rank")]
    Rank { source: RankPlanError },
    #[error("failed to find flux")]
    FluxMissing { source: ProgramNotFound },
    #[error("failed to find the agent's program")]
    Program { source: io::Error },
    #[error("failed to handle signals")]
    Signals { source: io::Error },
}

impl BrokerStageError {
    fn reason(&self) -> TerminationReason {
        match self {
            BrokerStageError::Rank { source } => source.reason(),
            BrokerStageError::FluxMissing { .. } => TerminationReason::FluxMissing,
            BrokerStageError::Program { .. } | BrokerStageError::Signals { .. } => {
                TerminationReason::BrokerFailed
            }
        }
    }
}

/// Runs the broker until it has exited and is not restarted.
pub fn run(stage: &StageArguments) -> ExitCode {
    let notices = Layout::new(&stage.common.root).notices();
    match BrokerStage::new(stage) {
        Ok(mut broker) => ExitCode::from(broker.run()),
        Err(error) => {
            let message = error_chain(&error);
            notice::send(&notices, &Notice::Failed { reason: error.reason(), message });
            ExitCode::FAILURE
        }
    }
}

struct BrokerStage<'a> {
    stage: &'a StageArguments,
    rank: RankPlan,
    layout: Layout,
    launcher: BrokerLauncher,
    events: Receiver<Event>,
    sender: Sender<Event>,
}

impl<'a> BrokerStage<'a> {
    fn new(stage: &'a StageArguments) -> Result<BrokerStage<'a>, BrokerStageError> {
        let rank =
            RankPlan::read(&stage.common).map_err(|source| BrokerStageError::Rank { source })?;
        let layout = Layout::new(&stage.common.root);
        // Only now, because a hook may have installed it.
        let name = stage.common.flux.as_deref().unwrap_or("flux");
        let flux = search_path::find_program(name, std::env::var_os("PATH").as_deref())
            .map_err(|source| BrokerStageError::FluxMissing { source })?;
        let program = match rank.is_lead() {
            true => {
                program_command(stage).map_err(|source| BrokerStageError::Program { source })?
            }
            false => Vec::new(),
        };
        let launch = BrokerLauncher::new(flux, program);
        let (sender, events) = mpsc::channel();
        // A signal is sent to the whole process group, so the broker receives it too.
        let signalled = sender.clone();
        signals::on_stop(move || signalled.send(Event::Stop).is_ok())
            .map_err(|source| BrokerStageError::Signals { source })?;
        watch_agent(stage.agent, &sender);
        Ok(BrokerStage { stage, rank, layout, launcher: launch, events, sender })
    }

    fn run(&mut self) -> u8 {
        // Shells that users open should have the variables that hooks have set.
        if let Err(error) =
            user_files::write(&self.rank.plan, &self.layout, &environment::process_variable)
        {
            log(&error_chain(&error));
        }
        if self.rank.is_lead() { self.run_lead() } else { self.run_worker() }
    }

    fn run_lead(&mut self) -> u8 {
        let start = Instant::now();
        if let Some(archive) = &self.rank.plan.broker.archive {
            archive::prepare(archive);
        }
        let Some(broker) = self.start_broker() else { return 1 };
        if self.rank.plan.report.is_some() {
            report::start(
                &self.stage.common,
                &self.rank,
                &self.layout,
                self.flux_command(),
                self.launcher.facts(),
                broker.tail(),
            );
        }
        let BrokerOutcome::Exited(exit) = self.wait_for_broker(&broker) else {
            return EXIT_SIGTERM;
        };
        if self.rank.plan.logging.timed {
            program::print_wall_time("fluxstart", start.elapsed());
        }
        self.notify_exited(&broker, exit);
        exit.code
    }

    fn run_worker(&mut self) -> u8 {
        let mut delay = RESTART_BACKOFF;
        let mut known = None;
        let mut last_error = String::new();
        loop {
            let Ok(lead) = self.find_lead(known.take()) else { return EXIT_SIGTERM };
            let remote = match self.wait_for_permission(std::mem::take(&mut last_error)) {
                Ok(remote) => remote,
                Err(code) => return code,
            };
            let start = Instant::now();
            let Some(broker) = self.start_broker() else { return 1 };
            let running = Arc::new(AtomicBool::new(true));
            self.watch_join(&running);
            self.watch_lead(&running, lead);
            self.watch_connection(&running, remote);
            let waited = self.wait_for_broker(&broker);
            running.store(false, Ordering::Relaxed);
            let pause = match waited {
                BrokerOutcome::Stopped => return EXIT_SIGTERM,
                BrokerOutcome::Exited(end) if self.is_final(end) => {
                    self.notify_exited(&broker, end);
                    return end.code;
                }
                BrokerOutcome::Exited(end) => {
                    // One that was killed leaves no error behind.
                    let killed = (end.code != 0).then(|| format!("code {}", end.code));
                    let logged = report::find_last_error(&broker.last_output());
                    last_error = logged.or(killed).unwrap_or_default();
                    self.notify(&Notice::BrokerRestarting { code: end.code });
                    if start.elapsed() > STARTED_AFTER {
                        delay.reset();
                    }
                    let pause = delay.next_delay();
                    let (code, seconds) = (end.code, pause.as_secs_f32());
                    self.log(&format!(
                        "the broker exited with {code}, restarting in {seconds:.1} s"
                    ));
                    pause
                }
                BrokerOutcome::LeadMoved(address) => {
                    self.log(&format!("the lead has moved to {address}"));
                    self.notify(&Notice::BrokerRestarting { code: 0 });
                    known = Some(address);
                    Duration::ZERO
                }
                BrokerOutcome::ConnectionLost => {
                    self.log("the broker has lost its connection to the lead");
                    last_error = "it has lost its connection to the lead".to_owned();
                    self.notify(&Notice::BrokerRestarting { code: 0 });
                    Duration::ZERO
                }
            };
            if self.is_stopped_within(pause) {
                return EXIT_SIGTERM;
            }
        }
    }

    /// Whether a worker's broker is not started again. One that has joined another cluster is: its
    /// lender may be restarted, and otherwise its pod is deleted. On one machine, where clusters
    /// have no UID, a lender that is started again is another instance.
    fn is_final(&self, end: BrokerExit) -> bool {
        let plan = &self.rank.plan;
        let may_return =
            plan.join.as_ref().is_some_and(|it| !it.cluster.is_empty() || it.remote.is_some());
        !may_return && (end.code == 0 || plan.complete_workers)
    }

    /// Waits until the operator allows the broker to join another cluster. Returns the lead's address
    /// if it is in another Kubernetes cluster. Fails with an exit code if the stage must stop instead.
    fn wait_for_permission(&self, last_error: String) -> Result<Option<SocketAddr>, u8> {
        let facts = self.launcher.facts();
        let common = &self.stage.common;
        let permission = PermissionRequest::new(common, &self.rank, facts, last_error);
        let Some(mut permission) = permission else { return Ok(None) };
        let mut remote = RemoteLeadSearch::new(common, &self.rank);
        let mut reason = None;
        loop {
            let found = remote.as_mut().map(|remote| remote.find(permission.request())).transpose();
            permission.set_lender_answer(match &found {
                Ok(lead) => lead.map(|_| Ok(())),
                Err(refusal) => Some(Err(refusal.clone())),
            });
            match permission.ask() {
                NextStep::Start => {
                    if let Ok(lead) = found {
                        lead.into_iter().for_each(|lead| self.configure_lead(lead));
                        return Ok(lead);
                    }
                    // The operator here must not give permission if the lender elsewhere does not.
                    if self.is_stopped_within(CONTRADICTION_DELAY) {
                        return Err(EXIT_SIGTERM);
                    }
                }
                NextStep::Replace(message) => {
                    self.notify(&Notice::Failed { reason: TerminationReason::StaleTable, message });
                    return Err(EXIT_REPLACE_POD);
                }
                NextStep::Fail(message) => {
                    self.notify(&Notice::Failed {
                        reason: TerminationReason::BrokerFailed,
                        message,
                    });
                    return Err(1);
                }
                NextStep::AskAgain(pause, why) => {
                    if let Some(why) = why.filter(|why| reason.as_ref() != Some(why)) {
                        self.log(&format!("the broker may not join yet: {why}"));
                        reason = Some(why);
                    }
                    if self.is_stopped_within(pause) {
                        return Err(EXIT_SIGTERM);
                    }
                }
            }
        }
    }

    /// Finds the lead's address, writes it into the configuration and returns it. `None` if the
    /// plan's endpoint needs no address. Fails if the stage must stop.
    fn find_lead(&self, known: Option<IpAddr>) -> Result<Option<SocketAddr>, ()> {
        let sender = self.sender.clone();
        let found = move |address| {
            // Without a receiver the stage is already stopping.
            let _ = sender.send(Event::LeadFound(address));
        };
        if self.rank.plan.join.as_ref().is_some_and(|join| join.remote.is_some()) {
            // It is found when it is asked for permission.
            return Ok(None);
        }
        let address = match (known, endpoint::host(&self.rank.plan.lead)) {
            (Some(address), _) => address,
            (None, endpoint::EndpointHost::Name(name)) => {
                let search = lead_search::start(
                    &name,
                    &self.stage.common,
                    &self.rank,
                    SilentAddress::UseAfterTimeout,
                    found,
                );
                self.wait_for_lead(search)?
            }
            (None, _) => return Ok(None),
        };
        let lead = endpoint::socket_address(&self.rank.plan.lead, address);
        if let Some(lead) = lead {
            self.configure_lead(lead);
        }
        Ok(lead)
    }

    fn wait_for_lead(&self, search: LeadSearch) -> Result<IpAddr, ()> {
        let address = loop {
            match self.next_event() {
                Event::LeadFound(address) => break address,
                Event::Stop | Event::Orphaned => return Err(()),
                Event::LeadMoved(_) | Event::ConnectionLost | Event::BrokerExited(_) => {}
            }
        };
        search.cancel();
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
            log(&error_chain(&error));
        }
    }

    /// Starts the broker. `None` if that failed, which has been reported to the agent.
    fn start_broker(&self) -> Option<BrokerProcess> {
        let sender = self.sender.clone();
        let on_exit = move |end| {
            let _ = sender.send(Event::BrokerExited(end));
        };
        match self.launcher.start(&self.rank, &self.layout, on_exit) {
            Ok(broker) => {
                let process = broker.process.as_raw_nonzero().get();
                self.notify(&Notice::BrokerStarted { process });
                Some(broker)
            }
            Err(error) => {
                self.notify(&Notice::Failed {
                    reason: error.reason(),
                    message: error_chain(&error),
                });
                None
            }
        }
    }

    /// Waits until the broker has exited, by itself or because the stage must stop.
    fn wait_for_broker(&self, broker: &BrokerProcess) -> BrokerOutcome {
        let mut stopping = false;
        loop {
            match self.next_event() {
                // A second answer to the search.
                Event::LeadFound(_) => {}
                Event::Stop => stopping = true,
                Event::BrokerExited(end) => {
                    self.keep_archive(end);
                    return if stopping {
                        BrokerOutcome::Stopped
                    } else {
                        BrokerOutcome::Exited(end)
                    };
                }
                Event::Orphaned => {
                    self.stop_broker(broker);
                    return BrokerOutcome::Stopped;
                }
                Event::LeadMoved(_) | Event::ConnectionLost if stopping => {}
                Event::ConnectionLost => {
                    self.stop_broker(broker);
                    return BrokerOutcome::ConnectionLost;
                }
                Event::LeadMoved(address) => {
                    self.stop_broker(broker);
                    return BrokerOutcome::LeadMoved(address);
                }
            }
        }
    }

    /// Saves the archive of the lead's broker, if it was not killed.
    fn keep_archive(&self, end: BrokerExit) {
        if let Some(archive) = &self.rank.plan.broker.archive
            && self.rank.is_lead()
            && !end.killed
        {
            archive::commit(archive);
        }
    }

    /// Stops the broker and all its descendants.
    fn stop_broker(&self, broker: &BrokerProcess) {
        processes::signal(&[broker.process], Signal::TERM);
        if self.exits_within(EXIT_GRACE) {
            return;
        }
        processes::signal(&processes::descendants(rustix::process::getpid()), Signal::KILL);
        self.exits_within(EXIT_GRACE);
    }

    fn exits_within(&self, limit: Duration) -> bool {
        self.wait_for_event(limit, |event| matches!(event, Event::BrokerExited(_)))
    }

    fn is_stopped_within(&self, limit: Duration) -> bool {
        self.wait_for_event(limit, |event| matches!(event, Event::Stop | Event::Orphaned))
    }

    fn wait_for_event(&self, limit: Duration, wanted: impl Fn(&Event) -> bool) -> bool {
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
        let command = self.flux_command();
        let notices = self.layout.notices();
        let running = Arc::clone(running);
        thread::spawn(move || {
            let mut delay = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
            while running.load(Ordering::Relaxed) {
                // This asks rank 0, so it fails at once while the broker has not joined.
                if command.run(&["overlay", "status", "--summary"]) {
                    notice::send(&notices, &Notice::Online);
                    return;
                }
                thread::sleep(delay.next_delay());
            }
        });
    }

    /// Detects that the lead has moved from the address the broker was configured with.
    fn watch_lead(&self, running: &Arc<AtomicBool>, lead: Option<SocketAddr>) {
        let endpoint::EndpointHost::Name(name) = endpoint::host(&self.rank.plan.lead) else {
            return;
        };
        let Some(lead) = lead else { return };
        let (common, rank) = (self.stage.common.clone(), self.rank.clone());
        let (running, sender) = (Arc::clone(running), self.sender.clone());
        thread::spawn(move || {
            let find =
                |found| lead_search::start(&name, &common, &rank, SilentAddress::Ignore, found);
            if let Some(address) = lead_watch::watch(lead, &running, find) {
                let _ = sender.send(Event::LeadMoved(address));
            }
        });
    }

    /// Detects that the connection to a lead in another Kubernetes cluster is lost.
    fn watch_connection(&self, running: &Arc<AtomicBool>, lead: Option<SocketAddr>) {
        let Some(lead) = lead else { return };
        let (running, sender) = (Arc::clone(running), self.sender.clone());
        thread::spawn(move || {
            if connection_watch::wait_until_lost(lead, &running) {
                let _ = sender.send(Event::ConnectionLost);
            }
        });
    }

    fn flux_command(&self) -> FluxCommand {
        let socket = match self.rank.plan.broker.socket {
            true => self.layout.socket(),
            false => self.layout.default_socket(self.rank.number),
        };
        FluxCommand { flux: self.launcher.flux.clone(), uri: local_uri(&socket) }
    }

    fn notify_exited(&self, broker: &BrokerProcess, end: BrokerExit) {
        let BrokerExit { code, killed } = end;
        self.notify(&Notice::BrokerExited { code, killed, last_output: broker.last_output() });
    }

    fn notify(&self, notice: &Notice) {
        notice::send(&self.layout.notices(), notice);
    }

    fn log(&self, message: &str) {
        if !self.rank.plan.logging.quiet {
            log(message);
        }
    }
}

/// The command line of the initial program: the agent's program stage.
fn program_command(stage: &StageArguments) -> io::Result<Vec<String>> {
    let program = own_program::path()?.to_string_lossy().into_owned();
    let own = [program, "program".to_owned(), arguments::AGENT.to_owned(), stage.agent.to_string()];
    Ok(own.into_iter().chain(stage.common.to_arguments()).collect())
}

/// Detects that the agent was killed. In a pod everything is killed with the first process, but
/// not on a machine without containers.
fn watch_agent(agent: i32, sender: &Sender<Event>) {
    let opened = Pid::from_raw(agent).and_then(|agent| processes::open_pidfd(agent).ok());
    // An old kernel has no pidfd; then this is not detected.
    let Some(agent) = opened else { return };
    let sender = sender.clone();
    thread::spawn(move || {
        processes::wait_for_exit(&agent);
        let _ = sender.send(Event::Orphaned);
    });
}
