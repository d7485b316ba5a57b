//! Where the gateway is, and the addresses of nodes, for MiniClusters that are exposed to other
//! Kubernetes clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flux_operator_api::MiniCluster;
use flux_operator_plan::{GatewayEndpoint, GatewayView, PortHolder};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use tokio::sync::watch;

use crate::cache_sync::SyncedStore;
use crate::lock::lock;
use crate::stores::GuardedMiniCluster;
use crate::watches::{ChangeSender, config};

/// How often the addresses of nodes are read while a MiniCluster needs them. Four are published, so
/// that one that was removed meanwhile does no harm.
const NODE_INTERVAL: Duration = Duration::from_secs(30);

/// How many nodes are read at most, besides those with a pod of the gateway: only four are published.
const MAX_NODES: u32 = 50;

/// How long reconciliations wait for what is known about the gateway and the nodes. Without it, what
/// is published would change with every restart of the operator.
const START_LIMIT: Duration = Duration::from_secs(5);

/// Where the gateway is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayLocation {
    /// At this address, outside of the cluster.
    Address(IpAddr),
    /// In the pods of this Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What is known about the gateway and the nodes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gateway {
    known: Arc<Mutex<Known>>,
    needs_nodes: watch::Sender<bool>,
    /// The nodes with a pod of the gateway.
    gateway_nodes: watch::Sender<BTreeSet<String>>,
    /// Whether gateway and nodes were looked up once, successfully or not.
    looked_up: watch::Sender<LookedUp>,
    miniclusters: SyncedStore<GuardedMiniCluster>,
    changed: ChangeSender,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LookedUp {
    gateway: bool,
    nodes: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    endpoints: BTreeSet<GatewayEndpoint>,
    nodes: Option<BTreeMap<String, String>>,
}

impl Gateway {
    /// Nothing is known yet. MiniClusters that are affected by a change are sent to `changed`.
    pub(crate) fn new(
        miniclusters: SyncedStore<GuardedMiniCluster>,
        changed: ChangeSender,
    ) -> Gateway {
        Gateway {
            known: Arc::default(),
            needs_nodes: watch::channel(false).0,
            gateway_nodes: watch::channel(BTreeSet::new()).0,
            looked_up: watch::channel(LookedUp::default()).0,
            miniclusters,
            changed,
        }
    }

    /// Waits until gateway and nodes were looked up once, but not for long: most MiniClusters do not
    /// need them.
    pub(crate) async fn wait_until_looked_up(&self) {
        let mut looked_up = self.looked_up.subscribe();
        let all = LookedUp { gateway: true, nodes: true };
        // Both a timeout and a closed channel end the wait.
        let _ = tokio::time::timeout(START_LIMIT, looked_up.wait_for(|it| *it == all)).await;
    }

    /// What a MiniCluster that is exposed needs to know; nothing for others.
    pub(crate) fn view(&self, minicluster: &MiniCluster) -> GatewayView {
        if !is_exposed(minicluster) {
            return GatewayView::default();
        }
        self.needs_nodes.send_if_modified(|needs| !std::mem::replace(needs, true));
        let Known { endpoints, nodes } = lock(&self.known).clone();
        GatewayView { endpoints, taken_ports: self.taken_ports(minicluster), nodes }
    }

    /// The ports that other MiniClusters use on the gateway.
    fn taken_ports(&self, minicluster: &MiniCluster) -> BTreeMap<u16, PortHolder> {
        let mut taken: BTreeMap<u16, PortHolder> = BTreeMap::new();
        for other in self.miniclusters.state() {
            let Ok(other) = &other.0 else { continue };
            let Some(uid) = other.uid().filter(|uid| Some(uid) != minicluster.uid().as_ref())
            else {
                continue;
            };
            for lease in other.status.iter().flat_map(|status| &status.leases) {
                let port = lease.invitation.as_ref().map(|it| it.gateway_port);
                let Some(port) = port.and_then(|it| u16::try_from(it).ok()) else { continue };
                // As in the gateway, which serves the older one.
                let since = lease.since.parse().unwrap_or(Timestamp::MAX);
                let holder = PortHolder { since, uid: uid.clone() };
                let first = taken.entry(port).or_insert_with(|| holder.clone());
                if holder < *first {
                    *first = holder;
                }
            }
        }
        taken
    }

