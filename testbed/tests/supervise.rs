//! The life of the supervisor, with shell scripts instead of Kubernetes' programs that exit or
//! never become ready. Needs no root and no Go programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A base directory whose `etcd` is the given script. Removed after the test.
///
/// Only one test at a time: a script that is being written cannot be executed, and every process
/// that another test starts has it open for a moment.
struct TestDirectory {
    base: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl TestDirectory {
    fn new(name: &str, etcd: &str) -> TestDirectory {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let base = std::env::temp_dir().join(format!("testbed-{name}-{}", std::process::id()));
        for directory in ["bin", "home/log", "sockets"] {
            fs::create_dir_all(base.join(directory)).expect("the directory can be created");
        }
        let program = base.join("bin/etcd");
        fs::write(&program, format!("#!/bin/sh\n{etcd}\n")).expect("the script can be written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
            .expect("the script can be made executable");
        TestDirectory { base: base.canonicalize().expect("the directory exists"), _turn: turn }
    }

    fn supervise(&self) -> Child {
        Command::new(env!("CARGO_BIN_EXE_testbed"))
            .arg("supervise")
            .arg("--base")
            .arg(&self.base)
            .arg("--home")
            .arg(self.base.join("home"))
            .arg("--sockets")
            .arg(self.base.join("sockets"))
            .args(["--slot", "15", "--level", "control-plane"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program under test starts")
    }

    fn state(&self) -> Value {
        let text = fs::read(self.base.join("home/state.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Waits for the pid that the script writes.
    fn wait_for_etcd(&self) -> String {
        let file = self.base.join("pid");
        let mut pid = String::new();
        eventually("etcd starts", || {
            pid = fs::read_to_string(&file).unwrap_or_default();
            pid.ends_with('\n')
        });
        pid.trim().to_owned()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        // The test may have removed it already.
        let _gone = fs::remove_dir_all(&self.base);
    }
}

/// A script that writes its pid and then does nothing for long.
const IDLE: &str = r#"echo $$ > "$HOME/../pid"; exec sleep 600"#;

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < limit, "timed out after a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process is running; a zombie is not.
fn is_running(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

#[test]
fn a_component_that_exits_at_once_is_reported_with_its_log() {
    let directory = TestDirectory::new("ends", "echo no luck today; exit 3");
    let mut supervisor = directory.supervise();
    assert!(!supervisor.wait().unwrap().success());
    let failed = &directory.state()["phase"]["failed"];
    assert_eq!(failed["message"], "etcd exited (exit status 3)");
    let log = fs::read_to_string(failed["log"].as_str().unwrap()).unwrap();
    assert_eq!(log, "no luck today\n");
    assert!(!directory.base.join("sockets").exists());
}

#[test]
fn a_component_that_cannot_start_is_named() {
    let scene = TestDirectory::new("missing", "");
    fs::remove_file(scene.base.join("bin/etcd")).unwrap();
    assert!(!scene.supervise().wait().unwrap().success());
    let message = scene.state()["phase"]["failed"]["message"].to_string();
    assert!(message.contains("etcd"), "{message}");
}

#[test]
fn a_supervisor_that_is_asked_to_stop_stops_everything() {
    let scene = TestDirectory::new("asked", IDLE);
    let mut supervisor = scene.supervise();
    let etcd = scene.wait_for_etcd();
    assert!(is_running(&etcd));
    let kill = Command::new("kill").arg(supervisor.id().to_string()).status().unwrap();
    assert!(kill.success());
    assert!(supervisor.wait().unwrap().success());
    assert!(!is_running(&etcd));
    assert_eq!(scene.state()["phase"], "stopped");
}

#[test]
fn a_killed_supervisor_leaves_nothing_running() {
    let scene = TestDirectory::new("killed", IDLE);
    let mut supervisor = scene.supervise();
    let etcd = scene.wait_for_etcd();
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    eventually("etcd exits", || !is_running(&etcd));
}

#[test]
fn a_supervisor_without_its_directory_stops() {
    let scene = TestDirectory::new("gone", IDLE);
    let mut supervisor = scene.supervise();
    let etcd = scene.wait_for_etcd();
    fs::rename(scene.base.join("home"), scene.base.join("elsewhere")).unwrap();
    eventually("the supervisor exits", || supervisor.try_wait().unwrap().is_some());
    assert!(!is_running(&etcd));
}
