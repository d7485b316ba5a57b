//! `kubectl minicluster burst give-back`: give the nodes of Bursts back.

use std::process::ExitCode;

use anyhow::Result;
use flux_operator_api::Burst;
use kube::api::DeleteParams;

use super::list::not_found;
use super::wait::{Goal, wait};
use crate::kubectl::session::Session;
use crate::print;

/// Give the nodes of Bursts back: delete the Bursts.
///
/// No new job starts on the nodes, and those that run get the Burst's graceSeconds to finish. If a
/// policy has created a Burst, it may request nodes again for jobs that wait.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Names of the Bursts.
    #[arg(required = true)]
    name: Vec<String>,

    /// Wait until everything that was created for them is deleted. Fails if that needs an action of
    /// yours.
    #[arg(long)]
    wait: bool,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let mut missing = None;
    let mut deleted = Vec::new();
    for name in &arguments.name {
        match delete(session, name).await? {
            Some(burst) => {
                print::output(format!("burst.flux-framework.org {name:?} deleted\n"))?;
                deleted.push(burst);
            }
            // The others are deleted nevertheless.
            None => missing = Some(not_found(session, name).await),
        }
    }
    if arguments.wait {
        for burst in &deleted {
            wait(session, burst, Goal::GivenBack).await?;
        }
    }
    missing.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Requests the deletion of a Burst. Returns it, or `None` if it does not exist.
async fn delete(session: &Session, name: &str) -> Result<Option<Burst>> {
    let bursts = session.api::<Burst>();
    let found = match bursts.get_opt(name).await {
        Ok(found) => found,
        Err(error) => return Err(session.explain(error, &format!("failed to get {name:?}")).await),
    };
    let Some(found) = found else { return Ok(None) };
    match bursts.delete(name, &DeleteParams::background()).await {
        Ok(_) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(session.explain(error, &format!("failed to delete {name:?}")).await),
    }
}
