//! `list`: clusters that were made for Bursts, to find those that nothing deletes any more.

use google_cloud_container_v1::model::Cluster;

use crate::cluster::{LABEL, cluster_nodes};
use crate::google::Google;
use crate::pace::{Pace, in_time};
use crate::trouble::{Failure, Trouble};

/// One line for each cluster of the project and zone that has our label: name, status, nodes and time of
/// creation.
pub async fn list(google: &Google, pace: Pace) -> Result<Vec<String>, Failure> {
    let mut now = pace;
    loop {
        match in_time(google.all()).await {
            Ok(clusters) => {
                let ours = clusters.iter().filter(|it| it.resource_labels.contains_key(LABEL));
                return Ok(ours.map(line).collect());
            }
            Err(Trouble::Final(failure)) => return Err(failure),
            Err(Trouble::Passing(why)) => tracing::warn!("{why}; it is tried again"),
        }
        now = now.wait().await;
    }
}

fn line(cluster: &Cluster) -> String {
    let status = cluster.status.name().unwrap_or("UNKNOWN");
    let nodes = cluster_nodes(cluster).map_or_else(|| "?".to_owned(), |it| it.to_string());
    format!("{} {status} {nodes} {}", cluster.name, cluster.create_time)
}
