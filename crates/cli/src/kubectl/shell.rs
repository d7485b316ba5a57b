//! `kubectl minicluster shell`: a shell in the Flux instance.

use std::process::ExitCode;

use anyhow::Result;

use super::exec::{ExecPod, exec};
use super::pod_commands;
use super::session::Session;

/// Open a shell in a MiniCluster, in which `flux` commands connect to its instance. Without a
/// terminal it runs the commands from standard input.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the MiniCluster.
    name: String,

    /// The rank on which to open it. Default: 0, the lead; for a MiniCluster that joins another
    /// one, the rank of its first pod.
    #[arg(long)]
    rank: Option<u32>,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let pod = ExecPod::find(session, &arguments.name, arguments.rank).await?;
    exec(session, &pod, &pod_commands::shell(&pod.mount), true).await
}
