//! Runs tasks on this host: starts them, sends them input and signals, and reports their output
//! and exit.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};

use super::task::{self, TaskSpec};
use crate::bytes::Bytes;
use crate::message::{Launch, Report, Stream, TaskOwner, TaskRequest};

/// Sends a report. Called from many threads. It blocks while the receiver is too slow, which slows
/// down a task that prints more than can be sent.
pub type Reporter = Arc<dyn Fn(Report) + Send + Sync>;

/// The tasks of this host.
#[derive(Clone)]
pub struct Executor {
    report: Reporter,
    host: String,
    /// Added to the environment of every task.
    environment: Arc<Vec<(String, String)>>,
    rundir: PathBuf,
    running: Arc<Mutex<HashMap<TaskOwner, RunningTasks>>>,
}

#[derive(Default)]
struct RunningTasks {
    /// The process group of each task that has not exited.
    groups: BTreeMap<u32, Pid>,
    inputs: Vec<Sender<Vec<u8>>>,
    files: [Option<File>; 2],
    remaining: usize,
    directory: Option<PathBuf>,
}

impl Executor {
    pub fn new(
        report: Reporter,
        host: String,
        environment: Vec<(String, String)>,
        rundir: PathBuf,
    ) -> Self {
        let environment = Arc::new(environment);
        Self { report, host, environment, rundir, running: Arc::default() }
    }

    pub fn execute(&self, order: TaskRequest) {
        match order {
            TaskRequest::Launch(launch) => self.launch(*launch),
            TaskRequest::Signal { owner: run, signal } => self.signal(run, signal),
            TaskRequest::Input { run, data } => {
                let mut running = self.lock();
                let Some(entry) = running.get_mut(&run) else { return };
                if data.0.is_empty() {
                    entry.inputs.clear();
                }
                // A task that has exited does not read any more.
                entry.inputs.retain(|input| input.send(data.0.clone()).is_ok());
            }
            TaskRequest::Write { run, stream, data } => self.write(run, stream, &data),
            TaskRequest::Close { run } => {
                self.lock().remove(&run);
                (self.report)(Report::Closed { run });
            }
        }
    }

    /// Kills all tasks.
    pub fn kill_all(&self) {
        self.signal_all(Signal::KILL);
    }

    /// Sends a signal to all tasks.
    pub fn signal_all(&self, signal: Signal) {
        for running in self.lock().values() {
            for group in running.groups.values() {
                let _already_exited = kill_process_group(*group, signal);
            }
        }
    }

    /// Whether any task is running.
    pub fn is_busy(&self) -> bool {
        self.lock().values().any(|running| !running.groups.is_empty())
    }

    fn launch(&self, mut launch: Launch) {
        let run = launch.run;
        let directory = self.working_directory(&launch);
        let files = match self.open_files(&launch, &directory) {
            Ok(files) => files,
            Err(error) => return (self.report)(Report::Refused { run, error }),
        };
        if files.iter().any(Option::is_some) {
            (self.report)(Report::Opened { run, files: launch.files.clone() });
        }
        let temporary = self.rundir.join(format!("jobtmp-{}", run_name(run)));
        if let Err(error) = self.create_job_directory(&mut launch, &temporary) {
            let text = format!("ERROR: failed to write the batch script: {error}");
            (self.report)(Report::Notice { run, text });
        }
        let entry = RunningTasks {
            files,
            remaining: launch.tasks.len(),
            directory: Some(temporary.clone()),
            ..RunningTasks::default()
        };
        self.lock().insert(run, entry);
        launch.environment.extend([
            (Bytes::from("FLUX_JOB_TMPDIR"), Bytes::from(temporary.as_os_str())),
            (Bytes::from("FLUX_TERMINUS_SESSION"), Bytes::from("0")),
        ]);
        let environment = self.environment.iter();
        launch
            .environment
            .extend(environment.map(|(name, value)| (name.as_str().into(), value.as_str().into())));
        let launch = Arc::new(launch);
        for (task, local) in launch.tasks.iter().copied().zip(0..) {
            let task = TaskSpec {
                rank: task,
                local,
                directory: directory.clone(),
                launch: launch.clone(),
            };
            self.start(task);
        }
    }

