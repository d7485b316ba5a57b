//! A cluster of agents on this machine, over sockets, for tests.
//!
//! With `FLUX_ROOT=/prefix` the Flux installed there is used. Every process that
//! is started has a marker in its environment, by which it is found and killed
//! when the test finishes, whatever the result.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod operator;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_wire::seal::SealKey;
use flux_operator_wire::{BootPlan, BrokerOptions, FluxHome, Program, Resources, Termination};
use rustix::process::{Pid, Signal};

/// How long anything may take: far more than needed on an idle machine.
pub const LIMIT: Duration = Duration::from_secs(90);

/// How long stopping may take: the agent guarantees two seconds, the rest is for a busy machine.
pub const STOP_LIMIT: Duration = Duration::from_secs(8);

const MARKER: &str = "FLUX_OPERATOR_AGENT_TEST";

/// A directory with a plan and secrets, and the agents that were started there.
pub struct Cluster {
    directory: tempfile::TempDir,
    /// The plan; changes affect agents that are started later.
    pub plan: BootPlan,
    /// The key in the certificate, as text that must never be printed.
    pub secret: String,
    /// Variables for agents that are started later.
    pub environment: Vec<(String, String)>,
    /// The `flux` for agents that are started later.
    pub flux: Option<PathBuf>,
    starts: usize,
}

/// One agent. It is killed with all its descendants when it is dropped.
pub struct Agent {
    child: Child,
    /// Its standard input, until it is closed.
    pub input: Option<ChildStdin>,
    marker: String,
    output: PathBuf,
    termination: PathBuf,
    /// Its directory.
    pub root: PathBuf,
}

impl Cluster {
    /// A cluster of this many ranks that runs `program`.
    pub fn new(size: u32, program: Program) -> Cluster {
        // A short path, for the sockets in it.
        let directory = tempfile::Builder::new().prefix("fa").tempdir_in("/tmp").unwrap();
        let path = directory.path().display().to_string();
        let certificate =
            Certificate::new(SecretKey::from_os().unwrap(), Metadata::new("t").unwrap());
        let text = certificate.to_secret_text();
        let secrets = directory.path().join("secrets");
        fs::create_dir(&secrets).unwrap();
        fs::write(secrets.join("curve.cert"), text.as_bytes()).unwrap();
        fs::write(secrets.join("report.key"), report_key().to_secret_text().as_bytes()).unwrap();
        let secret = text.split("secret-key = \"").nth(1).unwrap()[..40].to_owned();
        let last = size - 1;
        let plan = BootPlan {
            cluster: "t".into(),
            uid: String::new(),
            hosts: format!("t-[0-{last}]").parse().unwrap(),
            first_rank: 0,
            join: None,
            quorum: size,
            lead: format!("ipc://{path}/t-0"),
            bind: format!("ipc://{path}/%h"),
            connect: format!("ipc://{path}/%h"),
            port: 8050,
            broker: BrokerOptions {
                topology: "kary:256".into(),
                connect_timeout: "5s".into(),
                log_level: 6,
                socket: true,
                ..BrokerOptions::default()
            },
            config: Default::default(),
            verbatim_config: None,
            resources: Resources { cores: Some(2), ..Resources::default() },
            host_groups: Vec::new(),
            flux: FluxHome::Path,
            program,
            hooks: Default::default(),
            sidecars: Vec::new(),
            logging: Default::default(),
            restart_limit: 0,
            grace_seconds: 1,
            complete_workers: false,
            python_path: String::new(),
            simple_scheduler: false,
            environment: Default::default(),
            output_directory: format!("{path}/out"),
            ready_port: 0,
            report: None,
        };
        let flux = Some(flux());
        Cluster { directory, plan, secret, environment: Vec::new(), flux, starts: 0 }
    }

    /// A cluster whose `flux` only starts its program, for tests that do not need Flux.
    pub fn without_flux(program: Program) -> Cluster {
        let mut cluster = Cluster::new(1, program);
        let script = "#!/bin/sh\nwhile case $1 in broker|-*) true;; *) false;; esac; do shift; done\n\
                      \"$@\"\n";
        cluster.flux = Some(cluster.script("flux", script));
        cluster
    }

    /// The directory of the whole cluster.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes an executable file.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Starts the agent with this index.
    pub fn start(&mut self, index: u32) -> Agent {
        self.start_with(index, &[])
    }

    /// Starts all agents, the lead first.
    pub fn start_all(&mut self) -> Vec<Agent> {
        let size = u32::try_from(self.plan.hosts.len()).unwrap();
        (0..size).map(|index| self.start(index)).collect()
    }

    /// Starts the agent with this index and these additional arguments.
    pub fn start_with(&mut self, index: u32, words: &[&str]) -> Agent {
        let plan = self.write_plan();
        let root = self.path().join(index.to_string());
        let termination = self.path().join(format!("ending-{}", self.starts));
        let mut command = self.agent_command();
        command.arg("run").args(["--index", &index.to_string()]);
        command.arg("--plan").arg(plan);
        command.arg("--secrets").arg(self.path().join("secrets"));
        command.arg("--root").arg(&root);
        command.arg("--ending").arg(&termination);
        if let Some(flux) = &self.flux {
            command.arg("--flux").arg(flux);
        }
        command.args(words);
        self.spawn(command, root, termination)
    }

