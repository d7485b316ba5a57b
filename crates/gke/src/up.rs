//! `up`: makes the cluster, and writes its kubeconfig into a Secret at home.

use flux_operator_wire::GkeFailure;
use google_cloud_container_v1::model::Cluster;
use google_cloud_container_v1::model::cluster::Status;
use kube::Client;

use crate::cluster::{broken, check_owner, missing_size, wanted};
use crate::google::Google;
use crate::pace::{Pace, until_done};
use crate::settings::Settings;
use crate::trouble::{Failure, Trouble};
use crate::{home, inside};

/// Makes the cluster of a Burst with as many nodes as it has, and writes its kubeconfig. It may be stopped
/// at any point and run again.
pub async fn up(
    google: &Google,
    home: &Client,
    settings: &Settings,
    pace: Pace,
) -> Result<(), Failure> {
    let cluster = made(google, settings, pace).await?;
    let kubeconfig = inside::kubeconfig(google, &cluster, settings, pace).await?;
    home::write(home, settings, &kubeconfig, pace).await?;
    tracing::info!(cluster = settings.name, secret = settings.secret, "the cluster is ready");
    Ok(())
}

/// The cluster, as soon as it can be used.
async fn made(google: &Google, settings: &Settings, pace: Pace) -> Result<Cluster, Failure> {
    let mut operation = None;
    let attempt = async || match step(google, settings, &mut operation).await? {
        Progress::Made(cluster) => Ok(Some(*cluster)),
        Progress::Waiting(why) => {
            tracing::info!(cluster = settings.name, "{why}");
            Ok(None)
        }
    };
    until_done(pace, attempt).await
}

/// The result of one step.
enum Progress {
    Made(Box<Cluster>),
    Waiting(&'static str),
}

/// One request that changes something, at most. `operation` is the last one that this process has begun.
async fn step(
    google: &Google,
    settings: &Settings,
    operation: &mut Option<String>,
) -> Result<Progress, Trouble> {
    let cluster = google.cluster(&settings.name).await?;
    if let Some(cluster) = &cluster {
        check_owner(cluster, settings)?;
    }
    // Why something could not be made is in its operation, if this process has begun it.
    if let Some(name) = operation {
        match google.is_done(name).await? {
            true => *operation = None,
            false => return Ok(Progress::Waiting("Google is at work")),
        }
        if cluster.is_none() {
            let message = format!("cluster {} was made and then deleted", settings.name);
            return Err(Trouble::fail(GkeFailure::Broken, message));
        }
        // It was read before its operation was.
        return Ok(Progress::Waiting("Google has done its work"));
    }
    let Some(cluster) = cluster else {
        *operation = Some(google.create(wanted(settings)?).await?.name);
        return Ok(Progress::Waiting("the cluster is being created"));
    };
    match cluster.status {
        Status::Error => Err(broken(&cluster).into()),
        // What it lacks does not keep brokers from starting, or they show it.
        Status::Running | Status::Degraded => match missing_size(&cluster, settings) {
            None => Ok(Progress::Made(Box::new(cluster))),
            Some(nodes) => {
                *operation = Some(google.resize(&settings.name, nodes).await?.name);
                Ok(Progress::Waiting("the node pool is being resized"))
            }
        },
        Status::Stopping => Ok(Progress::Waiting("a former cluster is being deleted")),
        _ => Ok(Progress::Waiting("the cluster is not ready")),
    }
}
