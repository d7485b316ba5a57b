//! The supervisor of a joiner: a cluster whose brokers are in the instance of another one.
//!
//! It has no lead of its own to wait for. It stops with its lender, whose lock shows how long that
//! one is running; otherwise its brokers would wait for an instance that never comes back.

use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use flux_operator_api::MiniCluster;
use flux_operator_flux::IdSet;
use flux_operator_wire::{Termination, TerminationReason};
use kube::ResourceExt;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGTERM;

use crate::connected::{ConnectedError, lender_name, valid};
use crate::flux::{FluxProgram, Programs};
use crate::home::Home;
use crate::instance::{Instance, JoinRecord, Record};
use crate::lender::Lender;
use crate::request::RunRequest;
use crate::start::{Agents, Output, flux_path, start};
use crate::supervisor::{
    EXIT_TIMEOUT, Event, EventChannel, Milestone, RemoveOnDrop, SupervisorError, new_record,
    watch_ready,
};

/// How long to wait until jobs can use ranks that are online. Flux needs about 0.2 s; for a rank
/// that is drained there is nothing to wait for.
const USABLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Lets the brokers of a MiniCluster join a running lender until they are stopped, or the lender
/// is. `ready` is called once jobs can use all of them.
pub fn join(
    home: &Home,
    minicluster: MiniCluster,
    programs: &Programs,
    ready: impl FnOnce(&Record) + Send + 'static,
) -> Result<u8, ConnectedError> {
    let joiner = valid(minicluster)?;
    let instance = home.instance(&joiner.name_any());
    let not_ready = || ConnectedError::not_ready(&joiner);
    let lender = home.instance(&lender_name(&joiner));
    // Brokers of one instance are of one Flux.
    let flux = FluxProgram::at(&lender.record().map_err(|_| not_ready())?.flux);
    let programs = &Programs { flux, ..programs.clone() };
    let instance_error = |error| ConnectedError::Supervisor(SupervisorError::Instance(error));
    // Until this joiner's record shows its lease, no other may decide.
    let mut decision = Some(lender.lock_leases().map_err(instance_error)?);
    let running = Lender::running(home, lender.clone()).map_err(ConnectedError::Home)?;
    let mut running = running.ok_or_else(not_ready)?;
    let request = running.lease(joiner.clone()).map_err(ConnectedError::Join)?;
    let channel = EventChannel::with_signals().map_err(ConnectedError::Supervisor)?;
    watch_lender(lender, channel.sender());
    let ranks = request.ranks();
    let client = FluxClient {
        flux: flux_path(&instance, programs),
        uri: instance.uri(ranks.nth(0).unwrap_or(0)),
    };
    let mut ready = Some(ready);
    let exited = run_joiner(&instance, &request, programs, channel, |milestone| match milestone {
        Milestone::Started => drop(decision.take()),
        Milestone::Ready(record) => {
            let (client, record) = (client.clone(), record.clone());
            let (ready, ranks) = (ready.take(), ranks.to_set());
            thread::spawn(move || {
                client.wait_until_usable(&ranks);
                ready.into_iter().for_each(|ready| ready(&record));
            });
        }
    });
    exited.map(|()| 0)
}

/// A client of a broker.
#[derive(Clone)]
struct FluxClient {
    flux: PathBuf,
    uri: String,
}