    /// Starts the sidecar of this name beside the agent with this index.
    pub fn start_sidecar(&mut self, index: u32, name: &str) -> Agent {
        let plan = self.write_plan();
        let root = self.path().join(index.to_string());
        let mut command = self.agent_command();
        command.args(["sidecar", "--name", name]);
        command.arg("--plan").arg(plan).arg("--root").arg(&root);
        self.spawn(command, root, PathBuf::new())
    }

    /// Writes a new file for each start: another agent may be reading the previous one.
    fn write_plan(&self) -> PathBuf {
        let plan = self.path().join(format!("plan-{}.json", self.starts));
        fs::write(&plan, serde_json::to_vec(&self.plan).unwrap()).unwrap();
        plan
    }

    fn agent_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flux-operator-agent"));
        // Cargo sets this for tests; it must not affect Flux.
        command.env_remove("LD_LIBRARY_PATH").env_remove("JOB_COMPLETION_INDEX");
        command.envs(self.environment.iter().cloned());
        command
    }

    fn spawn(&mut self, mut command: Command, root: PathBuf, termination: PathBuf) -> Agent {
        let mark = format!("{}-{}", self.path().display(), self.starts);
        let output = self.path().join(format!("output-{}", self.starts));
        self.starts += 1;
        let file = File::create(&output).unwrap();
        let mut child = command
            .env(MARKER, &mark)
            .stdin(Stdio::piped())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        Agent { child, input, marker: mark, output, termination, root }
    }
}

impl Agent {
    /// Waits until the agent exits; returns its exit code.
    pub fn wait(&mut self) -> i32 {
        self.wait_for(LIMIT)
    }

    /// Waits until the agent exits, at most for `limit`; returns its exit code.
    pub fn wait_for(&mut self, limit: Duration) -> i32 {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(Instant::now() < deadline, "the agent does not exit:\n{}", self.all_output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the agent is running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Stops the agent, and checks that it exits with all its descendants.
    pub fn stop(&mut self) -> i32 {
        self.signal(Signal::TERM);
        let code = self.wait_for(STOP_LIMIT);
        self.assert_nothing_left();
        code
    }

    /// Sends a signal to the agent itself.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills the agent and all its descendants at once, as if its pod were deleted by force.
    pub fn kill(&mut self) {
        // Paused first, or those that are killed last would react to the death of others: a broker
        // that is not paused tells the workers that the instance has shut down. One that was forked
        // while the others were listed is found the next time.
        let mut paused = Vec::new();
        loop {
            let mut others = self.processes();
            others.retain(|process| !paused.contains(process));
            if others.is_empty() {
                break;
            }
            // Each may have exited meanwhile.
            for process in others {
                let _ = rustix::process::kill_process(process, Signal::STOP);
                paused.push(process);
            }
        }
        // Children first: if its parent exits, the kernel resumes a paused process.
        for process in paused.into_iter().rev() {
            let _ = rustix::process::kill_process(process, Signal::KILL);
        }
        self.child.wait().unwrap();
        eventually("all processes have exited", || self.processes().is_empty());
    }

    /// Its termination message.
    pub fn termination(&self) -> Termination {
        let text = fs::read_to_string(&self.termination).unwrap();
        Termination::parse(&text).unwrap()
    }

    /// The output of the agent and its descendants.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap()).into_owned()
    }

    /// The output of all agents of the cluster.
    fn all_output(&self) -> String {
        let entries = fs::read_dir(self.output.parent().unwrap()).unwrap().flatten();
        let outputs =
            entries.filter(|entry| entry.file_name().to_string_lossy().contains("output-"));
        let texts = outputs.map(|entry| {
            let text = fs::read(entry.path()).unwrap_or_default();
            format!("{:?}:\n{}", entry.file_name(), String::from_utf8_lossy(&text))
        });
        texts.collect()
    }

    /// Checks that no descendant of the agent is running.
    pub fn assert_nothing_left(&self) {
        eventually("all descendants of the agent have exited", || self.processes().is_empty());
    }

    /// The descendant of the agent whose command line contains this text.
    pub fn find(&self, text: &str) -> Option<Pid> {
        self.processes().into_iter().find(|process| {
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").contains(text)
        })
    }

    /// The agent and its descendants, found by the marker.
    pub fn processes(&self) -> Vec<Pid> {
        let mark = format!("{MARKER}={}\0", self.marker).into_bytes();
        let names = fs::read_dir("/proc").unwrap().flatten();
        let processes = names.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        processes
            .filter(|process| {
                let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
                variables.windows(mark.len()).any(|window| window == mark)
            })
            .filter_map(Pid::from_raw)
            .collect()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        for _ in 0..100 {
            let processes = self.processes();
            for process in &processes {
                let _ = rustix::process::kill_process(*process, Signal::KILL);
            }
            let _ = self.child.try_wait();
            if processes.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Waits until `happened` returns true.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !happened() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program with its arguments.
pub fn argv(words: &[&str]) -> Program {
    Program::Words(words.iter().map(|word| (*word).to_owned()).collect())
}

/// A line for a shell.
pub fn shell_line(line: &str) -> Program {
    Program::Line { line: line.to_owned(), words: Vec::new() }
}

/// The report key in tests.
pub fn report_key() -> SealKey {
    SealKey::from_bytes([42; 32])
}

/// The Flux to test with.
pub fn flux() -> PathBuf {
    match std::env::var_os("FLUX_ROOT") {
        Some(root) => PathBuf::from(root).join("bin/flux"),
        None => stand_in(),
    }
}

/// The stand-in that cargo builds with the tests, from `examples/flux.rs`.
fn stand_in() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(2).unwrap().join("examples/flux")
}

/// A port that is free now.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}
