//! `kubectl minicluster delete`: stop and delete MiniClusters.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, Event};

use super::pods;
use super::session::Session;
use super::watch::watch_until;
use crate::print;

/// Stop and delete MiniClusters.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Names of the MiniClusters.
    #[arg(required = true)]
    name: Vec<String>,

    /// Wait until they and their pods are deleted.
    #[arg(long)]
    wait: bool,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let mut missing = None;
    let mut deleted = Vec::new();
    for name in &arguments.name {
        match request_deletion(session, name).await? {
            Some(uid) => {
                print::output(format!("minicluster.flux-framework.org {name:?} deleted\n"))?;
                deleted.push((name, uid));
            }
            // The others are deleted nevertheless.
            None => missing = Some(session.minicluster_not_found(name).await),
        }
    }
    if arguments.wait {
        for (name, uid) in deleted {
            let deleted = conditions::is_deleted(&uid);
            await_condition(session.miniclusters(), name, deleted)
                .await
                .with_context(|| format!("failed to wait for the deletion of {name:?}"))?;
            wait_until_no_pods(session, name).await?;
        }
    }
    match missing {
        Some(error) => Err(error),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Requests the deletion of a MiniCluster. Returns its uid, or `None` if it does not exist.
pub(super) async fn request_deletion(session: &Session, name: &str) -> Result<Option<String>> {
    let minicluster = match session.miniclusters().get_opt(name).await {
        Ok(Some(minicluster)) => minicluster,
        Ok(None) => return Ok(None),
        Err(error) => return Err(session.explain(error, &format!("failed to get {name:?}")).await),
    };
    match session.miniclusters().delete(name, &DeleteParams::background()).await {
        Ok(_) => Ok(minicluster.uid()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(session.explain(error, &format!("failed to delete {name:?}")).await),
    }
}

async fn wait_until_no_pods(session: &Session, name: &str) -> Result<()> {
    let of_cluster = watcher::Config::default().labels(&pods::cluster_selector(name));
    let mut left = BTreeSet::new();
    watch_until(session.pods(), of_cluster, |event| {
        match event {
            // Nothing is known until all pods are listed.
            Event::Init => {
                left.clear();
                return None;
            }
            Event::InitApply(pod) | Event::Apply(pod) => {
                left.insert(pod.name_any());
                return None;
            }
            Event::Delete(pod) => {
                left.remove(&pod.name_any());
            }
            Event::InitDone => {}
        }
        left.is_empty().then_some(())
    })
    .await
    .with_context(|| format!("failed to wait for the pods of {name:?}"))
}