impl FluxClient {
    /// Waits until the scheduler can use these ranks, which is a moment after they are online.
    fn wait_until_usable(&self, ranks: &IdSet) {
        let deadline = Instant::now() + USABLE_TIMEOUT;
        while !self.usable_ranks().is_some_and(|usable| ranks.is_subset(&usable)) {
            if Instant::now() > deadline {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn usable_ranks(&self) -> Option<IdSet> {
        let mut command = Command::new(&self.flux);
        command.args(["resource", "list", "-n", "-s", "free,allocated", "-o", "{ranks}"]);
        let output = command.env("FLUX_URI", &self.uri).stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let sets: Vec<IdSet> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        Some(IdSet::union_all(&sets))
    }
}

/// Runs the brokers of a joiner until all have exited, or an event asks to stop them. Fails if
/// they cannot join.
pub(crate) fn run_joiner(
    instance: &Instance,
    request: &RunRequest,
    programs: &Programs,
    channel: EventChannel,
    mut on_milestone: impl FnMut(Milestone<'_>),
) -> Result<(), ConnectedError> {
    let EventChannel { sender, events } = channel;
    let failed = |error| ConnectedError::Supervisor(SupervisorError::Instance(error));
    request.check(instance).map_err(failed)?;
    let _lock = instance.acquire().map_err(failed)?;
    let _files = RemoveOnDrop { instance };
    let lender = request.lender.as_ref().map(|lender| lender.name().to_owned());
    let joins = JoinRecord { lender: lender.unwrap_or_default(), ranks: request.ranks() };
    let mut record = new_record(request.cluster.ranks.size, programs, Some(joins));
    instance.write_record(&record).map_err(failed)?;
    let agents = start(instance, request, programs, Output::Logged);
    let Agents { children, ready, forwarder: _ } =
        agents.map_err(|error| ConnectedError::Supervisor(SupervisorError::Start(error)))?;
    let mut offline = ready.len();
    ready.into_iter().for_each(|pipe| watch_ready(pipe, sender.clone()));
    let mut running: Vec<Pid> = children.iter().map(Pid::from_child).collect();
    let mut inputs = watch_agents(children, &sender);
    on_milestone(Milestone::Started);
    let (mut is_stopping, mut has_failed) = (false, false);
    while !running.is_empty() {
        // Agents that were asked to stop need little time.
        let timeout = if is_stopping { EXIT_TIMEOUT } else { Duration::MAX };
        match events.recv_timeout(timeout) {
            Ok(Event::Ready) => {
                offline = offline.saturating_sub(1);
                if offline == 0 && !record.ready {
                    record.ready = true;
                    instance.write_record(&record).map_err(failed)?;
                    on_milestone(Milestone::Ready(&record));
                }
            }
            Ok(Event::Signal(_)) => {
                is_stopping = true;
                inputs.clear();
            }
            Ok(Event::JoinedWorkerExited { pid, is_failure }) => {
                // Its number may soon be that of another process.
                running.retain(|it| *it != pid);
                // All of them are needed; without one the lender's command might never start.
                if is_failure && !record.ready && !is_stopping {
                    (is_stopping, has_failed) = (true, true);
                    inputs.clear();
                }
            }
            // It has no lead.
            Ok(Event::LeadExited(_)) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                for pid in &running {
                    let _ = kill_process(*pid, Signal::KILL);
                }
            }
        }
    }
    if has_failed {
        let message = failure(instance, request).unwrap_or_else(|| "an agent failed".into());
        return Err(ConnectedError::BrokersFailed { joiner: request.name().to_owned(), message });
    }
    Ok(())
}

/// Waits for each agent in a thread; returns their standard inputs, which must be kept open.
fn watch_agents(agents: Vec<Child>, sender: &Sender<Event>) -> Vec<ChildStdin> {
    let watch = |mut agent: Child| {
        let (input, sender, pid) = (agent.stdin.take(), sender.clone(), Pid::from_child(&agent));
        thread::spawn(move || {
            let is_failure = !agent.wait().is_ok_and(|status| status.success());
            let _ = sender.send(Event::JoinedWorkerExited { pid, is_failure });
        });
        input
    };
    agents.into_iter().filter_map(watch).collect()
}

/// Stops the joiner when its lender has stopped.
fn watch_lender(lender: Instance, sender: Sender<Event>) {
    thread::spawn(move || {
        // A lender without a lock has stopped and removed its files.
        let _ = lender.wait_until_stopped();
        let _ = sender.send(Event::Signal(SIGTERM));
    });
}

/// What the first agent that failed has reported. The others were stopped because of it.
fn failure(instance: &Instance, request: &RunRequest) -> Option<String> {
    let ranks = request.ranks();
    let mut messages = ranks.iter().filter_map(|rank| {
        let text = std::fs::read_to_string(instance.termination_file(rank)).ok()?;
        let termination = Termination::parse(&text).filter(|it| it.exit_code != 0)?;
        if termination.reason == TerminationReason::Stopped {
            return None;
        }
        Some(format!("rank {rank}: {}: {}", termination.reason.as_str(), termination.message))
    });
    messages.next()
}
