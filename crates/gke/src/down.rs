//! `down`: deletes the cluster, and waits until there is none.

use google_cloud_container_v1::model::cluster::Status;

use crate::cluster::check_owner;
use crate::google::Google;
use crate::pace::{Pace, in_time};
use crate::settings::Settings;
use crate::trouble::{Failure, Trouble};

/// Deletes the cluster of a Burst. Succeeds if there is none, and refuses one that was made for something
/// else. It may be stopped at any point and run again.
pub async fn down(google: &Google, settings: &Settings, pace: Pace) -> Result<(), Failure> {
    let mut now = pace;
    loop {
        match in_time(is_deleted(google, settings)).await {
            Ok(true) => {
                tracing::info!(cluster = settings.name, "there is no cluster");
                return Ok(());
            }
            Ok(false) => tracing::info!(cluster = settings.name, "the cluster is being deleted"),
            Err(Trouble::Final(failure)) => return Err(failure),
            Err(Trouble::Passing(why)) => tracing::warn!("{why}; it is tried again"),
        }
        now = now.wait().await;
    }
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
