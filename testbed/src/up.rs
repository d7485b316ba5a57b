//! `up`: starts a testbed, or finds that it is running.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::claim::{Claim, ClaimError, RunDirectory, SlotHolder};
use crate::control;
use crate::down::{self, DownError};
use crate::files::{self, FileError, failed};
use crate::import::{self, ImportError};
use crate::layout::{Layout, TestbedDirectory, TestbedName};
use crate::prerequisites::{self, PrerequisiteError};
use crate::programs::{self, BuildError};
use crate::state::{Level, Phase, Requirements, TestbedState};

/// The maximum duration of a start. Its parts have their own limits, with better messages.
const LIMIT: Duration = Duration::from_secs(600);

/// Why a testbed could not be started.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The machine lacks a prerequisite.
    #[error("this machine cannot run the testbed")]
    Prerequisite(#[source] PrerequisiteError),
    /// The programs could not be built.
    #[error("failed to build the testbed's programs")]
    Build(#[source] BuildError),
    /// The node's images could not be written.
    #[error("failed to write the node's images")]
    Images(#[source] ImportError),
    /// No slot is free.
    #[error("the machine has no free slot for the testbed")]
    Claim(#[source] ClaimError),
    /// An earlier testbed with the name could not be stopped.
    #[error("failed to stop the earlier testbed with this name")]
    Replace(#[source] DownError),
    /// A file could not be prepared.
    #[error("failed to prepare the testbed")]
    File(#[source] FileError),
    /// A component failed. The message contains the end of its log, which usually shows why.
    #[error("the testbed failed: {message}{log}")]
    Failed {
        /// What happened.
        message: String,
        /// The end of the log, or empty.
        log: String,
    },
    /// Another command stopped it.
    #[error("the testbed was stopped while it started")]
    Stopped,
    /// The supervisor exited without reporting why.
    #[error("the supervisor exited unexpectedly{log}")]
    SupervisorExited {
        /// The end of its log.
        log: String,
    },
    /// The start takes too long.
    #[error("the testbed is not ready after {} s; `testbed status` shows more", LIMIT.as_secs())]
    TimedOut,
}

/// Starts a testbed. A running testbed that satisfies the requirements is left alone; one that does
/// not is replaced, with everything in it. `program` is the program whose command `supervise` is
/// run, `report` is called with each line of progress. The second result is whether the testbed was
/// started now.
pub fn up(
    layout: &Layout,
    name: &TestbedName,
    wanted: Requirements,
    program: &Path,
    report: &mut dyn FnMut(&str),
) -> Result<(TestbedDirectory, bool), UpError> {
    let home = layout.home(name);
    let run = RunDirectory::of_this_user();
    loop {
        let lock = lock(layout).map_err(UpError::File)?;
        let started_now = match run.find(&home).map(|_| TestbedState::read(&home)) {
            None => {
                prepare(layout, wanted.level, report)?;
                start(layout, &home, &run, wanted, program)?;
                true
            }
            Some(Some(state)) if will_satisfy(&state, wanted) && is_responsive(&run, &state) => {
                false
            }
            Some(_) => {
                report("replacing the running testbed, which does not meet the requirements");
                down::stop_and_remove(&home).map_err(UpError::Replace)?;
                continue;
            }
        };
        drop(lock);
        let result = wait_until_ready(&home, &run, started_now, report);
        if result.is_err() {
            // The logs are kept, and the message names them.
            down::wait_until_released(&run, &home, Duration::from_secs(2));
            run.sweep_free_slots();
        }
        return result.map(|()| (home, started_now));
    }
}

/// Whether a running testbed satisfies the requirements, or will once it is ready.
fn will_satisfy(state: &TestbedState, wanted: Requirements) -> bool {
    matches!(state.phase, Phase::Starting | Phase::Ready) && state.wanted.satisfies(wanted)
}

/// Whether the supervisor of a ready testbed is alive. A starting one may not listen yet; a caller
/// that waits for it notices if it exits.
fn is_responsive(run: &RunDirectory, state: &TestbedState) -> bool {
    state.phase == Phase::Starting
        || control::is_alive(&run.of_slot(state.slot).join("control.sock"))
}

/// Takes the lock that serializes builds, starts, links and stops in one base directory.
pub(crate) fn lock(layout: &Layout) -> Result<File, FileError> {
    files::create_directory(layout.base())?;
    let path = layout.lock();
    let file = File::create(&path).map_err(failed("open", &path))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("waiting for another testbed command to finish");
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| failed("lock", &path)(error.into()))?;
    }
    Ok(file)
}

fn prepare(layout: &Layout, level: Level, report: &mut dyn FnMut(&str)) -> Result<(), UpError> {
    let started = Instant::now();
    let installed = prerequisites::ensure(level).map_err(UpError::Prerequisite)?;
    if !installed.is_empty() {
        let seconds = started.elapsed().as_secs_f64();
        report(&format!("{seconds:>6.1} s  installed {}", installed.join(" ")));
    }
    programs::build(layout, level, &[], |program, seconds| {
        report(&format!("{seconds:>6.1} s  built {program}"));
    })
    .map_err(UpError::Build)?;
    if level == Level::Node {
        import::write_node_images(layout).map_err(UpError::Images)?;
    }
    Ok(())
}

/// Starts a supervisor in a fresh directory.
fn start(
    layout: &Layout,
    home: &TestbedDirectory,
    run: &RunDirectory,
    wanted: Requirements,
    program: &Path,
) -> Result<(), UpError> {
    files::remove_tree(home.path()).map_err(UpError::File)?;
    let log_path = home.log("supervisor");
    files::create_directory(&home.join("log")).map_err(UpError::File)?;
    let mut claim = run.claim().map_err(UpError::Claim)?;
    // The supervisor continues from here; commands that read the state earlier see that it is
    // starting.
    TestbedState::new(claim.slot, wanted).write(home).map_err(UpError::File)?;

    let spawn = |claim: &mut Claim| {
        let log = File::create(&log_path)?;
        let contained = prerequisites::is_root() && prerequisites::try_namespaces().is_ok();
        let mut command = Command::new("setsid");
        if contained {
            command
                .args(["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"])
                .args(["--propagation", "private"]);
        }
        command
            .arg(program)
            .arg("supervise")
            .arg("--base")
            .arg(layout.base())
            .arg("--home")
            .arg(home.path())
            .arg("--sockets")
            .arg(run.of_slot(claim.slot))
            .args(["--slot", &claim.slot.to_string()])
            .args(["--level", level_word(wanted.level)]);
        if wanted.audit {
            command.arg("--audit");
        }
        if contained {
            command.arg("--contained");
        }
        let child = command
            .current_dir("/")
            .stdin(Stdio::from(claim.lock.try_clone()?))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let pid = child.id().try_into().unwrap_or(i32::MAX);
        claim.record(&SlotHolder { home: home.clone(), pid })
    };
    spawn(&mut claim).map_err(failed("start the supervisor of", home.path())).map_err(UpError::File)
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::ApiServer => "api-server",
        Level::ControlPlane => "control-plane",
        Level::Node => "node",
    }
}

/// Shows the progress of a testbed until it is ready. For one that was already ready there is
/// nothing to show.
fn wait_until_ready(
    home: &TestbedDirectory,
    run: &RunDirectory,
    starts: bool,
    report: &mut dyn FnMut(&str),
) -> Result<(), UpError> {
    let started = Instant::now();
    let mut shown = 0;
    while started.elapsed() < LIMIT {
        // The order matters: a state that is read after the lock was released is final.
        let alive = run.find(home).is_some();
        let state = TestbedState::read(home);
        if let Some(state) = &state {
            if !starts && shown == 0 && state.phase == Phase::Ready {
                shown = state.steps.len();
            }
            for step in &state.steps[shown.min(state.steps.len())..] {
                let seconds = Duration::from_millis(step.milliseconds).as_secs_f64();
                report(&format!("{seconds:>6.1} s  {}", step.name));
            }
            shown = state.steps.len();
        }
        match state.map(|state| state.phase) {
            Some(Phase::Ready) if alive => return Ok(()),
            Some(Phase::Failed { message, log }) => {
                let log = log.map(|path| log_end(&path)).unwrap_or_default();
                return Err(UpError::Failed { message, log });
            }
            Some(Phase::Stopped) => return Err(UpError::Stopped),
            None if !home.path().exists() => return Err(UpError::Stopped),
            _ if !alive => {
                return Err(UpError::SupervisorExited { log: log_end(&home.log("supervisor")) });
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Err(UpError::TimedOut)
}

fn log_end(path: &Path) -> String {
    let lines = files::last_lines(path, 15);
    match lines.is_empty() {
        true => String::new(),
        false => format!("\nthe end of {}:\n    {}", path.display(), lines.join("\n    ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::Slot;

    #[test]
    fn a_failed_testbed_does_not_satisfy_any_requirements() {
        let wanted = Requirements { level: Level::ControlPlane, audit: false };
        let mut state = TestbedState::new(Slot::new(0).unwrap(), wanted);
        assert!(will_satisfy(&state, wanted));
        state.phase = Phase::Ready;
        assert!(will_satisfy(&state, wanted));
        assert!(!will_satisfy(&state, Requirements { level: Level::Node, ..wanted }));
        for phase in [Phase::Stopped, Phase::Failed { message: String::new(), log: None }] {
            state.phase = phase;
            assert!(!will_satisfy(&state, wanted));
        }
    }

    #[test]
    fn level_words_match_the_command_line() {
        use clap::ValueEnum;
        for level in [Level::ApiServer, Level::ControlPlane, Level::Node] {
            assert_eq!(Level::from_str(level_word(level), false), Ok(level));
        }
    }
}
