//! Tests with a real Flux: with our certificate and configuration, brokers start
//! and trust each other; a job runs in another instance as in its own. Needs `FLUX_ROOT`, an
//! installed prefix.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use flux_operator_flux::broker_config::{ResourceEntry, ResourceTable};
use flux_operator_flux::{
    Bootstrap, BrokerConfig, Certificate, HostEntry, HostList, JobRun, Metadata, SecretKey,
    TaskCount,
};
use serde_json::Value;

#[test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-unit"]
fn brokers_of_a_real_flux_join_with_our_certificate() {
    let flux = Flux::find();
    let folder = tempfile::tempdir().unwrap();
    let certificate = new_certificate(folder.path(), "curve.cert");
    let config = write_config(folder.path(), "shared", &certificate);

    let worker = flux.start(&config, "fs-1", &[]);
    let lead = flux.start(&config, "fs-0", &["-Sbroker.quorum=2", "flux", "run", "-N2", "true"]);
    let lead = wait_with_output(lead);
    assert!(lead.status.success(), "{}", String::from_utf8_lossy(&lead.stderr));
    wait_with_output(worker);
}

#[test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-unit"]
fn a_broker_with_another_certificate_does_not_join() {
    let flux = Flux::find();
    let folder = tempfile::tempdir().unwrap();
    let ours = write_config(folder.path(), "ours", &new_certificate(folder.path(), "ours.cert"));
    let theirs =
        write_config(folder.path(), "theirs", &new_certificate(folder.path(), "theirs.cert"));

    let mut intruder = flux.start(&theirs, "fs-1", &[]);
    let wait = ["-Sbroker.quorum=2", "-Sbroker.quorum-warn=2s", "true"];
    let mut lead = flux.start(&ours, "fs-0", &wait);
    // If the other broker joins after all, the lead exits and its output ends.
    let mut lines = BufReader::new(lead.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waiting = lines.find(|line| line.contains("quorum delayed: waiting for fs-1"));
    for broker in [&mut intruder, &mut lead] {
        broker.kill().unwrap();
        broker.wait().unwrap();
    }
    assert!(waiting.is_some(), "the lead exited without waiting for fs-1");
}

/// Writes what it was started with to files whose names begin with `$OUT`. Its arguments and its
/// environment are those at its start, as the kernel has them.
const WRITE_START: &str = r#"
cat /proc/$$/cmdline >"$OUT.argv"
cat /proc/$$/environ >"$OUT.environ"
pwd -P >"$OUT.cwd"
exit 7
"#;

/// Submits a job with the remaining arguments, waits for it and prints its jobspec.
const SUBMIT: &str = r#"
id=$("$0" submit "$@") && "$0" job wait-event "$id" clean >/dev/null &&
"$0" job info --original "$id" jobspec
"#;

/// Runs a jobspec, with the job's output and exit code.
const RUN: &str = r#"id=$("$0" job submit "$1") && exec "$0" job attach "$id""#;

#[test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-unit"]
fn a_job_runs_in_another_instance_as_in_its_own() {
    let flux = Flux::find();
    let folder = tempfile::tempdir().unwrap();
    let cwd = folder.path().join("wörk 'dir' \"$HOME\"\n{{id}}");
    std::fs::create_dir(&cwd).unwrap();
    let out = folder.path().join("started");
    let arguments = [
        "",
        " ",
        "it's \"quoted\"",
        "back\\slash\\",
        "$HOME $(id) `id` ${x}",
        "two\nlines\n",
        "\ttab\u{1}",
        "-n4",
        "--",
        "--env=A=b",
        "*",
        "日本 🦀",
        // Templates, if they are known; these are alike in both instances.
        "{{name}}-{{size}}",
        "{{nosuch}} {{",
    ];
    let variables = [
        ("OUT", out.to_str().unwrap()),
        ("QUOTED", "it's \"quoted\" $HOME `id` \\ \n end"),
        ("EMPTY", ""),
        ("TEMPLATE", "{{id}}"),
        ("UNICODE", "日本"),
        ("FLUX_JOB_CC", "3"),
        ("FLUX_CONNECTOR_PATH", "/nowhere"),
    ];

    let mut home = flux.start_instance(&cwd, SUBMIT);
    home.envs(variables).args(["-N1", "-n1", "-t5m", "--env=EXPANDED={{ntasks}} $x", "--"]);
    home.args(["sh", "-c", WRITE_START, "sh"]).args(arguments);
    let home = run(home);
    let expected = Started::take(&out);
    assert_eq!(expected.argv[4..16], arguments[..12]);
    assert_eq!(expected.argv[16..], ["sh-1", "{{nosuch}} {{"]);
    assert_eq!(expected.cwd, format!("{}\n", cwd.to_str().unwrap()));

    let job = JobRun::parse(&String::from_utf8(home.stdout).unwrap()).unwrap();
    assert_eq!((job.tasks, job.duration), (TaskCount::PerSlot, 300.0));
    for (name, value) in variables.iter().take(6) {
        assert_eq!(job.environment.get(name), Some(*value), "{name}");
    }
    let jobspec = folder.path().join("jobspec.json");
    std::fs::write(&jobspec, job.to_jobspec()).unwrap();
    let mut away = flux.start_instance(folder.path(), RUN);
    away.env("OTHER", "x").env("QUOTED", "other").arg(&jobspec);
    let away = run(away);
    let started = Started::take(&out);
    assert_eq!(away.status.code(), Some(7), "{}", String::from_utf8_lossy(&away.stderr));
    assert_eq!((&started.argv, &started.cwd), (&expected.argv, &expected.cwd));
    assert_eq!(started.environment["EXPANDED"], "1 $x");

    // Apart from what Flux and its shell set, the environments are equal, also in what they lack.
    let differing = started.differing(&expected);
    for name in &differing {
        assert!(name.starts_with("FLUX_") || name.starts_with("OMPI_MCA_"), "{differing:?}");
    }
    assert!(!differing.contains("FLUX_JOB_CC") && !differing.contains("FLUX_TASK_RANK"));
    assert!(!started.environment.contains_key("FLUX_CONNECTOR_PATH"));
    assert!(job.environment.iter().all(|(name, value)| started.environment[name] == value));
}

#[test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-unit"]
fn a_batch_script_runs_in_another_instance() {
    let flux = Flux::find();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.sh");
    std::fs::write(&script, "#!/bin/sh\nflux run echo \"$1\" && exit 7\n").unwrap();
    let mut batch = flux.command(&["batch", "--dry-run", "-n1", "--output=batch.{{name}}.out"]);
    batch.current_dir(folder.path()).args(["script.sh", "it's \"here\""]);
    let batch = run(batch);
    std::fs::remove_file(&script).unwrap();

    let job = JobRun::parse(&String::from_utf8(batch.stdout).unwrap()).unwrap();
    let jobspec = folder.path().join("jobspec.json");
    std::fs::write(&jobspec, job.to_jobspec()).unwrap();
    let mut away = flux.start_instance(Path::new("/"), RUN);
    away.arg(&jobspec);
    let away = run(away);
    assert_eq!(away.status.code(), Some(7), "{}", String::from_utf8_lossy(&away.stderr));
    let output = std::fs::read_to_string(folder.path().join("batch.script.sh.out")).unwrap();
    assert!(output.lines().any(|line| line == "it's \"here\""), "{output}");
}

#[test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-unit"]
fn every_form_of_request_is_accepted_again() {
    let flux = Flux::find();
    let folder = tempfile::tempdir().unwrap();
    let mut accept =
        flux.start_instance(folder.path(), r#"for file; do "$0" job submit -u0 "$file"; done"#);
    let forms: [(&[&str], Option<u32>); 8] = [
        (&["-n3", "-c2", "-g1"], None),
        (&["-N2"], Some(2)),
        (&["-N2", "-n5", "-x"], Some(2)),
        (&["-N2", "-n6", "-t90s"], Some(2)),
        (&["--cores=4", "--tasks-per-core=2"], None),
        (&["-N2", "--cores=4", "--tasks-per-core=2"], Some(2)),
        (&["-N2", "--tasks-per-node=3", "--gpus-per-node=1"], Some(2)),
        (&["-N2", "--tasks-per-core=1"], Some(2)),
    ];
    for (index, (options, nodes)) in forms.into_iter().enumerate() {
        let mut submit = flux.command(&["submit", "--dry-run", "-u", "--queue=batch"]);
        submit.args(["--requires=fast", "--dependency=afterok:ƒ2"]).args(options).arg("true");
        let submit = run(submit);
        let submitted = String::from_utf8(submit.stdout).unwrap();
        let job = JobRun::parse(&submitted).unwrap();
        let [submitted, printed] = [submitted, job.to_jobspec()]
            .map(|jobspec| serde_json::from_str::<Value>(&jobspec).unwrap());
        for part in ["/resources", "/tasks", "/attributes/system/shell"] {
            assert_eq!(printed.pointer(part), submitted.pointer(part), "{options:?}");
        }
        assert_eq!(job.resources.nodes.map(|nodes| nodes.get()), nodes, "{options:?}");
        assert_eq!(job.tasks == TaskCount::PerSlot, !options.contains(&"-n5"), "{options:?}");
        assert_eq!(
            job.resources.is_exclusive,
            !options.iter().any(|option| { ["-n3", "-n6", "--cores=4"].contains(option) })
        );
        let file = folder.path().join(index.to_string());
        std::fs::write(&file, job.to_jobspec()).unwrap();
        accept.arg(file);
    }
    let accepted = run(accept);
    let ids = String::from_utf8(accepted.stdout).unwrap();
    let errors = String::from_utf8_lossy(&accepted.stderr).into_owned();
    assert_eq!(ids.lines().count(), forms.len(), "{errors}");
}

/// What a program was started with.
struct Started {
    argv: Vec<String>,
    environment: BTreeMap<String, String>,
    cwd: String,
}

impl Started {
    /// Takes the files of [`WRITE_START`] away.
    fn take(out: &Path) -> Started {
        let take = |extension: &str| {
            let file = out.with_extension(extension);
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::remove_file(file).unwrap();
            text
        };
        let strings = |text: String| -> Vec<String> {
            text.split_terminator('\0').map(str::to_owned).collect()
        };
        let pair = |variable: String| {
            let (name, value) = variable.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        let environment = strings(take("environ")).into_iter().map(pair).collect();
        Started { argv: strings(take("argv")), environment, cwd: take("cwd") }
    }

    /// The names of variables that only one has, or that have different values.
    fn differing(&self, other: &Started) -> BTreeSet<String> {
        let names = self.environment.keys().chain(other.environment.keys());
        let differ = |name: &&String| self.environment.get(*name) != other.environment.get(*name);
        names.filter(differ).cloned().collect()
    }
}

/// The programs of an installed Flux.
struct Flux {
    program: PathBuf,
}

impl Flux {
    fn find() -> Flux {
        let root = std::env::var_os("FLUX_ROOT").expect("FLUX_ROOT names an installed Flux");
        Flux { program: Path::new(&root).join("bin/flux") }
    }

    /// A command of Flux with almost no environment.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C.UTF-8").args(arguments);
        command
    }

    /// Starts an instance of one broker that runs a shell script, with `flux` in `$0`.
    fn start_instance(&self, cwd: &Path, script: &str) -> Command {
        let mut command = self.command(&["start", "-s1", "sh", "-c", script]);
        command.current_dir(cwd).arg(&self.program);
        command
    }

    fn start(&self, config: &Path, host: &str, rest: &[&str]) -> Child {
        Command::new(&self.program)
            .args(["broker", "--config-path"])
            .arg(config)
            .arg(format!("-Shostname={host}"))
            // For releases before 0.82, which accept any attribute.
            .env("FLUX_FAKE_HOSTNAME", host)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

fn run(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

fn wait_with_output(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

fn new_certificate(folder: &Path, name: &str) -> PathBuf {
    let key = SecretKey::from_os().unwrap();
    let certificate = Certificate::new(key, Metadata::new("flux-operator").unwrap());
    let file = folder.join(name);
    std::fs::write(&file, certificate.to_secret_text().as_bytes()).unwrap();
    // Flux rejects a certificate that others can read.
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file
}

/// Two brokers on this machine, with the lead at a socket in `folder`.
fn write_config(folder: &Path, name: &str, certificate: &Path) -> PathBuf {
    let address = format!("ipc://{}", folder.join("lead").display());
    let host = |name: &str| HostEntry::new(name.parse().unwrap());
    let lead = HostEntry { bind: Some(address.clone()), connect: Some(address), ..host("fs-0") };
    let hosts: HostList = "fs-[0-1]".parse().unwrap();
    let entry =
        ResourceEntry { hosts, cores: Some("0".parse().unwrap()), gpus: None, properties: vec![] };
    let config = BrokerConfig {
        bootstrap: Some(Bootstrap {
            curve_cert: Some(certificate.display().to_string()),
            hosts: vec![lead, host("fs-1")],
            ..Bootstrap::default()
        }),
        resource: Some(ResourceTable {
            noverify: Some(true),
            config: vec![entry],
            ..ResourceTable::default()
        }),
        ..BrokerConfig::default()
    };
    let folder = folder.join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("broker.toml"), config.to_toml().unwrap()).unwrap();
    folder
}
