//! A MiniCluster that joins another one on a real node: how long a pending job waits for it.
//!
//! ```text
//! lender Ready ──► job of 4 pending ──► joiner created ──► its last broker started ──► job finished
//!                                             │                      └── since_brokers ──┤
//!                                             └──────────── since_creation ──────────────┘
//! ```
//!
//! For comparison, the same with brokers in bare pods, which join the same kind of lender by hand.
//! The time after the start of the brokers is Flux's own there. Both are measured alternately, each
//! time with a new lender.

mod by_hand;
mod figures;
mod lender;

use anyhow::Result;
use kube::ResourceExt;
use serde_json::json;

use crate::bench_testbed::{BenchTestbed, NAMESPACE};
use crate::manifest::{create, miniclusters};
use crate::node_stage::{
    LIMIT, NodeStage, delete, delete_all, desynchronize, pod, wait_for_condition,
};
use crate::under_test::OperatorUnderTest;
use crate::waiting::{named, time_of_first, within};

pub(crate) use by_hand::BarePods;
use figures::OperatorFigures;
pub(crate) use figures::{Figures, JobTimes, ratio};
pub(crate) use lender::{Lender, WorkerSetup, exec, last_broker_start, now};

/// The brokers of the lender, and as many that join.
pub(crate) const SIZE: u32 = 2;

/// How much to measure.
#[derive(clap::Args)]
#[group(id = "connect")]
pub(crate) struct Options {
    /// Number of rounds; each round measures a joiner and brokers started by hand
    #[arg(id = "connect_rounds", long = "connect-rounds", default_value_t = 3)]
    rounds: usize,
}

/// Measures each operator that can lend ranks.
pub(crate) async fn measure(options: &Options, operators: &[OperatorUnderTest]) -> Result<Figures> {
    let mut figures = Figures { rounds: options.rounds, operators: Vec::new() };
    for operator in operators {
        if !can_lend(operator)? {
            eprintln!("connecting: the CRDs of {} have no spare ranks", operator.name);
            continue;
        }
        figures.operators.push(measure_operator(options, operator).await?);
    }
    Ok(figures)
}

fn can_lend(operator: &OperatorUnderTest) -> Result<bool> {
    Ok(operator.crds()?.iter().any(|crd| crd.to_string().contains("\"spareRanks\"")))
}

async fn measure_operator(
    options: &Options,
    operator: &OperatorUnderTest,
) -> Result<OperatorFigures> {
    let name = operator.name.clone();
    let mut figures = OperatorFigures { name, ..OperatorFigures::default() };
    let NodeStage { mut running, bed } = NodeStage::up(operator).await?;
    // Round 0 warms all caches and is not counted.
    for round in 0..=options.rounds {
        eprintln!("connecting, round {round} of {}: {}", options.rounds, operator.name);
        let mut these = OperatorFigures::default();
        let outcome = running.while_alive(one_round(options, &bed, round, &mut these)).await;
        if let Err(error) = outcome {
            eprintln!("warning: a round failed: {error:#}");
            these.lost += 1;
            delete_all(&bed.client).await?;
        }
        if round > 0 {
            figures.merge(these);
        }
    }
    Ok(figures)
}

async fn one_round(
    options: &Options,
    bed: &BenchTestbed,
    round: usize,
    figures: &mut OperatorFigures,
) -> Result<()> {
    let lender = Lender::up(bed, format!("lend-{round}"), json!({})).await?;
    desynchronize(round, options.rounds).await;
    let lease_to_joined = join(bed, &lender, &format!("join-{round}"), &mut figures.joiner).await?;
    figures.lease_to_joined.add(lease_to_joined);
    delete(&bed.client, &lender.name).await?;

    let lender = Lender::up(bed, format!("hand-{round}"), json!({})).await?;
    desynchronize(round, options.rounds).await;
    join_by_hand(bed, &lender, &mut figures.by_hand).await?;
    delete(&bed.client, &lender.name).await?;
    Ok(())
}

/// Measures with a joiner; returns the seconds from the lease until it is Joined.
async fn join(
    bed: &BenchTestbed,
    lender: &Lender<'_>,
    name: &str,
    times: &mut JobTimes,
) -> Result<f64> {
    let client = &bed.client;
    let mut manifest = lender::manifest(name);
    manifest["spec"]["flux"]["join"]["name"] = lender.name.clone().into();
    let job = lender.submit("").await?;
    let leased = time_of_first(miniclusters(client, NAMESPACE), named(&lender.name), |found| {
        found.data["status"]["leases"].as_array().is_some_and(|leases| !leases.is_empty())
    });
    let created = now()?;
    let (_, leased, joined, finished) = tokio::try_join!(
        create(client, &manifest),
        within(LIMIT, "ranks are leased", leased),
        wait_for_condition(client, name, "Joined"),
        within(LIMIT, "the job has finished", job.finished()),
    )?;
    let mut pods = Vec::new();
    for index in 0..SIZE {
        pods.push(pod(client, name, index).await?.name_any());
    }
    add(times, bed, created, finished, &pods).await?;
    delete(client, name).await?;
    Ok((joined - leased).as_secs_f64())
}

/// Measures with brokers in bare pods.
pub(crate) async fn join_by_hand(
    bed: &BenchTestbed,
    lender: &Lender<'_>,
    times: &mut JobTimes,
) -> Result<()> {
    let bare = BarePods::prepare(&bed.client, lender).await?;
    let job = lender.submit("").await?;
    let created = now()?;
    let finished = within(LIMIT, "the job has finished", job.finished());
    let ((), finished) = tokio::try_join!(bare.create(), finished)?;
    add(times, bed, created, finished, &bare.names()).await?;
    bare.delete().await
}

/// Adds a job that has finished, with the testbed and the names of the pods that joined. The times
/// are in seconds since the machine booted.
pub(crate) async fn add(
    times: &mut JobTimes,
    bed: &BenchTestbed,
    created: f64,
    finished: f64,
    pods: &[String],
) -> Result<()> {
    times.since_brokers.add(finished - last_broker_start(bed, pods).await?);
    times.since_creation.add(finished - created);
    Ok(())
}
