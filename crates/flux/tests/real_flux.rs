//! Tests with a real Flux: with our certificate and configuration, brokers start
//! and trust each other. Needs `FLUX_ROOT`, an installed prefix.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use flux_operator_flux::broker_config::{ResourceEntry, ResourceTable};
use flux_operator_flux::{
    Bootstrap, BrokerConfig, Certificate, HostEntry, HostList, Metadata, SecretKey,
};

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

/// The programs of an installed Flux.
struct Flux {
    program: PathBuf,
}

impl Flux {
    fn find() -> Flux {
        let root = std::env::var_os("FLUX_ROOT").expect("FLUX_ROOT names an installed Flux");
        Flux { program: Path::new(&root).join("bin/flux") }
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