    /// Starts a task and returns when it can be signalled.
    fn start(&self, task: TaskSpec) {
        let (started, is_started) = channel();
        let executor = self.clone();
        // The thread that starts a process must outlive it: the kernel kills the process with it.
        let body = move || {
            let (run, rank) = (task.launch.run, task.rank);
            let child = match task::spawn(&task) {
                Ok(child) => child,
                Err(failure) => {
                    executor.remove_group(run, rank);
                    drop(started);
                    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
                    let (error, code) = (failure.error, failure.code);
                    let failed = Report::Failed { run, task: rank, host, error, code };
                    (executor.report)(failed);
                    return executor.clean_up(run);
                }
            };
            if let Some(entry) = executor.lock().get_mut(&run) {
                entry.groups.insert(rank, child.group);
                entry.inputs.extend(child.input.clone());
            }
            drop(started);
            let report = executor.report.clone();
            let status = child.wait(
                |stream, data| report(Report::Output { run, task: rank, stream, data }),
                || executor.remove_group(run, rank),
            );
            (executor.report)(Report::Exited { run, task: rank, status });
            executor.clean_up(run);
        };
        let thread = thread::Builder::new().name("task".to_owned()).spawn(body);
        match thread {
            // An error means that the thread has dropped the sender, so the task can be signalled.
            Ok(_) => drop(is_started.recv() as Result<(), _>),
            Err(error) => eprintln!("{}: failed to start a thread: {error}", self.host),
        }
    }

    /// Removes a task's process group; called before its process ID can be reused.
    fn remove_group(&self, run: TaskOwner, task: u32) {
        if let Some(entry) = self.lock().get_mut(&run) {
            entry.groups.remove(&task);
        }
    }

    /// Cleans up after the tasks of a job, once the last of them has exited. Output files stay
    /// open: output of other hosts may still arrive.
    fn clean_up(&self, run: TaskOwner) {
        let mut running = self.lock();
        let Some(entry) = running.get_mut(&run) else { return };
        entry.remaining -= 1;
        if entry.remaining > 0 {
            return;
        }
        if let Some(directory) = entry.directory.take() {
            let _was_never_created = std::fs::remove_dir_all(directory);
        }
        if entry.files.iter().all(Option::is_none) {
            running.remove(&run);
        }
    }

    fn signal(&self, run: TaskOwner, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else { return };
        if let Some(entry) = self.lock().get(&run) {
            for group in entry.groups.values() {
                let _already_gone = kill_process_group(*group, signal);
            }
        }
    }

    fn write(&self, run: TaskOwner, stream: Stream, data: &Bytes) {
        let mut running = self.lock();
        let Some(entry) = running.get_mut(&run) else { return };
        let index = usize::from(stream == Stream::Error);
        if let Some(file) = &mut entry.files[index]
            && let Err(error) = file.write_all(&data.0)
        {
            entry.files[index] = None;
            drop(running);
            let text = format!("ERROR: failed to write output: {error}");
            (self.report)(Report::Notice { run, text });
        }
    }

    /// The requested directory, or `/tmp` with a notice, as in Flux's job shell.
    fn working_directory(&self, launch: &Launch) -> PathBuf {
        let Some(wanted) = &launch.directory else { return PathBuf::from("/") };
        let wanted = PathBuf::from(wanted.as_os_str());
        let Err(error) = std::fs::read_dir(&wanted) else { return wanted };
        let text = format!(
            "ERROR: host {}: Could not change dir to {}: {}. Going to /tmp instead",
            self.host,
            wanted.display(),
            task::system_message(&error)
        );
        (self.report)(Report::Notice { run: launch.run, text });
        PathBuf::from("/tmp")
    }

    /// Opens the output files; the error is the system's message.
    fn open_files(&self, launch: &Launch, directory: &Path) -> Result<[Option<File>; 2], String> {
        let [out, error] = &launch.files;
        let open = |name: &Option<String>, truncate: bool| {
            let Some(name) = name else { return Ok(None) };
            // In append mode both streams can share a file.
            let file = OpenOptions::new().create(true).append(true).open(directory.join(name));
            let file = file.and_then(|file| {
                if truncate {
                    file.set_len(0)?;
                }
                Ok(file)
            });
            file.map(Some).map_err(|source| {
                let reason = task::system_message(&source);
                let text = format!("ERROR: output.task: open: {name}: {reason}");
                (self.report)(Report::Notice { run: launch.run, text });
                reason
            })
        };
        Ok([open(out, true)?, open(error, out != error)?])
    }

    /// Creates the job's directory, with the batch script in it if there is one.
    fn create_job_directory(&self, launch: &mut Launch, directory: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(directory)?;
        let Some(script) = launch.script.take() else { return Ok(()) };
        let path = directory.join("script");
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(true).mode(0o700);
        options.open(&path)?.write_all(&script.0)?;
        for word in &mut launch.command {
            if word.0 == b"{script}" {
                *word = Bytes::from(path.as_os_str());
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskOwner, RunningTasks>> {
        // The data is consistent whenever the lock is released, so a poisoned lock can be used.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run_name(run: TaskOwner) -> String {
    match run {
        TaskOwner::Job(id) => format!("0-{id}"),
        TaskOwner::Exec(number) => format!("exec-{number}"),
    }
}
