//! For tests: a replica with one cluster, whose uid is `uid`, or with others.

use axum::http::{Request, Response};
use flux_operator_api::MiniCluster;
use flux_operator_service::guarded::Guarded;
use flux_operator_wire::seal::SealKey;
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;

use super::Reports;
use crate::cache_sync::SyncedStore;
use crate::gateway::Gateway;
use crate::health::Health;
use crate::http::ServerState;
use crate::index::Index;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::stores::Stores;

pub(super) fn key() -> SealKey {
    SealKey::from_bytes([7; 32])
}

/// A replica that has cached the cluster's key, and has no API server.
pub(super) fn server_with_key(leadership: Leadership) -> ServerState {
    let unreachable = tower::service_fn(async |_: Request<Body>| {
        Err::<Response<Body>, _>(std::io::Error::other("there is no API server"))
    });
    let server = server(leadership, Client::new(unreachable, "default"));
    server.reports.cache_key("uid", key(), &std::iter::once("uid".to_owned()).collect());
    server
}

/// A replica that has not read the cluster's key yet.
pub(super) fn server(leadership: Leadership, client: Client) -> ServerState {
    server_with(leadership, client, [minicluster()])
}

/// A replica that has observed these MiniClusters, and no other objects.
pub(crate) fn server_with(
    leadership: Leadership,
    client: Client,
    observed: impl IntoIterator<Item = MiniCluster>,
) -> ServerState {
    let (miniclusters, mut writer) = SyncedStore::new();
    for minicluster in observed {
        writer.apply_watcher_event(&Event::Apply(Guarded(Ok(minicluster))));
    }
    let metrics = Metrics::new();
    let (changed, _) = tokio::sync::mpsc::unbounded_channel();
    let queues = crate::queue::PreparedQueues::new(
        "default",
        miniclusters.clone(),
        changed.clone(),
        &metrics,
    )
    .queues;
    ServerState {
        client,
        stores: Stores {
            gateway: Gateway::new(miniclusters.clone(), changed),
            miniclusters,
            jobs: Index::new(),
            pods: Index::new(),
            config_maps: Index::new(),
            services: Index::new(),
            endpoint_slices: Index::new(),
            policies: Index::keyed_by(|_| Vec::new()),
            joins: Default::default(),
        },
        reports: Reports::new(tokio::sync::mpsc::unbounded_channel().0, leadership.clone()),
        leadership,
        health: Health::default(),
        metrics,
        queues,
    }
}

pub(crate) fn minicluster() -> MiniCluster {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": "a", "namespace": "a", "uid": "uid" },
        "spec": { "containers": [{ "image": "a" }] },
    }))
    .unwrap()
}
