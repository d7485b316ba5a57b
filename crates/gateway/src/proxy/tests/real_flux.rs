//! Brokers of a real Flux. Needs `FLUX_ROOT`, an installed prefix.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::connection::TIMEOUTS;
use crate::refusal::RefusalReason;
use crate::testing::gateway::{Gateway, free_port};
use crate::testing::until;

/// A broker, killed when it is dropped.
struct Broker(Child);

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-unit"]
async fn a_broker_joins_and_neither_a_wrong_key_nor_a_second_broker_disturbs_it() {
    let flux = Flux::find();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lead_address: SocketAddr = (Ipv4Addr::LOCALHOST, free_port()).into();
    let gateway = Gateway::start_with(TIMEOUTS, None, Some(lead_address), 1);
    let (ours, theirs) = (flux.keygen(folder, "ours"), flux.keygen(folder, "theirs"));
    let lead_config = write_config(folder, "lead", &ours, lead_address);
    let broker_config = write_config(folder, "broker", &ours, gateway.address());
    let wrong_config = write_config(folder, "wrong", &theirs, gateway.address());

    let go = folder.join("go");
    let script = format!("while ! test -e {}; do sleep 0.1; done; flux run -N2 true", go.display());
    let mut lead = flux.start(&lead_config, "fs-0", &["-Sbroker.quorum=2", "sh", "-c", &script]);
    let intruder = flux.start(&wrong_config, "fs-1", &[]);
    until(|| gateway.refused(RefusalReason::WrongKey) > 0).await;
    let _broker = flux.start(&broker_config, "fs-1", &[]);
    until(|| gateway.connections() == 1).await;
    // Flux itself would let it replace the first.
    let _second = flux.start(&broker_config, "fs-1", &[]);
    until(|| gateway.refused(RefusalReason::TooMany) > 0).await;
    drop(intruder);

    std::fs::write(go, "").unwrap();
    let exited = tokio::task::spawn_blocking(move || lead.0.wait());
    let status = crate::testing::soon(exited).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

/// The program of an installed Flux.
struct Flux(PathBuf);

impl Flux {
    fn find() -> Flux {
        let root = std::env::var_os("FLUX_ROOT").expect("FLUX_ROOT names an installed Flux");
        Flux(Path::new(&root).join("bin/flux"))
    }

    fn keygen(&self, folder: &Path, name: &str) -> PathBuf {
        let file = folder.join(format!("{name}.cert"));
        assert!(Command::new(&self.0).arg("keygen").arg(&file).status().unwrap().success());
        file
    }

    fn start(&self, config: &Path, host: &str, rest: &[&str]) -> Broker {
        let mut command = Command::new(&self.0);
        command
            .args(["broker", "--config-path"])
            .arg(config)
            .arg(format!("-Shostname={host}"))
            // For releases before 0.82, which accept any attribute.
            .env("FLUX_FAKE_HOSTNAME", host)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Broker(command.spawn().unwrap())
    }
}

/// Two brokers, of which the first is at this address.
fn write_config(folder: &Path, name: &str, certificate: &Path, lead: SocketAddr) -> PathBuf {
    let text = format!(
        r#"
        [bootstrap]
        curve_cert = "{}"
        hosts = [
            {{ host = "fs-0", bind = "tcp://{lead}", connect = "tcp://{lead}" }},
            {{ host = "fs-1" }},
        ]
        [resource]
        noverify = true
        [[resource.config]]
        hosts = "fs-[0-1]"
        cores = "0"
        "#,
        certificate.display()
    );
    let folder = folder.join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("broker.toml"), text).unwrap();
    folder
}
