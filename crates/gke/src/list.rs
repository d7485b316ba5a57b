//! `list`: clusters that were made for Bursts, to find those that nothing deletes any more.

use google_cloud_container_v1::model::Cluster;

use crate::cluster::{LABEL, cluster_nodes};
use crate::google::Google;
use crate::pace::{Pace, until_done};
use crate::trouble::Failure;

/// One line for each cluster of the project and zone that has our label: name, status, nodes and time of
/// creation.
pub async fn list(google: &Google, pace: Pace) -> Result<Vec<String>, Failure> {
    let clusters = until_done(pace, async || google.all().await.map(Some)).await?;
    let ours = clusters.iter().filter(|it| it.resource_labels.contains_key(LABEL));
    Ok(ours.map(line).collect())
}

fn line(cluster: &Cluster) -> String {
    let status = cluster.status.name().unwrap_or("UNKNOWN");
    let nodes = cluster_nodes(cluster).map_or_else(|| "?".to_owned(), |it| it.to_string());
    format!("{} {status} {nodes} {}", cluster.name, cluster.create_time)
}
