//! The supervisor process: starts a cluster, waits until it has finished, and cleans up.

use std::io::{Read, Write};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flux_operator_wire::{Termination, TerminationReason};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::flux::Programs;
use crate::home::Home;
use crate::instance::{Instance, InstanceError, JoinRecord, Record};
use crate::plural::count;
use crate::progress::Progress;
use crate::request::RunRequest;
use crate::start::{Agents, Output, StartError, start};

/// How long agents have to exit by themselves; they need at most 2 s.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a cluster could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The instance's files cannot be used.
    #[error(transparent)]
    Instance(InstanceError),
    /// The cluster did not start.
    #[error(transparent)]
    Start(StartError),
    /// Signals cannot be handled.
    #[error("failed to handle signals")]
    Signals(#[source] std::io::Error),
}

/// What the supervisor waits for.
pub(crate) enum Event {
    Ready,
    LeadExited(std::io::Result<ExitStatus>),
    /// The agent of a broker that has joined another cluster.
    JoinedWorkerExited {
        pid: Pid,
        is_failure: bool,
    },
    Signal(i32),
}

/// What the caller of a supervisor is informed of.
pub(crate) enum Milestone<'a> {
    /// All files are written and all agents are started.
    Started,
    /// Enough brokers are online.
    Ready(&'a Record),
}

/// The channel on which a supervisor receives its events.
pub(crate) struct EventChannel {
    pub(crate) sender: Sender<Event>,
    pub(crate) events: Receiver<Event>,
}

impl EventChannel {
    pub(crate) fn new() -> EventChannel {
        let (sender, events) = mpsc::channel();
        EventChannel { sender, events }
    }

    /// A sender with which the caller can stop the supervisor, as a signal would.
    pub(crate) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The channel of a supervisor that is the whole program: it also receives signals.
    pub(crate) fn with_signals() -> Result<EventChannel, SupervisorError> {
        let channel = EventChannel::new();
        let sender = channel.sender();
        watch_signals(move |signal| sender.send(Event::Signal(signal)).is_ok())
            .map_err(SupervisorError::Signals)?;
        Ok(channel)
    }
}

/// Runs a cluster until its command has finished, and returns the command's exit code.
pub fn run(
    home: &Home,
    request: &RunRequest,
    programs: &Programs,
    progress: &Progress,
) -> Result<u8, SupervisorError> {
    let instance = free_instance(home, request.name());
    progress.note_other_name(request.name(), instance.name());
    for note in &request.notes {
        progress.note(note);
    }
    // Before anything exists that would have to be cleaned up.
    let channel = EventChannel::with_signals()?;
    run_instance(&instance, request, programs, progress, Output::Inherited, channel, |_| {})
}

/// Runs one of several clusters of this program, as [`run`] does. Each line of its output is
/// prefixed with its name.
pub(crate) fn run_prefixed(
    home: &Home,
    request: &RunRequest,
    programs: &Programs,
    ears: EventChannel,
    on_ready: impl FnMut(&Record),
) -> Result<u8, SupervisorError> {
    let instance = free_instance(home, request.name());
    let output = Output::Prefixed(request.name().to_owned());
    let progress = Progress::silent();
    run_instance(&instance, request, programs, &progress, output, ears, when_ready(on_ready))
}

/// Runs a cluster that stays up until it is stopped. `ready` is called once enough brokers are
/// online.
pub fn supervise(
    instance: &Instance,
    request: &RunRequest,
    programs: &Programs,
    ready: impl FnMut(&Record),
) -> Result<u8, SupervisorError> {
    let (ears, ready) = (EventChannel::with_signals()?, when_ready(ready));
    run_instance(instance, request, programs, &Progress::silent(), Output::Logged, ears, ready)
}

fn when_ready(mut on_ready: impl FnMut(&Record)) -> impl FnMut(Milestone<'_>) {
    move |milestone| match milestone {
        Milestone::Ready(record) => on_ready(record),
        Milestone::Started => {}
    }
}

