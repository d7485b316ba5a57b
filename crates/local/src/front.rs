//! The supervisor process: starts a cluster, waits until it has finished, and cleans up.

use std::io::{Read, Write};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flux_operator_wire::{Ending, EndingReason};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::flux::{FluxChoice, Programs};
use crate::home::Home;
use crate::instance::{Instance, InstanceError, Record};
use crate::progress::Progress;
use crate::request::Request;
use crate::start::{Agents, Output, StartError, start};

/// How long agents have to exit by themselves; they need at most 2 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a cluster could not be run.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
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
    LeadEnded(std::io::Result<ExitStatus>),
    Signal(i32),
}

/// The channel on which a supervisor receives its events.
pub(crate) struct Ears {
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl Ears {
    pub(crate) fn new() -> Ears {
        let (sender, events) = mpsc::channel();
        Ears { sender, events }
    }

    /// A sender with which the caller can stop the supervisor, as a signal would.
    pub(crate) fn voice(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The channel of a supervisor that is the whole program: it also receives signals.
    fn of_the_program() -> Result<Ears, FrontError> {
        let ears = Ears::new();
        let sender = ears.voice();
        watch_signals(move |signal| sender.send(Event::Signal(signal)).is_ok())
            .map_err(FrontError::Signals)?;
        Ok(ears)
    }
}

/// Runs a cluster until its command has finished, and returns the command's exit code.
pub fn run(
    home: &Home,
    request: &Request,
    programs: &Programs,
    progress: &Progress,
) -> Result<u8, FrontError> {
    let instance = free_instance(home, request.name());
    for note in &request.notes {
        progress.note(note);
    }
    // Before anything exists that would have to be cleaned up.
    let ears = Ears::of_the_program()?;
    front(&instance, request, programs, progress, Output::Inherited, ears, |_| {})
}

/// Runs one of several clusters of this program, as [`run`] does. Each line of its output is
/// prefixed with its name.
pub(crate) fn run_one_of_several(
    home: &Home,
    request: &Request,
    programs: &Programs,
    ears: Ears,
    on_ready: impl FnMut(&Record),
) -> Result<u8, FrontError> {
    let instance = free_instance(home, request.name());
    let output = Output::Prefixed(request.name().to_owned());
    front(&instance, request, programs, &Progress::silent(), output, ears, on_ready)
}

/// Runs a cluster that stays up until it is stopped. `ready` is called once enough brokers are
/// online.
pub fn supervise(
    instance: &Instance,
    request: &Request,
    programs: &Programs,
    ready: impl FnMut(&Record),
) -> Result<u8, FrontError> {
    let ears = Ears::of_the_program()?;
    front(instance, request, programs, &Progress::silent(), Output::Logged, ears, ready)
}

fn front(
    instance: &Instance,
    request: &Request,
    programs: &Programs,
    progress: &Progress,
    output: Output,
    ears: Ears,
    mut on_ready: impl FnMut(&Record),
) -> Result<u8, FrontError> {
    let Ears { sender, events } = ears;
    let _held = instance.hold().map_err(FrontError::Instance)?;
    let _files = Files { instance };
    let size = request.cluster.ranks.size;
    progress.done(&format!("{} brokers of {}", size, programs.flux.describe()));
    progress.doing("waiting for brokers");
    let mut record = Record {
        front: std::process::id(),
        size,
        flux: program(&programs.flux),
        started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        ready: false,
    };
    instance.write_record(&record).map_err(FrontError::Instance)?;
    let Agents { mut children, ready, lines } =
        start(instance, request, programs, output).map_err(FrontError::Start)?;
    watch_ready(ready, sender.clone());
    let lead = children.remove(0);
    let lead_pid = Pid::from_child(&lead);
    let lead_input = watch_lead(lead, sender);
    let mut told = None;
    let ended = loop {
        match events.recv() {
            Ok(Event::Ready) => {
                record.ready = true;
                instance.write_record(&record).map_err(FrontError::Instance)?;
                progress.done("enough brokers are online, the command starts");
                progress.finish();
                on_ready(&record);
            }
            Ok(Event::LeadEnded(status)) => break status.ok(),
            Ok(Event::Signal(signal)) => {
                told = Some(signal);
                // The lead shuts down the instance, which stops its brokers.
                let _ = kill_process(lead_pid, Signal::TERM);
            }
            Err(_) => break None,
        }
    };
    progress.finish();
    drop(lead_input);
    end(children, &events);
    if let Some(lines) = lines {
        lines.finish();
    }
    let code = match told.and_then(|signal| u8::try_from(128 + signal).ok()) {
        Some(code) => code,
        None => exit_code(instance, ended, progress),
    };
    progress.done(&format!("finished with exit code {code}"));
    Ok(code)
}

/// An instance that is not running: with the cluster's name, or that and a number.
fn free_instance(home: &Home, name: &str) -> Instance {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .map(|name| home.instance(&name))
        .find(|instance| instance.record().is_err() || instance.remove_if_dead())
        .expect("some number is free")
}

fn program(flux: &FluxChoice) -> std::path::PathBuf {
    match flux {
        FluxChoice::Installed(program) | FluxChoice::BuiltIn(program) => program.clone(),
    }
}

/// Removes the instance's files when the supervisor exits normally.
struct Files<'a> {
    instance: &'a Instance,
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        self.instance.remove();
    }
}

/// Calls `tell` for each signal that asks this program to exit, for as long as it returns true.
pub(crate) fn watch_signals(tell: impl Fn(i32) -> bool + Send + 'static) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || signals.forever().find(|signal| !tell(*signal)));
    Ok(())
}

fn watch_ready(mut ready: std::fs::File, sender: Sender<Event>) {
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
        let _ = sender.send(Event::LeadEnded(lead.wait()));
    });
    input
}

/// Stops the workers by closing their standard input, and kills those that do not exit.
fn end(mut workers: Vec<Child>, events: &Receiver<Event>) {
    for worker in &mut workers {
        drop(worker.stdin.take());
    }
    let deadline = Instant::now() + PATIENCE;
    let (sender, ended) = mpsc::channel();
    let pids: Vec<Pid> = workers.iter().map(Pid::from_child).collect();
    let count = workers.len();
    thread::spawn(move || {
        for mut worker in workers {
            let _ = worker.wait();
            let _ = sender.send(());
        }
    });
    for _ in 0..count {
        let left = deadline.saturating_duration_since(Instant::now());
        if ended.recv_timeout(left).is_err() {
            for pid in &pids {
                let _ = kill_process(*pid, Signal::KILL);
            }
            let _ = ended.recv_timeout(PATIENCE);
        }
    }
    // Signals that arrived meanwhile need no further action.
    while events.try_recv().is_ok() {}
}

/// The command's exit code as reported by the lead's agent, or else the agent's own.
fn exit_code(instance: &Instance, status: Option<ExitStatus>, progress: &Progress) -> u8 {
    let ending =
        std::fs::read_to_string(instance.ending(0)).ok().and_then(|text| Ending::parse(&text));
    let own = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    match ending {
        Some(ending) => {
            let told =
                matches!(ending.reason, EndingReason::Completed | EndingReason::CommandFailed);
            if !told && !ending.message.is_empty() {
                progress.finish();
                let _ = writeln!(
                    std::io::stderr(),
                    "{}: {}: {}",
                    instance.name(),
                    ending.reason.as_str(),
                    ending.message
                );
            }
            ending.exit_code
        }
        None => own.unwrap_or(1),
    }
}
