//! `kubectl minicluster submit`: submit a job to the Flux instance.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::exec::{ExecPod, exec};
use super::pod_commands;
use super::session::Session;

/// Submit a job to a MiniCluster and print its id.
///
/// Arguments after NAME are for `flux submit`, so put options of kubectl before it:
/// `submit -n team NAME -N2 --watch -- COMMAND`. With --watch or --wait the exit code is the job's.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the MiniCluster, options of `flux submit`, `--`, and the command, whose arguments
    /// are passed on unchanged.
    // A single list, because clap leaves only the rest of a list alone: after a separate NAME,
    // `-n4` would be parsed as a namespace.
    #[arg(trailing_var_arg = true, required = true, value_name = "NAME [OPTIONS] -- COMMAND")]
    pub(super) words: Vec<String>,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let [name, words @ ..] = arguments.words.as_slice() else { bail!("the name is missing") };
    if words.is_empty() {
        bail!("nothing to submit\nhint: give a command, as in `submit {name} -N2 -- hostname`");
    }
    let pod = ExecPod::find(session, name, None).await?;
    exec(session, &pod, &pod_commands::submit(&pod.mount, words), false).await
}