/// Runs a cluster with an instance of its own, and returns the exit code of its command.
pub(crate) fn run_instance(
    instance: &Instance,
    request: &RunRequest,
    programs: &Programs,
    progress: &Progress,
    output: Output,
    ears: EventChannel,
    mut on_milestone: impl FnMut(Milestone<'_>),
) -> Result<u8, SupervisorError> {
    let EventChannel { sender, events } = ears;
    request.check(instance).map_err(SupervisorError::Instance)?;
    let _lock = instance.acquire().map_err(SupervisorError::Instance)?;
    let _files = RemoveOnDrop { instance };
    let size = request.cluster.ranks.size;
    progress.done(&format!("{} of {}", count(size, "broker"), programs.flux.describe()));
    progress.begin("waiting for brokers");
    let mut record = new_record(size, programs, None);
    instance.write_record(&record).map_err(SupervisorError::Instance)?;
    let Agents { mut children, ready, forwarder: lines } =
        start(instance, request, programs, output).map_err(SupervisorError::Start)?;
    ready.into_iter().for_each(|pipe| watch_ready(pipe, sender.clone()));
    on_milestone(Milestone::Started);
    let lead = children.remove(0);
    let lead_pid = Pid::from_child(&lead);
    let lead_input = watch_lead(lead, sender);
    let mut stop_signal = None;
    let lead_status = loop {
        match events.recv() {
            Ok(Event::Ready) => {
                record.ready = true;
                instance.write_record(&record).map_err(SupervisorError::Instance)?;
                progress.done("enough brokers are online, the command starts");
                progress.finish();
                on_milestone(Milestone::Ready(&record));
            }
            Ok(Event::LeadExited(status)) => break status.ok(),
            // Only a joiner waits for this.
            Ok(Event::JoinedWorkerExited { .. }) => {}
            Ok(Event::Signal(signal)) => {
                stop_signal = Some(signal);
                // The lead shuts down the instance, which stops its brokers.
                let _ = kill_process(lead_pid, Signal::TERM);
            }
            Err(_) => break None,
        }
    };
    progress.finish();
    drop(lead_input);
    stop_workers(children, &events);
    if let Some(lines) = lines {
        lines.finish();
    }
    let code = match stop_signal.and_then(|signal| u8::try_from(128 + signal).ok()) {
        Some(code) => code,
        None => exit_code(instance, lead_status, progress),
    };
    progress.done(&format!("finished with exit code {code}"));
    Ok(code)
}

/// The record of a cluster that is starting.
pub(crate) fn new_record(size: u32, programs: &Programs, joins: Option<JoinRecord>) -> Record {
    Record {
        supervisor: std::process::id(),
        size,
        flux: programs.flux.path().to_owned(),
        started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        ready: false,
        joins,
    }
}

/// An instance that is not running: with the cluster's name, or that and a number.
pub(crate) fn free_instance(home: &Home, name: &str) -> Instance {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .map(|name| home.instance(&name))
        .find(|instance| instance.record().is_err() || instance.remove_if_not_running())
        .expect("some number is free")
}

/// Removes the instance's files when the supervisor exits normally.
pub(crate) struct RemoveOnDrop<'a> {
    pub(crate) instance: &'a Instance,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        self.instance.remove();
    }
}

/// Calls `notify` for each signal that asks this program to exit, for as long as it returns true.
pub(crate) fn watch_signals(notify: impl Fn(i32) -> bool + Send + 'static) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || signals.forever().find(|signal| !notify(*signal)));
    Ok(())
}

/// Sends an event once a pipe is readable.
pub(crate) fn watch_ready(mut ready: std::fs::File, sender: Sender<Event>) {
    thread::spawn(move || {
        let mut byte = [0];
        if ready.read_exact(&mut byte).is_ok() {
            let _ = sender.send(Event::Ready);
        }
    });
}

/// Waits for the lead in a thread; returns its standard input, which must be kept open.
fn watch_lead(mut lead: Child, sender: Sender<Event>) -> Option<std::process::ChildStdin> {
    let input = lead.stdin.take();
    thread::spawn(move || {
        let _ = sender.send(Event::LeadExited(lead.wait()));
    });
    input
}

/// Stops the workers by closing their standard input, and kills those that do not exit.
fn stop_workers(mut workers: Vec<Child>, events: &Receiver<Event>) {
    for worker in &mut workers {
        drop(worker.stdin.take());
    }
    let deadline = Instant::now() + EXIT_TIMEOUT;
    let (sender, exited) = mpsc::channel();
    let pids: Vec<Pid> = workers.iter().map(Pid::from_child).collect();
    thread::spawn(move || {
        for mut worker in workers {
            let _ = worker.wait();
            let _ = sender.send(());
        }
    });
    for done in 0..pids.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if exited.recv_timeout(left).is_err() {
            // Those before it were waited for, and their numbers may be those of other processes.
            for pid in pids.iter().skip(done) {
                let _ = kill_process(*pid, Signal::KILL);
            }
            let _ = exited.recv_timeout(EXIT_TIMEOUT);
        }
    }
    // Signals that arrived meanwhile need no further action.
    while events.try_recv().is_ok() {}
}

/// The command's exit code as reported by the lead's agent, or else the agent's own.
fn exit_code(instance: &Instance, status: Option<ExitStatus>, progress: &Progress) -> u8 {
    let termination = std::fs::read_to_string(instance.termination_file(0))
        .ok()
        .and_then(|text| Termination::parse(&text));
    let own = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    match termination {
        Some(termination) => {
            let is_expected = matches!(
                termination.reason,
                TerminationReason::Completed | TerminationReason::CommandFailed
            );
            if !is_expected && !termination.message.is_empty() {
                progress.finish();
                let _ = writeln!(
                    std::io::stderr(),
                    "{}: {}: {}",
                    instance.name(),
                    termination.reason.as_str(),
                    termination.message
                );
            }
            termination.exit_code
        }
        None => own.unwrap_or(1),
    }
}
