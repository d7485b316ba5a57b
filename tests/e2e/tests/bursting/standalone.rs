//! A Flux instance of this machine, which is not in Kubernetes, with the testbed as target: a laptop that
//! grows into a cluster.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use flux_operator_testkit::cluster::{first_match, program, with_timeout};
use flux_operator_testkit::images::{AGENT_IMAGE, with_flux};
use flux_operator_testkit::smallest_minicluster;
use flux_operator_tests_e2e::{TestNamespace, without_operator};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::runtime::{WatchStreamExt, watcher};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Child;

use super::steps::wait_until_nothing_is_left;

/// Seed 003: a laptop with one broker, and two more in a cluster.
#[tokio::test]
async fn b26_an_instance_outside_kubernetes_gets_nodes_and_gives_them_back() -> Result<()> {
    without_operator(async |away| {
        let mut laptop = Laptop::start(away, 1).await?;
        let burst = laptop.burst(away).await?;
        run_on_three_nodes(&laptop).await?;
        laptop.wait_for_no_bursts().await?;
        wait_until_nothing_is_left(away).await?;
        // The same again. It is killed as soon as there are pods, and another process continues.
        let job = laptop.submit("-N3 --setattr=burstable --cwd=/tmp hostname")?;
        let first = wait_for_job(away).await?;
        drop(burst);
        let mut burst = laptop.burst(away).await?;
        expect_three_hosts(&laptop.attach(&job).await?)?;
        ensure!(wait_for_job(away).await?.uid() == first.uid(), "there is a second Job");
        // What is left is given back on Ctrl-C.
        burst.signal(Signal::INT)?;
        let status = with_timeout(burst.process.wait()).await??;
        ensure!(status.success(), "it has exited with {status}: {}", burst.log()?);
        ensure!(laptop.bursts()?.is_empty(), "{:?}", laptop.bursts());
        wait_until_nothing_is_left(away).await?;
        let drained = text(&laptop.command("resource drain -n -o {ranks}").output()?)?;
        ensure!(drained.trim().is_empty(), "ranks {drained} are still drained");
        laptop.stop().await
    })
    .await
}

/// Nothing is left when the instance has exited, though jobs were running.
#[tokio::test]
async fn b34_nodes_are_given_back_when_the_instance_has_exited() -> Result<()> {
    without_operator(async |away| {
        let mut laptop = Laptop::start(away, 1).await?;
        let mut burst = laptop.burst(away).await?;
        laptop.submit("-N3 --setattr=burstable --cwd=/tmp sleep inf")?;
        let is_ready = |it: Job| (it.status.and_then(|it| it.ready) == Some(2)).then_some(());
        let jobs = watcher(away.api::<Job>(), watcher::Config::default()).applied_objects();
        first_match(jobs, is_ready).await.with_context(|| burst.log().unwrap_or_default())?;
        laptop.stop().await?;
        let status = with_timeout(burst.process.wait()).await??;
        ensure!(status.success(), "it has exited with {status}: {}", burst.log()?);
        ensure!(laptop.bursts()?.is_empty(), "{:?}", laptop.bursts());
        wait_until_nothing_is_left(away).await
    })
    .await
}

/// Brokers that cannot be part of the instance say why, and are not started again and again.
#[tokio::test]
async fn b14_nodes_with_too_few_cores_are_given_up_with_the_reason() -> Result<()> {
    without_operator(async |away| {
        let mut laptop = Laptop::start(away, 4096).await?;
        let burst = laptop.burst(away).await?;
        laptop.submit("-N3 --setattr=burstable --cwd=/tmp hostname")?;
        let found = with_timeout(async {
            while !burst.log()?.contains("and the lender expects 4096 of each rank") {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            anyhow::Ok(())
        });
        found.await.and_then(|it| it).with_context(|| burst.log().unwrap_or_default())?;
        laptop.wait_for_no_bursts().await?;
        wait_until_nothing_is_left(away).await?;
        laptop.stop().await
    })
    .await
}

async fn run_on_three_nodes(laptop: &Laptop) -> Result<()> {
    let job = laptop.submit("-N3 --setattr=burstable --cwd=/tmp hostname")?;
    expect_three_hosts(&laptop.attach(&job).await?)
}

fn expect_three_hosts(output: &str) -> Result<()> {
    let mut hosts: Vec<&str> = output.lines().collect();
    hosts.sort_unstable();
    hosts.dedup();
    ensure!(hosts.len() == 3, "the job has printed {hosts:?}");
    Ok(())
}

/// The Job of a Burst, once there is one.
async fn wait_for_job(away: &TestNamespace) -> Result<Job> {
    let jobs = watcher(away.api::<Job>(), watcher::Config::default()).applied_objects();
    first_match(jobs, Some).await.context("there is no Job")
}

/// A Flux instance of this machine.
struct Laptop {
    folder: TempDir,
    flux: PathBuf,
    broker: Child,
    uri: String,
}

/// A process that gets nodes for it. It is killed when this is dropped.
struct Burst {
    process: Child,
    log: PathBuf,
}

impl Burst {
    fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        send(&self.process, signal)
    }
}

fn send(process: &Child, signal: Signal) -> Result<()> {
    let id = process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    Ok(kill_process(id.context("the process has exited")?, signal)?)
}