    fn update(&self, change: impl FnOnce(&mut Known)) {
        let mut known = lock(&self.known);
        let before = known.clone();
        change(&mut known);
        if *known == before {
            return;
        }
        let on = known.endpoints.iter().map(|it| it.node.clone()).filter(|node| !node.is_empty());
        let on: BTreeSet<String> = on.collect();
        drop(known);
        self.gateway_nodes.send_if_modified(|nodes| on != std::mem::replace(nodes, on.clone()));
        for object in self.miniclusters.state() {
            if object.0.as_ref().is_ok_and(is_exposed) {
                // The receiver is dropped only while the operator stops.
                let _ = self.changed.send(ObjectRef::from_obj(&*object));
            }
        }
    }

    /// Follows the gateway's address, if it can change.
    pub(crate) async fn follow(self, client: Client, location: Option<GatewayLocation>) {
        let is_watched = matches!(location, Some(GatewayLocation::Service { .. }));
        self.looked_up.send_modify(|it| it.gateway = !is_watched);
        match location {
            None => {}
            Some(GatewayLocation::Address(address)) => {
                let endpoint = GatewayEndpoint { address, node: String::new() };
                self.update(|known| known.endpoints = BTreeSet::from([endpoint]));
            }
            Some(GatewayLocation::Service { namespace, name }) => {
                self.watch_service(client, &namespace, &name).await;
            }
        }
        // A task that returns would stop the operator.
        std::future::pending::<()>().await;
    }

    async fn watch_service(&self, client: Client, namespace: &str, name: &str) {
        let slices: Api<EndpointSlice> = Api::namespaced(client, namespace);
        let of_service = config().labels(&format!("kubernetes.io/service-name={name}"));
        let (store, writer) = SyncedStore::new();
        let mut events = watcher(slices, of_service).default_backoff().reflect(writer).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                Ok(_) => {
                    let found = store.state().iter().flat_map(|it| ready_endpoints(it)).collect();
                    self.update(|known| known.endpoints = found);
                    self.looked_up.send_modify(|it| it.gateway = true);
                }
                Err(error) => {
                    tracing::warn!(%error, "the watch of the gateway failed");
                    self.looked_up.send_modify(|it| it.gateway = true);
                }
            }
        }
    }

    /// Reads the addresses of nodes, and keeps them up to date while a MiniCluster needs them.
    pub(crate) async fn follow_nodes(self, client: Client) {
        let nodes: Api<Node> = Api::all(client);
        let mut needed = self.needs_nodes.subscribe();
        let mut gateway_nodes = self.gateway_nodes.subscribe();
        // The sender is in `self`, as those below, so the channel is open.
        let _ = self.looked_up.subscribe().wait_for(|it| it.gateway).await;
        loop {
            let on = gateway_nodes.borrow_and_update().clone();
            match read_nodes(&nodes, &on).await {
                Ok(addresses) => self.update(|known| known.nodes = Some(addresses)),
                // An operator for one namespace has no permission for it.
                Err(error) => tracing::info!(%error, "the addresses of nodes cannot be read"),
            }
            self.looked_up.send_modify(|it| it.nodes = true);
            // A gateway that was moved is published at once.
            let _ = tokio::time::timeout(NODE_INTERVAL, gateway_nodes.changed()).await;
            let is_needed =
                self.miniclusters.state().iter().any(|it| it.0.as_ref().is_ok_and(is_exposed));
            self.needs_nodes
                .send_if_modified(|needs| is_needed != std::mem::replace(needs, is_needed));
            let _ = needed.wait_for(|needed| *needed).await;
        }
    }
}

fn is_exposed(minicluster: &MiniCluster) -> bool {
    let bursting = minicluster.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    bursting.is_some_and(|bursting| bursting.expose.is_some())
}

/// Reads the addresses of some nodes, and of those with these names: if the source of connections is
/// checked, only nodes with a pod of the gateway accept any. The operator may list nodes, but not get one,
/// so these are lists too.
async fn read_nodes(
    nodes: &Api<Node>,
    names: &BTreeSet<String>,
) -> Result<BTreeMap<String, String>, kube::Error> {
    let mut found = nodes.list(&ListParams::default().limit(MAX_NODES)).await?.items;
    let is_found = |name: &&String| found.iter().any(|node| node.name_any() == **name);
    let missing: Vec<&String> = names.iter().filter(|name| !is_found(name)).collect();
    for name in missing {
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        found.extend(nodes.list(&named).await?.items);
    }
    Ok(found.iter().filter_map(node_address).collect())
}

/// The endpoints of a slice that accept connections.
fn ready_endpoints(slice: &EndpointSlice) -> Vec<GatewayEndpoint> {
    let is_ready = |it: &&k8s_openapi::api::discovery::v1::Endpoint| {
        it.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
    };
    let endpoints = slice.endpoints.iter().flatten().filter(is_ready);
    endpoints
        .filter_map(|it| {
            let address = it.addresses.first()?.parse().ok()?;
            Some(GatewayEndpoint { address, node: it.node_name.clone().unwrap_or_default() })
        })
        .collect()
}

