//! `down`: deletes the cluster, and waits until there is none.

use google_cloud_container_v1::model::cluster::Status;

use crate::cluster::check_owner;
use crate::google::Google;
use crate::pace::{Pace, until_done};
use crate::settings::Settings;
use crate::trouble::{Failure, Trouble};

/// Deletes the cluster of a Burst. Succeeds if there is none, and refuses one that was made for something
/// else. It may be stopped at any point and run again.
pub async fn down(google: &Google, settings: &Settings, pace: Pace) -> Result<(), Failure> {
    let attempt = async || {
        let is_deleted = is_deleted(google, settings).await?;
        if !is_deleted {
            tracing::info!(cluster = settings.name, "the cluster is being deleted");
        }
        Ok(is_deleted.then_some(()))
    };
    until_done(pace, attempt).await?;
    tracing::info!(cluster = settings.name, "there is no cluster");
    Ok(())
}

/// Begins to delete it unless that has begun; whether there is none.
async fn is_deleted(google: &Google, settings: &Settings) -> Result<bool, Trouble> {
    let Some(cluster) = google.cluster(&settings.name).await? else { return Ok(true) };
    check_owner(&cluster, settings)?;
    if cluster.status != Status::Stopping {
        google.delete(&settings.name).await?;
    }
    Ok(false)
}
