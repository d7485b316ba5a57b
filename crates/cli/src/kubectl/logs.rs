//! `kubectl minicluster logs`: print the log of a rank.

use std::process::ExitCode;

use anyhow::{Result, bail};
use flux_operator_api::MiniCluster;
use flux_operator_flux::JobId;
use kube::api::ListParams;

use super::follow::{LogPrinter, LogSource};
use super::job_output::print_output;
use super::outcome::{ClusterOutcome, outcome, status_line};
use super::pods::{self, ContainerRun};
use super::rank_pod::RankPod;
use super::session::Session;
use super::watch::{self, WatchedState};

/// Print the log of a rank of a MiniCluster, or the output of a job that has run elsewhere.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the MiniCluster.
    name: String,

    /// Follow the log until the MiniCluster finishes, across restarts.
    #[arg(short, long)]
    follow: bool,

    /// The rank. Default: 0, the lead, which prints the output of the command; for a MiniCluster
    /// that joins another one, the rank of its first pod.
    #[arg(long)]
    rank: Option<u32>,

    /// Print the output of this job instead, which has run in an instance of its own elsewhere.
    #[arg(
        long, value_name = "ID", value_parser = super::burst::why::parse_job,
        conflicts_with_all = ["follow", "rank", "container"]
    )]
    job: Option<JobId>,

    /// The container. Default: the one that runs Flux.
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { name, follow, rank, job, container } = arguments;
    if let Some(job) = job {
        return print_output(session, name, *job).await;
    }
    let minicluster = session.minicluster(name).await?;
    let RankPod { index, described } = RankPod::find(&minicluster, *rank)?;
    let container = container.clone().unwrap_or_else(|| name.clone());
    let selector = pods::index_selector(name, index);
    let of_rank = ListParams::default().labels(&selector);
    let pod = match session.pods().list(&of_rank).await {
        Ok(listed) => pods::newest(listed.items),
        Err(error) => return Err(session.explain(error, "failed to list the pods").await),
    };
    if let Some(pod) = &pod {
        let containers = pods::containers(pod);
        if !containers.contains(&container.as_str()) {
            bail!("{name} has no container {container:?}\nhint: it has {}", containers.join(", "));
        }
    }
    let started = pod.is_some_and(|pod| ContainerRun::of(&pod, &container).is_some());
    if !started && !follow {
        bail!(
            "{described} has no log yet: {}\nhint: wait for it with -f",
            status_line(&minicluster)
        );
    }
    let mut printer =
        LogPrinter::new(LogSource { pods: session.pods(), selector, container }, || ());
    if *follow {
        tokio::select! {
            finished = wait_until_finished(session, &minicluster) => finished?,
            failure = printer.follow() => match failure? {},
        }
    }
    printer.print_rest().await?;
    Ok(ExitCode::SUCCESS)
}

/// Waits until no more output will come.
async fn wait_until_finished(session: &Session, minicluster: &MiniCluster) -> Result<()> {
    watch::watch_object(session.miniclusters(), minicluster, |observed| match observed {
        WatchedState::Current(now) => match outcome(&now) {
            // A blocked cluster may be fixed while its log is followed.
            ClusterOutcome::InProgress
            | ClusterOutcome::Ready
            | ClusterOutcome::Joined(_)
            | ClusterOutcome::Blocked(_) => None,
            ClusterOutcome::Refused(_) | ClusterOutcome::Exited(..) | ClusterOutcome::Failed(_) => {
                Some(())
            }
        },
        WatchedState::Deleted(_) => Some(()),
    })
    .await
}
