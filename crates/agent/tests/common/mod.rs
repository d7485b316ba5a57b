//! A cluster of agents on this machine, over sockets, for tests.
//!
//! With `FLUX_ROOT=/prefix` the Flux that is installed there is used. Every
//! process that is started carries a mark in its environment, by which it is
//! found and ended when the test ends, however it ends.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod operator;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_wire::seal::SealKey;
use flux_operator_wire::{BootPlan, BrokerOptions, Ending, FluxHome, Program, Resources};
use rustix::process::{Pid, Signal};

/// How long anything may take. Far more than it needs on a machine with nothing
/// else to do.
pub const LIMIT: Duration = Duration::from_secs(90);

/// What SIGTERM may take: two seconds are promised, the rest is for a machine
/// that is busy.
pub const STOP_LIMIT: Duration = Duration::from_secs(8);

const MARK: &str = "FLUX_OPERATOR_AGENT_TEST";

/// A directory with a plan and secrets, and the agents that were started there.
pub struct Cluster {
    directory: tempfile::TempDir,
    /// The plan; changes count for agents that are started later.
    pub plan: BootPlan,
    /// The key in the certificate, as text that must never be seen.
    pub secret: String,
    /// Variables for agents that are started later.
    pub environment: Vec<(String, String)>,
    /// The `flux` for agents that are started later.
    pub flux: Option<PathBuf>,
    starts: usize,
}

/// One agent. It is ended with everything below it when it is dropped.
pub struct Agent {
    child: Child,
    /// Its standard input, if it was asked for.
    pub input: Option<ChildStdin>,
    mark: String,
    output: PathBuf,
    ending: PathBuf,
    /// Its directory.
    pub root: PathBuf,
}

impl Cluster {
    /// A cluster of this many ranks that runs `program`.
    pub fn new(size: u32, program: Program) -> Cluster {
        // Short, for the sockets in it.
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

    /// A cluster whose `flux` only starts its program, for what is not about Flux.
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

    /// Starts the agent with this index and these words.
    pub fn start_with(&mut self, index: u32, words: &[&str]) -> Agent {
        let plan = self.write_plan();
        let root = self.path().join(index.to_string());
        let ending = self.path().join(format!("ending-{}", self.starts));
        let mut command = self.agent_command();
        command.arg("run").args(["--index", &index.to_string()]);
        command.arg("--plan").arg(plan);
        command.arg("--secrets").arg(self.path().join("secrets"));
        command.arg("--root").arg(&root);
        command.arg("--ending").arg(&ending);
        if let Some(flux) = &self.flux {
            command.arg("--flux").arg(flux);
        }
        command.args(words);
        self.spawn(command, root, ending)
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

    /// A file for each start: another agent may be reading the one before.
    fn write_plan(&self) -> PathBuf {
        let plan = self.path().join(format!("plan-{}.json", self.starts));
        fs::write(&plan, serde_json::to_vec(&self.plan).unwrap()).unwrap();
        plan
    }

    fn agent_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flux-operator-agent"));
        // What cargo sets for tests is not for Flux.
        command.env_remove("LD_LIBRARY_PATH").env_remove("JOB_COMPLETION_INDEX");
        command.envs(self.environment.iter().cloned());
        command
    }

    fn spawn(&mut self, mut command: Command, root: PathBuf, ending: PathBuf) -> Agent {
        let mark = format!("{}-{}", self.path().display(), self.starts);
        let output = self.path().join(format!("output-{}", self.starts));
        self.starts += 1;
        let file = File::create(&output).unwrap();
        let mut child = command
            .env(MARK, &mark)
            .stdin(Stdio::piped())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        Agent { child, input, mark, output, ending, root }
    }
}

impl Agent {
    /// Waits until the agent ends; its exit code.
    pub fn wait(&mut self) -> i32 {
        self.wait_for(LIMIT)
    }

    /// Waits until the agent ends, not longer than `limit`; its exit code.
    pub fn wait_for(&mut self, limit: Duration) -> i32 {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(Instant::now() < deadline, "the agent does not end:\n{}", self.all_output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the agent is running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Tells the agent to stop, and checks that it does with all below it.
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

    /// Kills the agent and everything below it at once, as if its pod were gone.
    pub fn kill(&mut self) {
        // Stopped first, or those that die last would notice that others did.
        for signal in [Signal::STOP, Signal::KILL] {
            for process in self.processes() {
                // It may have ended meanwhile.
                let _ = rustix::process::kill_process(process, signal);
            }
        }
        self.child.wait().unwrap();
        eventually("all processes are gone", || self.processes().is_empty());
    }

    /// What it left behind.
    pub fn ending(&self) -> Ending {
        let text = fs::read_to_string(&self.ending).unwrap();
        Ending::parse(&text).unwrap()
    }

    /// What it and those below it have printed.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap()).into_owned()
    }

    /// What everybody in the cluster has printed.
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

    /// Checks that nothing that was started below the agent is running.
    pub fn assert_nothing_left(&self) {
        eventually("everything below the agent has ended", || self.processes().is_empty());
    }

    /// The process below the agent whose command line has this in it.
    pub fn find(&self, words: &str) -> Option<Pid> {
        self.processes().into_iter().find(|process| {
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
        })
    }

    /// The agent and everything below it, by its mark.
    pub fn processes(&self) -> Vec<Pid> {
        let mark = format!("{MARK}={}\0", self.mark).into_bytes();
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

/// Waits until `happened`.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !happened() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program of words.
pub fn words(words: &[&str]) -> Program {
    Program::Words(words.iter().map(|word| (*word).to_owned()).collect())
}

/// A program for a shell.
pub fn line(line: &str) -> Program {
    Program::Line { line: line.to_owned(), words: Vec::new() }
}

/// The key of reports in tests.
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

/// A port that nobody uses now.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}
