//! The directories of a test's clusters, and the programs that run them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The directories of one test.
pub struct TestHome {
    pub folder: TempDir,
}

impl TestHome {
    pub fn new() -> TestHome {
        let folder = tempfile::Builder::new().prefix("fo").tempdir_in("/tmp").unwrap();
        TestHome { folder }
    }

    pub fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flux-operator"));
        command
            .args(arguments)
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
            .env("XDG_RUNTIME_DIR", self.folder.path().join("run"))
            .stdin(Stdio::null());
        command
    }

    pub fn manifest(&self, name: &str, spec: Value) -> String {
        let mut spec = spec;
        if spec["containers"].is_null() {
            spec["containers"] = json!([{}]);
        }
        let manifest = json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "MiniCluster",
            "metadata": { "name": name },
            "spec": spec,
        });
        self.file(&format!("{name}.yaml"), &manifest.to_string())
    }

    pub fn file(&self, name: &str, content: &str) -> String {
        let file = self.folder.path().join(name);
        std::fs::write(&file, content).unwrap();
        file.to_str().unwrap().to_owned()
    }

    pub fn run(&self, spec: Value) -> Output {
        let manifest = self.manifest("run", spec);
        self.program(&["local", "run", "-f", &manifest]).output().unwrap()
    }

    /// A manifest with these objects.
    pub fn objects(&self, objects: &[Value]) -> String {
        let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
        self.file("objects.yaml", &texts.join("\n---\n"))
    }

    pub fn run_objects(&self, objects: &[Value]) -> Output {
        let file = self.objects(objects);
        self.program(&["local", "run", "-f", &file]).output().unwrap()
    }

    pub fn start(&self, manifest: &str) -> TestSupervisor {
        let mut command = self.program(&["local", "run", "-f", manifest]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let (sender, errors) = channel();
        // Reads everything, so that the supervisor never blocks.
        std::thread::spawn(move || lines.for_each(|line| drop(sender.send(line))));
        TestSupervisor { child, errors }
    }

    /// The processes that belong to this home.
    pub fn processes(&self) -> Vec<u32> {
        let marker = self.folder.path().to_str().unwrap().as_bytes().to_vec();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|process| *process != std::process::id())
            .filter(|process| {
                let environment =
                    std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
                let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
                [environment, words]
                    .iter()
                    .any(|bytes| bytes.windows(marker.len()).any(|w| w == marker))
            })
            .collect()
    }

    /// Waits until neither files nor processes are left.
    pub fn wait_until_nothing_left(&self) {
        self.wait_until_nothing_left_with(|| ());
    }

    /// The same, calling `before` before each check.
    pub fn wait_until_nothing_left_with(&self, before: impl Fn()) {
        let left = || {
            let files = ["state/flux-operator/local", "run/flux-operator"]
                .into_iter()
                .flat_map(|folder| {
                    std::fs::read_dir(self.folder.path().join(folder)).into_iter().flatten()
                })
                .count();
            (files, self.processes())
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            before();
            match left() {
                (0, processes) if processes.is_empty() => return,
                left => assert!(std::time::Instant::now() < deadline, "left: {left:?}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// A running supervisor, which is killed when the test ends.
pub struct TestSupervisor {
    pub child: Child,
    errors: Receiver<String>,
}

impl TestSupervisor {
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Waits for a line with these words, and returns the line.
    pub fn wait_for(&mut self, words: &str) -> String {
        let found = self.errors.iter().find(|line| line.contains(words));
        found.unwrap_or_else(|| panic!("it never printed {words:?}"))
    }

    pub fn stop(&mut self) {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for TestSupervisor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn output(result: &Output) -> String {
    String::from_utf8(result.stdout.clone()).unwrap()
}

pub fn errors(result: &Output) -> String {
    String::from_utf8(result.stderr.clone()).unwrap()
}
