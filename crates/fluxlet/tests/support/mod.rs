//! An instance of four slots fs-[0-3] on this machine, as processes: fluxlet, or the Flux that is
//! installed in `FLUX_ROOT`. Everything is cleaned up when it is dropped, even if a test fails.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// How long anything may take: test machines are slow, but a test that hangs must fail.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// Helpers for shell lines: `running [OPTION]..` submits a job and returns when its task runs.
const HELPERS: &str = "running() { rm -f started; \
    flux submit \"$@\" sh -c 'touch started; exec sleep 300'; \
    until test -e started; do sleep 0.01; done; }";

/// Which Flux the tests of a file run. Each file sets it in its constant `UNDER_TEST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderTest {
    /// Always fluxlet: the tests are about fluxlet itself.
    Fluxlet,
    /// The Flux that is installed under `FLUX_ROOT`; fluxlet without it.
    AnyFlux,
}

/// The program under test.
pub fn flux() -> PathBuf {
    match std::env::var_os("FLUX_ROOT").filter(|root| !root.is_empty()) {
        Some(root) if crate::UNDER_TEST == UnderTest::AnyFlux => Path::new(&root).join("bin/flux"),
        _ => fluxlet(),
    }
}

/// fluxlet under the name `flux`, which scripts use.
fn fluxlet() -> PathBuf {
    static LINK: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bin");
        fs::create_dir_all(&folder).unwrap();
        // Other test programs create the same link concurrently.
        let own = folder.join(format!("flux-{}", std::process::id()));
        symlink(env!("CARGO_BIN_EXE_fluxlet"), &own).unwrap();
        fs::rename(&own, folder.join("flux")).unwrap();
        folder.join("flux")
    };
    LINK.get_or_init(make).clone()
}

/// A directory with a short path, because the paths of sockets are limited.
pub fn directory() -> TempDir {
    tempfile::Builder::new().prefix("fx").rand_bytes(5).tempdir_in("/tmp").unwrap()
}

/// A command without the environment of an enclosing instance.
pub fn command() -> Command {
    let program = flux();
    let mut command = Command::new(&program);
    let own = program.parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let parts = [own].into_iter().chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(parts).unwrap());
    for name in ["FLUX_URI", "FLUX_JOB_ID", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"] {
        command.env_remove(name);
    }
    command.env("SHELL", "/bin/bash").env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command
}

/// A process that is killed when this is dropped.
pub struct Process(pub Child);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self(command.process_group(0).spawn().unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        let _already_exited = rustix::process::kill_process(pid, signal);
    }

    /// Waits until the process exits.
    pub fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + TEST_TIMEOUT;
        while Instant::now() < until {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("process {} does not exit", self.0.id());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its process group too, in case a killed broker has left processes behind.
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            let _already_gone = rustix::process::kill_process(pid, Signal::KILL);
        }
        let _already_gone = rustix::process::kill_process_group(pid, Signal::KILL);
        let _already_gone = self.0.wait();
    }
}

/// An instance.
pub struct Cluster {
    pub directory: TempDir,
    pub brokers: Vec<Option<Process>>,
    hosts: u32,
    endpoint: String,
}

impl Cluster {
    /// `hosts` slots of two cores. No broker is started yet.
    pub fn new(hosts: u32) -> Self {
        let directory = directory();
        let endpoint = format!("ipc://{}", directory.path().join("tree").display());
        Self::with_endpoint(hosts, directory, endpoint)
    }

    /// The same with the lead on a TCP port of the loopback interface.
    pub fn on_tcp(hosts: u32) -> Self {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", probe.local_addr().unwrap());
        Self::with_endpoint(hosts, directory(), endpoint)
    }

