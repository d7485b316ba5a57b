//! Brokers of another Kubernetes cluster that join by the gateway: how long a pending job waits for
//! them.
//!
//! ```text
//! testbed "home"                                    testbed "away"
//! lender Ready ──► invitation ──► job of 4 pending ──► joiner created ──► its last broker started
//!                                                        │                      └── since_brokers ──► job
//!                                                        └──────────── since_creation ─────────────► finished
//! ```
//!
//! For comparison, the same with brokers in bare pods, which reach the same kind of lender at a node
//! port of the lead itself: without operator, gateway and permission. Both are measured alternately,
//! each time with a new lender. Only our operator has a gateway.

mod away;
mod figures;

use anyhow::{Result, bail};
use kube::ResourceExt;
use serde_json::json;

use crate::connect::{JobTimes, Lender, SIZE, add, now};
use crate::manifest::{create, create_all};
use crate::node_stage::{
    LIMIT, NodeStage, delete, delete_all, desynchronize, pod, wait_for_condition,
};
use crate::under_test::{OperatorUnderTest, RunningOperator, our_command, our_program};
use crate::waiting::within;

pub(crate) use figures::Figures;

/// How much to measure.
#[derive(clap::Args)]
#[group(id = "gateway")]
pub(crate) struct Options {
    /// Number of rounds; each round measures an invitation and brokers started by hand
    #[arg(id = "gateway_rounds", long = "gateway-rounds", default_value_t = 3)]
    rounds: usize,
}

/// Two linked testbeds, each with an operator, and a gateway for the first.
struct Stages {
    // Fields are dropped in this order: the gateway is killed before its testbed is deleted.
    gateway: RunningOperator,
    home: NodeStage,
    away: NodeStage,
}

/// Measures our operator.
pub(crate) async fn measure(options: &Options) -> Result<Figures> {
    let mut figures = Figures { rounds: options.rounds, ..Figures::default() };
    let mut stages = Stages::up().await?;
    // Round 0 warms all caches and is not counted.
    for round in 0..=options.rounds {
        eprintln!("gateway, round {round} of {}", options.rounds);
        let mut these = Figures::default();
        if let Err(error) = stages.one_round(options, round, &mut these).await {
            eprintln!("warning: a round failed: {error:#}");
            these.lost += 1;
            delete_all(&stages.away.bed.client).await?;
            delete_all(&stages.home.bed.client).await?;
        }
        if round > 0 {
            figures.merge(these);
        }
    }
    Ok(figures)
}

impl Stages {
    async fn up() -> Result<Stages> {
        let command = format!("{} --gateway-address \"$BENCH_HOST_ADDRESS\"", our_command()?);
        let home = NodeStage::up(&OperatorUnderTest::new("home", command)).await?;
        let away = NodeStage::up(&OperatorUnderTest::new("away", our_command()?)).await?;
        home.bed.link(&away.bed)?;
        // As a process of this machine, which the node reaches as it reaches pods.
        let command = format!(
            "exec '{}' gateway --bind \"$BENCH_HOST_ADDRESS:$BENCH_PORT\" \
             --listen \"$BENCH_HOST_ADDRESS\" --report-address '{}'",
            our_program()?.display(),
            home.running.address
        );
        let gateway = OperatorUnderTest::new("gateway", command).start(&home.bed)?;
        Ok(Stages { gateway, home, away })
    }

    async fn one_round(
        &mut self,
        options: &Options,
        round: usize,
        figures: &mut Figures,
    ) -> Result<()> {
        let Stages { gateway, home, away } = self;
        let bed = &home.bed;
        let measured = async {
            let expose = json!({ "expose": { "type": "NodePort" } });
            let lender = Lender::up(bed, format!("lend-{round}"), expose).await?;
            join(&lender, away, round, options.rounds, &mut figures.invited).await?;
            delete(&bed.client, &lender.name).await?;

            let lender = Lender::up(bed, format!("hand-{round}"), json!({})).await?;
            join_by_hand(&lender, away, round, options.rounds, &mut figures.by_hand).await?;
            delete(&bed.client, &lender.name).await?;
            Ok(())
        };
        gateway.while_alive(home.running.while_alive(measured)).await
    }
}

/// Measures with an invitation, which is made before.
async fn join(
    lender: &Lender<'_>,
    away: &NodeStage,
    round: usize,
    rounds: usize,
    times: &mut JobTimes,
) -> Result<()> {
    let (client, name) = (&away.bed.client, format!("join-{round}"));
    let (joiner, others): (Vec<_>, Vec<_>) = away::invite(lender, &name)
        .await?
        .into_iter()
        .partition(|object| object["kind"] == "MiniCluster");
    let [joiner] = joiner.as_slice() else { bail!("the file has {} MiniClusters", joiner.len()) };
    create_all(client, &others).await?;
    let job = lender.submit("").await?;
    desynchronize(round, rounds).await;
    let created = now()?;
    let (_, _, finished) = tokio::try_join!(
        create(client, joiner),
        wait_for_condition(client, &name, "Joined"),
        within(LIMIT, "the job has finished", job.finished()),
    )?;
    let mut pods = Vec::new();
    for index in 0..SIZE {
        pods.push(pod(client, &name, index).await?.name_any());
    }
    add(times, &away.bed, created, finished, &pods).await?;
    delete(client, &name).await?;
    Ok(())
}

async fn join_by_hand(
    lender: &Lender<'_>,
    away: &NodeStage,
    round: usize,
    rounds: usize,
    times: &mut JobTimes,
) -> Result<()> {
    let bare = away::bare_pods(lender, &away.bed.client).await?;
    let job = lender.submit("").await?;
    desynchronize(round, rounds).await;
    let created = now()?;
    let finished = within(LIMIT, "the job has finished", job.finished());
    let ((), finished) = tokio::try_join!(bare.create(), finished)?;
    add(times, &away.bed, created, finished, &bare.names()).await?;
    bare.delete().await
}
