//! A lender with a pending job that needs more brokers than it has.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use kube::ResourceExt;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::bench_testbed::{BenchTestbed, NAMESPACE};
use crate::manifest::{create, minicluster};
use crate::node_stage::{pod, wait_for_condition};
use crate::usage::start_seconds;

use super::SIZE;

/// The nodes of the job: those of the lender and those that join.
const JOB_NODES: u32 = 2 * SIZE;
/// Sets up the shell of a pod for `flux`.
const VIEW: &str = ". /mnt/flux/flux-view.sh";

/// A lender that is Ready.
pub(crate) struct Lender<'a> {
    /// Its testbed.
    pub(crate) bed: &'a BenchTestbed,
    /// Its name.
    pub(crate) name: String,
    lead: String,
}

/// A job that was submitted and waits for brokers.
pub(crate) struct PendingJob {
    /// When it was submitted, in seconds since the machine booted.
    pub(crate) submitted: f64,
    output: Lines<BufReader<ChildStdout>>,
    /// Attached to the job. It is killed when this is dropped.
    _client: Child,
}

/// A MiniCluster of half the job's size.
pub(crate) fn manifest(name: &str) -> Value {
    let mut manifest = minicluster(name, NAMESPACE, SIZE, "");
    manifest["spec"]["interactive"] = true.into();
    manifest
}

impl Lender<'_> {
    /// Creates a lender with spare ranks for the other half of the job and this in
    /// `flux.bursting`, and waits until it is Ready.
    pub(crate) async fn up(
        bed: &BenchTestbed,
        name: String,
        bursting: Value,
    ) -> Result<Lender<'_>> {
        let mut manifest = manifest(&name);
        manifest["spec"]["flux"]["bursting"] = bursting;
        manifest["spec"]["flux"]["bursting"]["spareRanks"] = SIZE.into();
        create(&bed.client, &manifest).await?;
        wait_for_condition(&bed.client, &name, "Ready").await?;
        let lead = pod(&bed.client, &name, 0).await?.name_any();
        Ok(Lender { bed, name, lead })
    }

    /// Runs a command of Flux in the lead, and returns its output.
    pub(crate) async fn run(&self, command: &str) -> Result<String> {
        exec(self.bed, &self.lead, &format!("{VIEW} && flux proxy $fluxsocket {command}")).await
    }

    /// Submits the job with more options, and returns once a client waits for it.
    pub(crate) async fn submit(&self, options: &str) -> Result<PendingJob> {
        let submit = format!("flux submit -N{JOB_NODES} {options} hostname && cat /proc/uptime");
        let output = self.run(&submit).await?;
        let (id, uptime) = output.split_once('\n').context("flux submit has printed no id")?;
        let submitted = seconds(uptime)?;
        // The time is that of the pod, because the client's connection is slow. All pods and this
        // program have the same clock: the testbed's node is this machine.
        let wait = format!(
            "{VIEW} && echo waiting && flux proxy $fluxsocket flux job attach {} && \
             cat /proc/uptime",
            id.trim()
        );
        let mut client = kubectl_exec(self.bed, &self.lead, &wait)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start kubectl")?;
        let output = client.stdout.take().context("kubectl has no standard output")?;
        let mut output = BufReader::new(output).lines();
        let first = output.next_line().await?;
        ensure!(first.as_deref() == Some("waiting"), "the client did not start: {first:?}");
        Ok(PendingJob { submitted, output, _client: client })
    }
}

impl PendingJob {
    /// Waits until the job has finished; returns when, in seconds since the machine booted.
    pub(crate) async fn finished(mut self) -> Result<f64> {
        let mut lines = Vec::new();
        while let Some(line) = self.output.next_line().await? {
            lines.push(line);
        }
        parse_output(&lines)
    }
}

/// The last line is the uptime, the others are the host names of the job's nodes.
fn parse_output(lines: &[String]) -> Result<f64> {
    let Some((uptime, hosts)) = lines.split_last() else { bail!("the job has no output") };
    let distinct: BTreeSet<&String> = hosts.iter().collect();
    ensure!(distinct.len() == JOB_NODES as usize, "the job did not run on all nodes: {lines:?}");
    seconds(uptime)
}

