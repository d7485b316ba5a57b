//! Keeps the components of a testbed running.
//!
//! One process, one thread: children are reaped by waiting for any child, so nothing else may wait
//! at the same time. As root this process is the first of a pid namespace: it adopts the orphans of
//! containers, and when it exits the kernel kills them all. See [`crate::supervise`] for the order
//! in which components start.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use crate::command::chain;
use crate::component::{Component, ExitPolicy, Settings};
use crate::control::{ControlListener, ControlRequest};
use crate::files::{self, FileError, failed};
use crate::process::{command_for, describe, has_children, kill_all_others};
use crate::state::{ComponentState, Level, Phase, StartStep, TestbedState};
use crate::{cgroup, probe};

/// How long a component may take to become ready. Usually it takes seconds, but machines are slow
/// and noisy.
const READY_LIMIT: Duration = Duration::from_secs(180);
/// How long a component may take to exit when asked, before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// The delay before a component that exited is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// How often everything is checked.
const TICK: Duration = Duration::from_millis(50);

/// Why a supervisor stops.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StopReason {
    #[error("requested")]
    Requested,
    #[error("the testbed's directory was removed")]
    DirectoryRemoved,
    #[error("{component} exited ({how})")]
    Exited { component: &'static str, how: String },
    #[error("{component} was not ready within {} s", READY_LIMIT.as_secs())]
    NotReady { component: &'static str },
    #[error("failed to start {component}")]
    Start { component: &'static str, source: io::Error },
    #[error("failed to prepare the testbed")]
    File(#[source] FileError),
    #[error("failed to create certificates")]
    Pki(#[source] crate::pki::PkiError),
    #[error("failed to set up the network")]
    Network(#[source] crate::command::CommandError),
    #[error("failed to provide the node's images")]
    Image(#[source] crate::import::ImportError),
}

struct SupervisedComponent {
    component: Component,
    pid: Option<Pid>,
    /// When it exited by itself.
    exited_at: Option<Instant>,
    restarts: u32,
    /// Whether it was stopped by request.
    stopped: bool,
}

pub(crate) struct Supervisor {
    pub(crate) settings: Settings,
    /// Whether the kernel kills all children when this process exits.
    contained: bool,
    state: TestbedState,
    running: Vec<SupervisedComponent>,
    listener: ControlListener,
    stop_requested: Arc<AtomicBool>,
    started: Instant,
    directory: (u64, u64),
}

impl Supervisor {
    pub(crate) fn new(settings: Settings, contained: bool) -> Result<Supervisor, StopReason> {
        let socket = settings.control_socket();
        let listener = ControlListener::bind(&socket)
            .map_err(failed("listen at", &socket))
            .map_err(StopReason::File)?;
        let stop_requested = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&stop_requested))
                .map_err(failed("handle signals of", settings.home.path()))
                .map_err(StopReason::File)?;
        }
        let supervisor = Supervisor {
            directory: identity(settings.home.path())
                .map_err(failed("read", settings.home.path()))
                .map_err(StopReason::File)?,
            state: TestbedState::new(settings.slot, settings.wanted),
            settings,
            contained,
            running: Vec::new(),
            listener,
            stop_requested,
            started: Instant::now(),
        };
        supervisor.write_state()?;
        Ok(supervisor)
    }

    /// Records a completed step of the start.
    pub(crate) fn record_step(&mut self, name: &str) -> Result<(), StopReason> {
        let milliseconds = self.started.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        self.state.steps.push(StartStep { name: name.to_owned(), milliseconds });
        self.write_state()
    }

    /// Starts a component, without waiting until it is ready.
    pub(crate) fn start(&mut self, component: Component) -> Result<(), StopReason> {
        let pid = self.spawn(&component)?;
        self.running.push(SupervisedComponent {
            component,
            pid: Some(pid),
            exited_at: None,
            restarts: 0,
            stopped: false,
        });
        self.write_state()
    }

    /// Waits until a component is ready, while it and all others are running.
    pub(crate) fn wait_ready(&mut self, name: &str) -> Result<(), StopReason> {
        let component = self
            .running
            .iter()
            .map(|each| &each.component)
            .find(|component| component.name == name)
            .expect("only components that were started are waited for")
            .clone();
        let limit = Instant::now() + READY_LIMIT;
        let mut remaining = component.ready.as_slice();
        while let Some((first, rest)) = remaining.split_first() {
            self.check(true)?;
            if probe::succeeds(first, &self.settings) {
                remaining = rest;
            } else if Instant::now() > limit {
                return Err(StopReason::NotReady { component: component.name });
            } else if let Some(pending) = self.listener.next(TICK) {
                let is_shutdown = pending.request == ControlRequest::Shutdown;
                pending.answer(match is_shutdown {
                    true => Ok(()),
                    false => Err("the testbed is still starting".to_owned()),
                });
                if is_shutdown {
                    return Err(StopReason::Requested);
                }
            }
        }
        self.record_step(component.name)
    }

    /// Records that everything is ready, and keeps it running until there is a reason to stop.
    pub(crate) fn serve(&mut self) -> Result<std::convert::Infallible, StopReason> {
        self.state.phase = Phase::Ready;
        self.write_state()?;
        loop {
            self.check(false)?;
            self.restart_exited()?;
            let Some(pending) = self.listener.next(TICK) else {
                continue;
            };
            let result = match &pending.request {
                ControlRequest::Shutdown => {
                    pending.answer(Ok(()));
                    return Err(StopReason::Requested);
                }
                ControlRequest::Ping => Ok(()),
                ControlRequest::Stop(name) => self.stop_component(name)?,
                ControlRequest::Start(name) => self.start_component(name)?,
            };
            pending.answer(result);
        }
    }

    /// Kills all components and every container. Nothing of a testbed is kept, so there is no grace
    /// period.
    pub(crate) fn kill_everything(&mut self, reason: &StopReason) {
        for pid in self.running.iter_mut().filter_map(|each| each.pid.take()) {
            // It may just have exited.
            let _gone = kill_process(pid, Signal::KILL);
        }
        // Repeatedly: a process that is being killed may just have started another one.
        while has_children() {
            if self.contained {
                kill_all_others();
            }
            std::thread::sleep(TICK / 5);
        }
        if self.settings.wanted.level == Level::Node {
            cgroup::remove(self.settings.slot);
        }
        // What cannot be removed now is removed when the slot is claimed next.
        let _left = files::remove_tree(&self.settings.sockets);
        self.state.phase = match reason {
            StopReason::Requested | StopReason::DirectoryRemoved => Phase::Stopped,
            failure => Phase::Failed { message: chain(failure), log: self.log_about(failure) },
        };
        // The directory itself may have been removed.
        let _gone = self.write_state();
    }

    /// Checks for exited children and for reasons to stop.
    fn check(&mut self, starting: bool) -> Result<(), StopReason> {
        if self.stop_requested.load(Ordering::Relaxed) {
            return Err(StopReason::Requested);
        }
        if identity(self.settings.home.path()).ok() != Some(self.directory) {
            return Err(StopReason::DirectoryRemoved);
        }
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let finished = self.running.iter_mut().find(|each| each.pid == Some(pid));
            // Every other child is an orphan of a container.
            let Some(finished) = finished else { continue };
            finished.pid = None;
            let component = finished.component.name;
            if !finished.stopped {
                eprintln!("{component} exited ({})", describe(status));
                if starting || finished.component.exit_policy == ExitPolicy::StopAll {
                    return Err(StopReason::Exited { component, how: describe(status) });
                }
                finished.exited_at = Some(Instant::now());
            }
            self.write_state()?;
        }
        Ok(())
    }

    fn restart_exited(&mut self) -> Result<(), StopReason> {
        for index in 0..self.running.len() {
            let due = |finished: Instant| finished.elapsed() >= RESTART_DELAY;
            if self.running[index].exited_at.is_some_and(due) {
                let pid = self.spawn(&self.running[index].component)?;
                let restarted = &mut self.running[index];
                restarted.pid = Some(pid);
                restarted.exited_at = None;
                restarted.restarts += 1;
                self.write_state()?;
            }
        }
        Ok(())
    }

    /// The outer result stops the supervisor; the inner one is the response to the client.
    fn stop_component(&mut self, name: &str) -> Result<Result<(), String>, StopReason> {
        let Some(index) = self.index_of(name) else {
            return Ok(Err(unknown(name)));
        };
        self.running[index].stopped = true;
        self.running[index].exited_at = None;
        let asked = Instant::now();
        while let Some(pid) = self.running[index].pid {
            let signal = if asked.elapsed() < STOP_LIMIT { Signal::TERM } else { Signal::KILL };
            // It may just have exited; that is detected below.
            let _gone = kill_process(pid, signal);
            std::thread::sleep(TICK);
            self.check(false)?;
        }
        Ok(Ok(()))
    }

    fn start_component(&mut self, name: &str) -> Result<Result<(), String>, StopReason> {
        let Some(index) = self.index_of(name) else {
            return Ok(Err(unknown(name)));
        };
        self.running[index].stopped = false;
        if self.running[index].pid.is_none() {
            self.running[index].pid = Some(self.spawn(&self.running[index].component)?);
            self.running[index].exited_at = None;
            self.write_state()?;
        }
        let ready = self.running[index].component.ready.clone();
        let limit = Instant::now() + READY_LIMIT;
        while !ready.iter().all(|each| probe::succeeds(each, &self.settings)) {
            self.check(false)?;
            if self.running[index].pid.is_none() || Instant::now() > limit {
                return Ok(Err(format!("{name} does not become ready")));
            }
            std::thread::sleep(TICK);
        }
        Ok(Ok(()))
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.running.iter().position(|each| each.component.name == name)
    }

    fn spawn(&self, component: &Component) -> Result<Pid, StopReason> {
        let start = || {
            let log = self.settings.home.log(component.name);
            let log = File::options().create(true).append(true).open(log)?;
            let child = command_for(component, &self.settings, self.contained)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()?;
            Ok(Pid::from_child(&child))
        };
        start().map_err(|source| StopReason::Start { component: component.name, source })
    }

    fn write_state(&self) -> Result<(), StopReason> {
        let components = self.running.iter().map(|each| ComponentState {
            name: each.component.name.to_owned(),
            pid: each.pid.map(Pid::as_raw_pid),
            restarts: each.restarts,
        });
        let state = TestbedState { components: components.collect(), ..self.state.clone() };
        state.write(&self.settings.home).map_err(StopReason::File)
    }

    fn log_about(&self, end: &StopReason) -> Option<std::path::PathBuf> {
        match end {
            StopReason::Exited { component, .. } | StopReason::NotReady { component } => {
                Some(self.settings.home.log(component))
            }
            _ => None,
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn unknown(name: &str) -> String {
    format!("there is no component {name:?}")
}