/// The name of a node that is ready, and the address to publish: the external one if it has one.
fn node_address(node: &Node) -> Option<(String, String)> {
    let NodeStatus { addresses, conditions, .. } = node.status.as_ref()?;
    let mut conditions = conditions.iter().flatten();
    conditions.find(|it| it.type_ == "Ready" && it.status == "True")?;
    let of = |kind: &str| addresses.iter().flatten().find(|it| it.type_ == kind);
    let address = of("ExternalIP").or_else(|| of("InternalIP"))?;
    Some((node.name_any(), address.address.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Request, Response};
    use flux_operator_service::guarded::Guarded;
    use kube::client::Body;
    use serde_json::{Value, json};

    fn node(name: &str, address: &str) -> Value {
        let addresses = json!([{ "type": "InternalIP", "address": address }]);
        let conditions = json!([{ "type": "Ready", "status": "True" }]);
        json!({ "metadata": { "name": name },
            "status": { "conditions": conditions, "addresses": addresses } })
    }

    /// An API server with more nodes than are listed. The gateway can be on `z1` or `z2`.
    fn many_nodes() -> Client {
        let api = tower::service_fn(async |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let items = match query.split_once("metadata.name%3D") {
                None => vec![node("a", "10.0.0.1"), node("b", "10.0.0.2")],
                Some((_, name)) => vec![node(name, &format!("10.0.9.{}", &name[1..]))],
            };
            let list = json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {},
                "items": items });
            let body = Body::from(list.to_string().into_bytes());
            Response::builder().status(200).body(body)
        });
        Client::new(api, "default")
    }

    /// Where sources are checked, only the node with the gateway's pod accepts connections.
    #[tokio::test(start_paused = true)]
    async fn the_node_of_the_gateway_is_known_even_if_there_are_many() {
        let (miniclusters, mut writer) = SyncedStore::new();
        let gateway = Gateway::new(miniclusters, tokio::sync::mpsc::unbounded_channel().0);
        let mut exposed = MiniCluster::new("a", Default::default());
        exposed.metadata.namespace = Some("default".into());
        exposed.spec.flux =
            serde_json::from_value(json!({ "bursting": { "expose": {} } })).unwrap();
        gateway.view(&exposed);
        writer.apply_watcher_event(&watcher::Event::Apply(Guarded(Ok(exposed.clone()))));
        let move_to = |node: &str| {
            let endpoint = GatewayEndpoint { address: [10, 2, 0, 9].into(), node: node.into() };
            gateway.update(|known| known.endpoints = BTreeSet::from([endpoint]));
        };
        let known = || {
            let nodes = lock(&gateway.known).nodes.clone().unwrap_or_default();
            nodes.into_iter().map(|(name, address)| format!("{name} {address}")).collect::<Vec<_>>()
        };
        let follows = tokio::spawn(gateway.clone().follow_nodes(many_nodes()));
        move_to("z1");
        gateway.looked_up.send_modify(|it| it.gateway = true);
        gateway.wait_until_looked_up().await;
        assert_eq!(known(), ["a 10.0.0.1", "b 10.0.0.2", "z1 10.0.9.1"]);
        let begun = tokio::time::Instant::now();
        move_to("z2");
        while known().last().is_none_or(|it| it != "z2 10.0.9.2") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(begun.elapsed() < NODE_INTERVAL, "it was not noticed that the gateway was moved");
        writer.apply_watcher_event(&watcher::Event::Delete(Guarded(Ok(exposed))));
        let mut needs_nodes = gateway.needs_nodes.subscribe();
        needs_nodes.wait_for(|needs| !needs).await.unwrap();
        follows.abort();
    }

    #[test]
    fn a_node_publishes_its_external_address() {
        let node = |ready: &str, addresses: serde_json::Value| -> Option<String> {
            let conditions = json!([{ "type": "Ready", "status": ready }]);
            let status = json!({ "conditions": conditions, "addresses": addresses });
            let node = json!({ "metadata": { "name": "n" }, "status": status });
            node_address(&serde_json::from_value(node).unwrap()).map(|(_, address)| address)
        };
        let internal = json!({ "type": "InternalIP", "address": "10.0.0.1" });
        let external = json!({ "type": "ExternalIP", "address": "203.0.113.1" });
        let both = json!([internal, external]);
        assert_eq!(node("True", both.clone()).as_deref(), Some("203.0.113.1"));
        assert_eq!(node("True", json!([internal])).as_deref(), Some("10.0.0.1"));
        assert_eq!(node("False", both), None);
    }
}