/// Now, in seconds since the machine booted.
pub(crate) fn now() -> Result<f64> {
    seconds(&std::fs::read_to_string("/proc/uptime")?)
}

/// The first number of proc_uptime(5).
fn seconds(uptime: &str) -> Result<f64> {
    let first = uptime.split_whitespace().next().context("/proc/uptime is empty")?;
    first.parse().with_context(|| format!("{uptime:?} is not an uptime"))
}

/// When the last of the brokers in some pods started, in seconds since the machine booted.
pub(crate) async fn last_broker_start(bed: &BenchTestbed, pods: &[String]) -> Result<f64> {
    let mut last = f64::MIN;
    for pod in pods {
        // Processes may exit meanwhile.
        let stats = exec(bed, pod, "cat /proc/[0-9]*/stat 2>/dev/null || true").await?;
        let start = broker_start(&stats).with_context(|| format!("pod {pod:?} has no broker"))?;
        last = last.max(start);
    }
    Ok(last)
}

/// The broker is the oldest process of Flux: rc1 and jobs are started by it. A process keeps its
/// start time when `flux` executes `flux-broker`.
fn broker_start(stats: &str) -> Option<f64> {
    let name = |stat: &str| Some(stat.split_once('(')?.1.split_once(')')?.0.to_owned());
    let is_flux = |name: &str| name.starts_with("flux") && !name.starts_with("flux-operator");
    let brokers = stats.lines().filter(|stat| name(stat).is_some_and(|name| is_flux(&name)));
    brokers.filter_map(start_seconds).min_by(f64::total_cmp)
}

/// Runs a shell command in a pod, and returns its output.
pub(crate) async fn exec(bed: &BenchTestbed, pod: &str, line: &str) -> Result<String> {
    let output = kubectl_exec(bed, pod, line).stdin(Stdio::null()).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line:?} failed in pod {pod:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

fn kubectl_exec(bed: &BenchTestbed, pod: &str, line: &str) -> Command {
    let mut command = bed.testbed.kubectl();
    command.args(["exec", "--namespace", NAMESPACE, pod, "--", "sh", "-c", line]);
    Command::from(command)
}

/// The program `flux` and the configuration of a worker, as its agent has set them up.
pub(crate) struct WorkerSetup {
    /// The path of `flux`.
    pub(crate) flux: String,
    /// The text of broker.toml.
    pub(crate) config: String,
}

impl Lender<'_> {
    /// Reads the setup of a worker.
    pub(crate) async fn worker_setup(&self) -> Result<WorkerSetup> {
        let worker = pod(&self.bed.client, &self.name, 1).await?.name_any();
        let flux = exec(self.bed, &worker, &format!("{VIEW} && command -v flux")).await?;
        let config = "cat /mnt/flux/config/etc/flux/config/broker.toml";
        let config = exec(self.bed, &worker, config).await?;
        Ok(WorkerSetup { flux: flux.trim().to_owned(), config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_job_has_finished_if_it_ran_on_all_nodes() {
        assert_eq!(parse_output(&lines("a\nb\nd\nc\n12.34 5.6\n")).unwrap(), 12.34);
        assert!(parse_output(&lines("a\nb\na\nc\n12.34 5.6\n")).is_err());
        assert!(parse_output(&[]).is_err());
    }

    #[test]
    fn the_broker_is_the_oldest_process_of_flux_but_not_the_agent() {
        let stat = |name: &str, start: u32| {
            format!("7 ({name}) S 1 7 7 0 -1 4194560 10 0 0 0 30 12 5 3 20 0 1 0 {start} 0\n")
        };
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let all = [("flux-operator-a", 1), ("sh", 2), ("flux-broker-2", 250), ("flux-shell", 300)];
        let stats: String = all.iter().map(|(name, start)| stat(name, *start)).collect();
        assert_eq!(broker_start(&stats), Some(250.0 / ticks));
        assert_eq!(broker_start(&stat("sh", 2)), None);
    }
}
