//! The capacity of nodes, for setups that take their quota from nodes. Nodes and all pods are
//! watched only while there is such a setup.

use std::collections::HashMap;
use std::time::Duration;

use flux_operator_plan::kubernetes::CLUSTER_LABEL;
use flux_operator_plan::queueing::node_capacity;
use flux_operator_queue::{Resources, SetupName};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::queues::Queues;
use crate::cache_sync::SyncedStore;
use crate::watches::{config, prune};

/// How often the capacity is computed: pods start and finish all the time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Keeps the capacity of nodes up to date while a setup needs it.
pub(super) async fn watch_capacity(queues: Queues, client: Client) {
    let mut wanted = queues.needs_nodes.subscribe();
    loop {
        // The sender is in `queues`, so the channel is open.
        let _ = wanted.wait_for(|wanted| *wanted).await;
        tokio::select! {
            () = update_capacity(&queues, &client) => {}
            _ = wanted.wait_for(|wanted| !wanted) => {}
        }
        queues.ledger().put_node_capacity(HashMap::new());
        queues.wake_scheduler();
    }
}

async fn update_capacity(queues: &Queues, client: &Client) {
    let (nodes, node_changes) = watch(Api::<Node>::all(client.clone()), prune_node);
    let (pods, pod_changes) = watch(Api::<Pod>::all(client.clone()), prune_pod);
    let mut changes = stream::select(node_changes.boxed(), pod_changes.boxed());
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut changed = false;
    loop {
        tokio::select! {
            Some(()) = changes.next() => changed = true,
            _ = ticks.tick(), if changed => {
                changed = false;
                if nodes.has_synced() && pods.has_synced() {
                    let capacities = capacities(queues, &nodes, &pods);
                    queues.ledger().put_node_capacity(capacities);
                    queues.wake_scheduler();
                }
            }
        }
    }
}

/// A store, and a stream with an item for every change of it.
fn watch<K>(api: Api<K>, prune: fn(&mut K)) -> (SyncedStore<K>, impl futures::Stream<Item = ()>)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync,
{
    let (watched, writer) = SyncedStore::new();
    let events = watcher(api, config()).default_backoff().modify(prune);
    let store = watched.clone();
    let events = events.reflect(writer).filter_map(move |event| {
        let reported = match event {
            Ok(event) => {
                store.record(&event);
                (!matches!(event, Event::Init | Event::InitApply(_))).then_some(())
            }
            Err(error) => {
                tracing::warn!(%error, kind = %K::kind(&()), "a watch failed");
                None
            }
        };
        std::future::ready(reported)
    });
    (watched, events)
}

/// The capacity of each setup with `quotaFromNodes`. Pods of its own jobs, and of jobs that it will
/// take over, do not reduce it.
fn capacities(
    queues: &Queues,
    nodes: &SyncedStore<Node>,
    pods: &SyncedStore<Pod>,
) -> HashMap<SetupName, Resources> {
    let (nodes, pods) = (nodes.state(), pods.state());
    let queues_of_pods: Vec<Option<SetupName>> = pods
        .iter()
        .map(|pod| {
            let cluster = pod.labels().get(CLUSTER_LABEL)?;
            queues.queue_of_cluster(&pod.namespace().unwrap_or_default(), cluster)
        })
        .collect();
    let ledger = queues.ledger();
    let setups = ledger.setups().filter_map(|(name, setup)| {
        setup.spec.quota_from_nodes.as_ref().map(|quota| (name, &quota.node_selector))
    });
    let capacity = |(name, labels): (&SetupName, _)| {
        let is_own = |place: &SetupName| {
            place == name || ledger.scheduler().is_designated_successor(name, place)
        };
        let others = pods
            .iter()
            .zip(&queues_of_pods)
            .filter(|(_, place)| !place.as_ref().is_some_and(is_own));
        let others = others.map(|(pod, _)| &**pod);
        (name.clone(), node_capacity(labels, nodes.iter().map(|node| &**node), others))
    };
    setups.map(capacity).collect()
}

/// Keeps only what determines a node's capacity and whether it accepts pods.
fn prune_node(node: &mut Node) {
    prune(node);
    node.annotations_mut().clear();
    let spec = node.spec.take().unwrap_or_default();
    node.spec = Some(NodeSpec { unschedulable: spec.unschedulable, ..NodeSpec::default() });
    let NodeStatus { allocatable, conditions, .. } = node.status.take().unwrap_or_default();
    node.status = Some(NodeStatus { allocatable, conditions, ..NodeStatus::default() });
}

/// Keeps only a pod's node and its requests.
fn prune_pod(pod: &mut Pod) {
    prune(pod);
    pod.annotations_mut().clear();
    let spec = pod.spec.take().unwrap_or_default();
    let only_resources =
        |container: k8s_openapi::api::core::v1::Container| k8s_openapi::api::core::v1::Container {
            name: container.name,
            resources: container.resources,
            restart_policy: container.restart_policy,
            ..Default::default()
        };
    pod.spec = Some(PodSpec {
        node_name: spec.node_name,
        overhead: spec.overhead,
        containers: spec.containers.into_iter().map(only_resources).collect(),
        init_containers: spec
            .init_containers
            .map(|containers| containers.into_iter().map(only_resources).collect()),
        ..PodSpec::default()
    });
    let phase = pod.status.take().and_then(|status| status.phase);
    pod.status = Some(PodStatus { phase, ..PodStatus::default() });
}
