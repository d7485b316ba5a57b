//! 10,000 pending jobs: how soon they are known to a client that asks, and what that costs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flux_operator_api::view::InstanceJobs;
use kube::{Client, Config, ResourceExt};
use serde::Serialize;
use serde_json::json;

use crate::bench_testbed::{BenchTestbed, NAMESPACE};
use crate::connect::{Lender, exec};
use crate::node_stage::{LIMIT, delete, pod};
use crate::usage::cpu_seconds;
use crate::waiting::within;

/// Pending jobs: as many as the operator lists.
const JOBS: usize = 10_000;
/// For how long the agent is observed afterwards.
const OBSERVED: Duration = Duration::from_secs(30);

/// Measurements.
#[derive(Serialize)]
pub(super) struct Figures {
    /// From the first request until all jobs were listed.
    pub(super) known_seconds: f64,
    /// The CPU time of the lead's agent and its children for that.
    pub(super) listing_cpu_seconds: f64,
    /// The part of a core that they use afterwards, while a client asks.
    pub(super) cores: f64,
}

/// Submits jobs that no node is free for, and then asks for them.
pub(super) async fn measure(bed: &BenchTestbed, operator: &str) -> Result<Figures> {
    let lender = Lender::up(bed, "pending".into(), json!({})).await?;
    // There is no policy yet, so that nothing asks for them before.
    lender.run(&format!("flux submit --quiet --cc=1-{JOBS} -N4 hostname")).await?;
    let lead = pod(&bed.client, &lender.name, 0).await?.name_any();
    let operator = client(bed, operator)?;
    let (before, start) = (agent_cpu(bed, &lead).await?, Instant::now());
    let mut version = within(LIMIT, "all jobs are listed", all_listed(&operator, &lender)).await?;
    let known_seconds = start.elapsed().as_secs_f64();
    let (settled, start) = (agent_cpu(bed, &lead).await?, Instant::now());
    while start.elapsed() < OBSERVED {
        version = ask(&operator, &lender, version).await?.version;
    }
    let used = agent_cpu(bed, &lead).await? - settled;
    let cores = used / start.elapsed().as_secs_f64();
    delete(&bed.client, &lender.name).await?;
    Ok(Figures { known_seconds, listing_cpu_seconds: settled - before, cores })
}

fn client(bed: &BenchTestbed, operator: &str) -> Result<Client> {
    let mut config = Config::new(format!("http://{operator}").parse()?);
    config.auth_info.token_file = Some(bed.operator_token_file().display().to_string());
    Ok(Client::try_from(config)?)
}

async fn all_listed(operator: &Client, lender: &Lender<'_>) -> Result<u64> {
    let mut version = 0;
    loop {
        let jobs = ask(operator, lender, version).await?;
        version = jobs.version;
        ensure!(jobs.items.len() <= JOBS, "there are {} jobs", jobs.items.len());
        // Attributes are read after the list, and a job may be listed without them at first.
        let known = jobs.items.iter().filter(|job| !job.attributes.is_empty());
        if known.count() == JOBS {
            return Ok(version);
        }
    }
}

/// Waits for a change, as the burst controller does.
async fn ask(operator: &Client, lender: &Lender<'_>, version: u64) -> Result<InstanceJobs> {
    let path = format!(
        "/v1/namespaces/{NAMESPACE}/miniclusters/{}/jobs?version={version}&wait=20",
        lender.name
    );
    let request = http::Request::get(path).body(Vec::new())?;
    operator.request(request).await.context("the operator does not list jobs")
}

/// The CPU time of the agent, and of the children that it has waited for. The broker is not one of
/// them.
async fn agent_cpu(bed: &BenchTestbed, pod: &str) -> Result<f64> {
    let stats = exec(bed, pod, "cat /proc/[0-9]*/stat 2>/dev/null || true").await?;
    let agents = stats.lines().filter(|line| line.contains("(flux-operator-a"));
    agents.filter_map(cpu_seconds).reduce(f64::max).context("the lead has no agent")
}
