//! `kubectl minicluster submit`: a job for the Flux instance.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::exec::{Place, exec};
use super::session::Session;
use super::words;

/// Submit a job to a MiniCluster and print its id.
///
/// What follows NAME is for `flux submit`, so options of kubectl stand before it:
/// `submit -n team NAME -N2 --watch -- COMMAND`. With --watch or --wait the exit code
/// is the job's.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the MiniCluster, options of `flux submit`, `--`, and the command. Its words
    /// are passed on as they are.
    // One list, because a list is the only thing whose rest clap leaves alone: after a
    // name of its own, `-n4` would be a namespace.
    #[arg(trailing_var_arg = true, required = true, value_name = "NAME [OPTIONS] -- COMMAND")]
    pub(super) words: Vec<String>,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let [name, words @ ..] = arguments.words.as_slice() else { bail!("the name is missing") };
    if words.is_empty() {
        bail!("nothing to submit\nhint: give a command, as in `submit {name} -N2 -- hostname`");
    }
    let place = Place::find(session, name, 0).await?;
    exec(session, &place, &words::submit(&place.mount, words), false).await
}