impl Laptop {
    /// Starts an instance with one broker and two spare ranks with so many cores, which pods of the testbed
    /// can reach.
    async fn start(away: &TestNamespace, spare_cores: u32) -> Result<Laptop> {
        let folder = tempfile::Builder::new().prefix("laptop").tempdir()?;
        let host = away.testbed.slot().host_address();
        let port = TcpListener::bind((host, 0))?.local_addr()?.port();
        let init = Command::new(program()?)
            .args(["burst", "init"])
            .arg(folder.path())
            .args(["--ranks", "2", "--cores", "1", "--spare-cores", &spare_cores.to_string()])
            .args(["--address", &host.to_string(), "--port", &port.to_string()])
            .output()?;
        ensure!(init.status.success(), "{init:?}");
        let flux = flux(folder.path())?;
        let uri_file = folder.path().join("uri");
        let broker = tokio::process::Command::new(&flux)
            .args(["start", "-Sbroker.quorum=1"])
            .arg(format!("--config-path={}", folder.path().display()))
            .args(["sh", "-c", "echo $FLUX_URI >$0~ && mv $0~ $0; exec sleep inf"])
            .arg(&uri_file)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start Flux")?;
        let started = with_timeout(async {
            while !uri_file.exists() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        started.await.context("the instance does not start")?;
        let uri = std::fs::read_to_string(&uri_file)?.trim().to_owned();
        Ok(Laptop { folder, flux, broker, uri })
    }

    /// Starts `flux-operator burst`, with the testbed as target.
    async fn burst(&self, away: &TestNamespace) -> Result<Burst> {
        let path = |name: &str| self.folder.path().join(name);
        let target = json!({ "name": "away", "maxNodes": 2, "startupSeconds": 1,
            "kubeconfig": { "secret": "away" } });
        let policy = json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "BurstPolicy",
            "metadata": { "name": "grow" },
            "spec": { "selector": {}, "targets": [target], "limits": { "nodes": 2 },
                "when": { "stabilizationSeconds": 0 }, "giveBack": { "idleSeconds": 5 } },
        });
        let mut template = smallest_minicluster("brokers");
        with_flux(&mut template);
        std::fs::write(path("policy.yaml"), format!("{policy}\n---\n{template}\n"))?;
        std::fs::write(path("away"), away.target_kubeconfig().await?.to_string())?;
        let log = path("log");
        let process = tokio::process::Command::new(program()?)
            .args(["burst", "--agent-image", AGENT_IMAGE])
            .arg("--config-path")
            .arg(self.folder.path())
            .arg("--policy")
            .arg(path("policy.yaml"))
            .arg("--kubeconfig")
            .arg(format!("away={}", path("away").display()))
            .env("FLUX_URI", &self.uri)
            .env("PATH", search_path(&self.flux)?)
            .stdin(Stdio::null())
            .stderr(File::options().create(true).append(true).open(&log)?)
            .kill_on_drop(true)
            .spawn()
            .context("failed to start flux-operator burst")?;
        Ok(Burst { process, log })
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.flux);
        command.args(words.split_whitespace()).env("FLUX_URI", &self.uri).stdin(Stdio::null());
        command
    }

    /// Submits a job, and returns its id.
    fn submit(&self, words: &str) -> Result<String> {
        Ok(text(&self.command(&format!("submit {words}")).output()?)?.trim().to_owned())
    }

    /// Waits until a job has finished, and returns its output.
    async fn attach(&self, job: &str) -> Result<String> {
        let mut command = tokio::process::Command::from(self.command(&format!("job attach {job}")));
        let output = with_timeout(command.kill_on_drop(true).output()).await;
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        text(&output.with_context(|| format!("the job does not run: {log}"))??)
    }

    /// The Bursts that it has, as `burst list` shows them.
    fn bursts(&self) -> Result<String> {
        let mut command = Command::new(program()?);
        text(&command.args(["burst", "list", "--config-path"]).arg(self.folder.path()).output()?)
    }

    async fn wait_for_no_bursts(&self) -> Result<()> {
        let none = with_timeout(async {
            while !self.bursts()?.is_empty() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            anyhow::Ok(())
        });
        none.await.and_then(|it| it).context("nodes are never given back")
    }

    /// Stops the instance.
    async fn stop(&mut self) -> Result<()> {
        send(&self.broker, Signal::TERM)?;
        with_timeout(self.broker.wait()).await??;
        Ok(())
    }
}

/// The `flux` of `FLUX_ROOT`, or fluxlet under this name.
fn flux(folder: &Path) -> Result<PathBuf> {
    if let Some(root) = std::env::var_os("FLUX_ROOT") {
        return Ok(Path::new(&root).join("bin/flux"));
    }
    let flux = folder.join("bin/flux");
    std::fs::create_dir(folder.join("bin"))?;
    std::os::unix::fs::symlink(program()?, &flux)?;
    Ok(flux)
}

/// The search path, with this `flux` first.
fn search_path(flux: &Path) -> Result<std::ffi::OsString> {
    let first = flux.parent().context("it is in a folder")?.to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::iter::once(first).chain(std::env::split_paths(&path)))?)
}

fn text(output: &Output) -> Result<String> {
    if !output.status.success() {
        bail!("{output:?}");
    }
    Ok(String::from_utf8(output.stdout.clone())?)
}
