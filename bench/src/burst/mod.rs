//! Bursts: how long a decision takes, how soon pending jobs are known, and how long a job waits for
//! nodes beyond what Flux and Kubernetes take.
//!
//! ```text
//! job of 4 submitted ──► joiner created ──► its last broker started ──► job finished
//!          └── request ──────┘                          └── since_brokers ──┘
//!          └───────────────────── since_submission ─────────────────────────┘
//! ```
//!
//! `request` and `since_brokers` are the share of operator, agent and burst controller; the scheduler
//! and the job itself are part of it. For comparison, the same with brokers in bare pods, which join
//! the same kind of lender by hand. Both are measured alternately, each time with a new lender.

mod decision;
mod figures;
mod pending;

use std::time::Instant;

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use serde_json::{Value, json};

use crate::bench_testbed::{BenchTestbed, NAMESPACE};
use crate::connect::{Lender, SIZE, join_by_hand, last_broker_start, now};
use crate::manifest::{create_all, miniclusters};
use crate::node_stage::{LIMIT, NodeStage, delete, delete_all, desynchronize, pod};
use crate::under_test::{OperatorUnderTest, RunningOperator, our_command, our_program};
use crate::waiting::{time_of_first, time_without, within};

use figures::BurstTimes;
pub(crate) use figures::Figures;

/// The label of what a Burst creates.
const BURST_LABEL: &str = "flux-framework.org/burst";

/// How much to measure.
#[derive(clap::Args)]
#[group(id = "burst")]
pub(crate) struct Options {
    /// Number of rounds; each round measures a burst and brokers started by hand
    #[arg(id = "burst_rounds", long = "burst-rounds", default_value_t = 3)]
    rounds: usize,

    /// Only decisions: no node, no root
    #[arg(long)]
    decisions: bool,
}

/// An operator on a testbed, and a burst controller beside it.
struct Stage {
    // Fields are dropped in this order: processes are killed before their testbed is deleted.
    controller: RunningOperator,
    home: NodeStage,
}

/// Measures our operator and its burst controller.
pub(crate) async fn measure(options: &Options) -> Result<Figures> {
    // Seconds of computing would block other tasks.
    let decision = tokio::task::spawn_blocking(decision::measure).await??;
    let mut figures = Figures { decision, ..Figures::default() };
    if options.decisions {
        return Ok(figures);
    }
    figures.rounds = options.rounds;
    let mut stage = Stage::up().await?;
    let Stage { controller, home } = &mut stage;
    eprintln!("burst, pending jobs");
    let address = home.running.address.clone();
    let known = pending::measure(&home.bed, &address);
    figures.pending = Some(controller.while_alive(home.running.while_alive(known)).await?);
    create_all(&home.bed.client, &[policy()]).await?;
    // Round 0 warms all caches and is not counted.
    for round in 0..=options.rounds {
        eprintln!("burst, round {round} of {}", options.rounds);
        let mut these = Figures::default();
        let measured = one_round(&home.bed, round, options.rounds, &mut these);
        if let Err(error) = controller.while_alive(home.running.while_alive(measured)).await {
            eprintln!("warning: a round failed: {error:#}");
            these.lost += 1;
            delete_all(&home.bed.client).await?;
        }
        if round > 0 {
            figures.merge(these);
        }
    }
    Ok(figures)
}

impl Stage {
    async fn up() -> Result<Stage> {
        let home = NodeStage::up(&OperatorUnderTest::new("burst", our_command()?)).await?;
        let command = format!(
            "exec '{}' burst-controller --serve {NAMESPACE} --operator-url http://{} \
             --token-file '{}' --bind \"$BENCH_HOST_ADDRESS:$BENCH_PORT\" \
             --agent-image \"$BENCH_AGENT_IMAGE\"",
            our_program()?.display(),
            home.running.address,
            home.bed.operator_token_file().display(),
        );
        let controller = OperatorUnderTest::new("controller", command).start(&home.bed)?;
        Ok(Stage { controller, home })
    }
}

/// A policy that gets nodes of the same Kubernetes cluster at once.
fn policy() -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "BurstPolicy",
        "metadata": { "name": "burst", "namespace": NAMESPACE },
        "spec": {
            "selector": {},
            "when": { "stabilizationSeconds": 0 },
            "limits": { "nodes": SIZE },
            "targets": [{ "name": "here", "maxNodes": SIZE, "startupSeconds": 1, "cluster": {} }],
        },
    })
}

async fn one_round(
    bed: &BenchTestbed,
    round: usize,
    rounds: usize,
    figures: &mut Figures,
) -> Result<()> {
    let lender = Lender::up(bed, format!("lend-{round}"), json!({})).await?;
    desynchronize(round, rounds).await;
    burst(bed, &lender, &mut figures.burst).await?;
    delete(&bed.client, &lender.name).await?;
    let config = watcher::Config::default().labels(BURST_LABEL);
    let gone = time_without(miniclusters(&bed.client, NAMESPACE), config);
    within(LIMIT, "the burst is given back", gone).await?;

    let lender = Lender::up(bed, format!("hand-{round}"), json!({})).await?;
    desynchronize(round, rounds).await;
    join_by_hand(bed, &lender, &mut figures.by_hand).await?;
    delete(&bed.client, &lender.name).await?;
    Ok(())
}

/// Measures a burst for a job that is submitted now.
async fn burst(bed: &BenchTestbed, lender: &Lender<'_>, times: &mut BurstTimes) -> Result<()> {
    let mut name = String::new();
    let config = watcher::Config::default().labels(BURST_LABEL);
    let created =
        time_of_first(miniclusters(&bed.client, NAMESPACE), config, |found: &DynamicObject| {
            name = found.name_any();
            true
        });
    let job = async {
        let job = lender.submit("--setattr=burstable").await?;
        let submitted = job.submitted;
        anyhow::Ok((submitted, job.finished().await?))
    };
    let (created, (submitted, finished)) = tokio::try_join!(
        within(LIMIT, "the burst exists", created),
        within(LIMIT, "the job has finished", job)
    )?;
    let mut pods = Vec::new();
    for index in 0..SIZE {
        pods.push(pod(&bed.client, &name, index).await?.name_any());
    }
    let brokers = last_broker_start(bed, &pods).await.context("the burst has no brokers")?;
    let request = now()? - Instant::now().duration_since(created).as_secs_f64() - submitted;
    times.add(request, finished - brokers, finished - submitted);
    Ok(())
}