    fn with_endpoint(hosts: u32, directory: TempDir, endpoint: String) -> Self {
        let cluster =
            Self { directory, brokers: (0..hosts).map(|_| None).collect(), hosts, endpoint };
        let made = command().args(["keygen", "--name=test"]).arg(cluster.path("cert")).status();
        assert!(made.unwrap().success());
        cluster.write_config("config.toml", "cert");
        fs::create_dir(cluster.path("work")).unwrap();
        cluster
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The host and port of the lead, if it uses TCP.
    pub fn address(&self) -> &str {
        self.endpoint.strip_prefix("tcp://").unwrap()
    }

    /// Writes a configuration with this certificate.
    pub fn write_config(&self, name: &str, certificate: &str) {
        let certificate = self.path(certificate);
        let last = self.hosts - 1;
        let others = self.path("tree-%h");
        let text = format!(
            "[bootstrap]\ncurve_cert = {certificate:?}\n\
             [[bootstrap.hosts]]\nhost = \"fs-0\"\nbind = {endpoint:?}\nconnect = {endpoint:?}\n\
             [[bootstrap.hosts]]\nhost = \"fs-[0-{last}]\"\nbind = \"ipc://{others}\"\n\
             connect = \"ipc://{others}\"\n\
             [resource]\nnoverify = true\n\
             [[resource.config]]\nhosts = \"fs-[0-{last}]\"\ncores = \"0-1\"\n",
            endpoint = self.endpoint,
            others = others.display(),
        );
        fs::write(self.path(name), text).unwrap();
    }

    /// The command of the broker of a slot.
    pub fn broker(&self, rank: u32, config: &str) -> Command {
        let mut command = command();
        let rundir = self.path(&format!("run{rank}"));
        fs::create_dir_all(&rundir).unwrap();
        let log = self.path(&format!("log{rank}"));
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        command
            .current_dir(self.path("work"))
            .arg("broker")
            .arg(format!("--config-path={}", self.path(config).display()))
            .arg(format!("-Shostname=fs-{rank}"))
            .arg(format!("-Srundir={}", rundir.display()))
            .arg("-Stbon.topo=kary:0")
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }

    /// Starts the lead, which runs until it is stopped.
    pub fn start_lead(&mut self, quorum: u32) {
        let mut command = self.broker(0, "config.toml");
        command.arg(format!("-Sbroker.quorum={quorum}")).arg("-Sbroker.rc2_none");
        self.brokers[0] = Some(Process::start(&mut command));
    }

    pub fn start_worker(&mut self, rank: u32) {
        let mut command = self.broker(rank, "config.toml");
        self.brokers[rank as usize] = Some(Process::start(&mut command));
    }

    /// Starts this many brokers including the lead, and waits until all of them are online.
    pub fn start(&mut self, brokers: u32) {
        self.start_lead(brokers);
        (1..brokers).for_each(|rank| self.start_worker(rank));
        (0..brokers).for_each(|rank| self.wait_for(rank, true));
    }

    /// Waits until a broker is online, or offline.
    pub fn wait_for(&self, rank: u32, online: bool) {
        let wanted = |line: &str| {
            let mut words = line.split_whitespace();
            words.any(|word| word == rank.to_string()) && line.contains(&format!("fs-{rank}: "))
        };
        let up = ["full", "partial", "degraded"];
        self.wait_until(&format!("fs-{rank} online: {online}"), || {
            let output = self.flux(&["overlay", "status"]);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let status =
                text.lines().find(|line| wanted(line)).and_then(|line| line.split(": ").nth(1));
            status.is_some_and(|status| up.contains(&status) == online)
        });
        // In a real Flux the scheduler is informed a little later.
        self.wait_until("the scheduler knows", || {
            let output = self.flux(&["resource", "list", "-s", "down", "-no", "{ranks}"]);
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let down: flux_operator_flux::IdSet = text.parse().unwrap_or_default();
            output.status.success() && down.contains(rank) != online
        });
    }

    /// Polls until `condition` returns true.
    pub fn wait_until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let until = Instant::now() + TEST_TIMEOUT;
        while Instant::now() < until {
            if condition() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("timed out waiting until {what}\n{}", self.logs());
    }

    /// The logs of all brokers.
    pub fn logs(&self) -> String {
        let log = |rank| {
            let text = fs::read_to_string(self.path(&format!("log{rank}"))).unwrap_or_default();
            format!("--- fs-{rank}\n{text}")
        };
        (0..self.hosts).map(log).collect()
    }

    pub fn uri(&self, rank: u32) -> String {
        format!("local://{}/local-{rank}", self.path(&format!("run{rank}")).display())
    }

    /// Runs a `flux` command against the lead.
    pub fn flux(&self, arguments: &[&str]) -> Output {
        let mut command = command();
        command.args(arguments).env("FLUX_URI", self.uri(0)).current_dir(self.path("work"));
        output(&mut command)
    }

    /// The standard output of a command that must succeed.
    pub fn text(&self, arguments: &[&str]) -> String {
        let output = self.flux(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}\n{}", self.logs());
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Runs a shell line against the lead.
    pub fn shell(&self, line: &str) -> Output {
        let path = command();
        let path = path.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap();
        let mut shell = Command::new("/bin/bash");
        shell
            .arg("-c")
            .arg(format!("{HELPERS}\n{line}"))
            .env("PATH", path)
            .env("FLUX_URI", self.uri(0));
        shell.env("LC_ALL", "C.UTF-8").current_dir(self.path("work")).stdin(Stdio::null());
        output(&mut shell)
    }

    pub fn kill(&mut self, rank: u32, signal: Signal) -> ExitStatus {
        let mut process = self.brokers[rank as usize].take().unwrap();
        process.signal(signal);
        process.wait()
    }
}

impl Drop for Cluster {
    /// Stops the lead first, so that a real Flux can clean up.
    fn drop(&mut self) {
        if let Some(Some(lead)) = self.brokers.first_mut() {
            lead.signal(Signal::TERM);
            let until = Instant::now() + Duration::from_secs(10);
            while lead.0.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Runs a command with a timeout.
pub fn output(command: &mut Command) -> Output {
    let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut out = process.0.stdout.take().unwrap();
    let mut error = process.0.stderr.take().unwrap();
    let read_error = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        error.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let read_out = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let status = process.wait();
    Output { status, stdout: read_out.join().unwrap(), stderr: read_error.join().unwrap() }
}

/// The exit code as a shell would have it.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Whether any process has `needle` in its command line.
pub fn is_running(needle: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).any(|line| line.contains(needle))
}

/// The path of a fixture next to the tests.
pub fn fixture_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name)
}
