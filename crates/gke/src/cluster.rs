//! The cluster to make, and what is read from one that exists. Pure.

use std::collections::HashMap;

use flux_operator_wire::GkeFailure;
use google_cloud_container_v1::model::release_channel::Channel;
use google_cloud_container_v1::model::{
    Cluster, NodeConfig, NodePool, NodePoolAutoscaling, ReleaseChannel,
};

use crate::settings::Settings;
use crate::trouble::{Failure, short};

/// The label of every cluster that is made for a Burst. Its value is the cluster's name.
pub(crate) const LABEL: &str = "flux-framework-org-burst";

/// The name of its one node pool.
pub(crate) const NODE_POOL: &str = "burst";

/// What nodes may do is decided by the rights of their account, as Google recommends.
const NODE_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The cluster, as Google is asked for it.
pub(crate) fn wanted(settings: &Settings) -> Result<Cluster, Failure> {
    let target = &settings.target;
    let labels = labels(settings);
    let config = NodeConfig::new()
        .set_machine_type(&target.machine_type)
        .set_disk_size_gb(target.disk_size_gb)
        .set_service_account(&target.node_service_account)
        .set_oauth_scopes([NODE_SCOPE])
        .set_spot(target.spot)
        .set_resource_labels(labels.clone());
    let mut pool = NodePool::new()
        .set_name(NODE_POOL)
        .set_initial_node_count(settings.nodes)
        .set_config(config);
    if let Some((min, max)) = target.autoscaling {
        let autoscaling = NodePoolAutoscaling::new().set_enabled(true);
        pool = pool.set_autoscaling(autoscaling.set_min_node_count(min).set_max_node_count(max));
    }
    let mut cluster = Cluster::new()
        .set_name(&settings.name)
        .set_resource_labels(labels)
        .set_network(&target.network)
        .set_subnetwork(&target.subnetwork)
        .set_initial_cluster_version(&target.version)
        .set_node_pools([pool]);
    if let Some(channel) = channel(&target.release_channel)? {
        cluster = cluster.set_release_channel(ReleaseChannel::new().set_channel(channel));
    }
    Ok(cluster)
}

/// The user's labels, and ours, which wins: leftovers are found by it.
fn labels(settings: &Settings) -> HashMap<String, String> {
    let mut labels: HashMap<String, String> = settings.target.labels.clone().into_iter().collect();
    labels.insert(LABEL.to_owned(), settings.name.clone());
    labels
}

fn channel(name: &str) -> Result<Option<Channel>, Failure> {
    Ok(Some(match name {
        "" => return Ok(None),
        "Rapid" => Channel::Rapid,
        "Regular" => Channel::Regular,
        "Stable" => Channel::Stable,
        "Extended" => Channel::Extended,
        other => {
            let message = format!("there is no release channel {other:?}");
            return Err(Failure::new(GkeFailure::Settings, message));
        }
    }))
}

/// Refuses a cluster that was not made for this Burst.
pub(crate) fn check_owner(cluster: &Cluster, settings: &Settings) -> Result<(), Failure> {
    match cluster.resource_labels.get(LABEL) {
        Some(value) if *value == settings.name => Ok(()),
        _ => {
            let message = format!(
                "cluster {} in {} of project {} does not have the label {LABEL}={}: it is left as it is",
                settings.name, settings.target.location, settings.target.project, settings.name
            );
            Err(Failure::new(GkeFailure::OtherOwner, message))
        }
    }
}

/// To how many nodes the pool has to grow, if it has to.
///
/// It is never made smaller: Google would choose which machines to delete, and jobs may run on them. With
/// an autoscaler it has the size that pods need.
pub(crate) fn missing_size(cluster: &Cluster, settings: &Settings) -> Option<i32> {
    if settings.target.autoscaling.is_some() {
        return None;
    }
    let initial = cluster.node_pools.iter().find(|it| it.name == NODE_POOL);
    let initial = initial.map(|it| it.initial_node_count).unwrap_or_default();
    (cluster_nodes(cluster).unwrap_or(initial) < settings.nodes).then_some(settings.nodes)
}

/// How many nodes a cluster has, if Google says so.
pub(crate) fn cluster_nodes(cluster: &Cluster) -> Option<i32> {
    #[expect(deprecated, reason = "nothing else of this API has the size after a change of it")]
    let nodes = cluster.current_node_count;
    (nodes > 0).then_some(nodes)
}

/// Why Google could not make a cluster.
pub(crate) fn broken(cluster: &Cluster) -> Failure {
    use google_cloud_container_v1::model::status_condition::Code;
    #[expect(deprecated, reason = "older clusters have their trouble only here")]
    let message = cluster.status_message.clone();
    let is_quota = |code: &Code| matches!(code, Code::GceQuotaExceeded | Code::GceStockout);
    let quota = cluster.conditions.iter().any(|it| {
        #[expect(deprecated, reason = "Google still sets it, besides the canonical code")]
        let code = &it.code;
        is_quota(code)
    });
    let said: Vec<&str> = cluster.conditions.iter().map(|it| it.message.as_str()).collect();
    let said = if said.is_empty() { message } else { said.join("; ") };
    let kind = if quota { GkeFailure::Quota } else { GkeFailure::Broken };
    Failure::new(kind, format!("cluster {}: {}", cluster.name, short(&said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let target = r#"{"project": "p", "location": "z", "machineType": "m", "labels": {
            "team": "hpc", "flux-framework-org-burst": "mine" }, "releaseChannel": "Rapid"}"#;
        Settings::of(|name| match name {
            "BURST_NODES" => Some("3".into()),
            "GKE_SETTINGS" => Some(target.into()),
            "GKE_CREDENTIALS" | "GKE_ENDPOINT" => None,
            _ => Some("burst-0".into()),
        })
        .unwrap()
    }

    #[test]
    fn a_cluster_has_one_pool_and_a_label_that_users_cannot_replace() {
        let cluster = wanted(&settings()).unwrap();
        assert_eq!(cluster.resource_labels[LABEL], "burst-0");
        assert_eq!(cluster.resource_labels["team"], "hpc");
        let [pool] = &cluster.node_pools[..] else { panic!("{:?}", cluster.node_pools) };
        assert_eq!((pool.name.as_str(), pool.initial_node_count), ("burst", 3));
        assert!(pool.autoscaling.is_none());
        check_owner(&cluster, &settings()).unwrap();
        let other = cluster.set_resource_labels([(LABEL, "burst-1")]);
        assert_eq!(check_owner(&other, &settings()).unwrap_err().kind, GkeFailure::OtherOwner);
    }

    #[test]
    fn a_pool_grows_and_never_shrinks_and_an_autoscaler_is_left_alone() {
        let mut settings = settings();
        let cluster = wanted(&settings).unwrap();
        assert_eq!(missing_size(&cluster, &settings), None);
        settings.nodes = 2;
        assert_eq!(missing_size(&cluster, &settings), None);
        settings.nodes = 4;
        assert_eq!(missing_size(&cluster, &settings), Some(4));
        settings.target.autoscaling = Some((1, 8));
        assert_eq!(missing_size(&cluster, &settings), None);
        let pool = &wanted(&settings).unwrap().node_pools[0];
        let autoscaling = pool.autoscaling.clone().unwrap();
        assert_eq!((autoscaling.min_node_count, autoscaling.max_node_count), (1, 8));
    }
}
