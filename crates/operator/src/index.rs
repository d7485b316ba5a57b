//! Objects of one kind, kept up to date by a watch and indexed by their owner, usually a
//! MiniCluster.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use flux_operator_plan::kubernetes::CLUSTER_LABEL;
use kube::ResourceExt;
use kube::runtime::watcher::Event;

use crate::cache_sync::SyncState;
use crate::lease::Term;
use crate::lock::lock;

/// The namespace and name of an owner: a MiniCluster, unless stated otherwise.
pub(crate) type OwnerKey = (String, String);

/// The observed objects of one kind. Cheap to clone.
pub(crate) struct Index<K> {
    inner: Arc<Mutex<IndexState<K>>>,
    sync: SyncState,
    owners: fn(&K) -> Vec<OwnerKey>,
}

struct IndexState<K> {
    by_owner: HashMap<OwnerKey, BTreeMap<String, Arc<K>>>,
    /// The objects of a list that is not complete yet. They replace `by_owner` when it is.
    incoming: HashMap<OwnerKey, BTreeMap<String, Arc<K>>>,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Index { inner: self.inner.clone(), sync: self.sync.clone(), owners: self.owners }
    }
}

impl<K: ResourceExt> Index<K> {
    /// An empty index by MiniCluster.
    pub(crate) fn new() -> Index<K> {
        Index::keyed_by(owners)
    }

    /// An empty index by the owners that `owners` returns.
    pub(crate) fn keyed_by(owners: fn(&K) -> Vec<OwnerKey>) -> Index<K> {
        let inner = IndexState { by_owner: HashMap::new(), incoming: HashMap::new() };
        Index { inner: Arc::new(Mutex::new(inner)), sync: SyncState::new(), owners }
    }

    /// Records that nothing will be listed: the operator lacks the permission, or does not watch
    /// this kind.
    pub(crate) fn skip_sync(&self) {
        self.sync.skip();
    }

    /// Whether all objects have been listed once.
    pub(crate) fn has_synced(&self) -> bool {
        self.sync.has_synced()
    }

    /// Waits until all objects have been listed in this term.
    pub(crate) async fn wait_until_synced(&self, term: Term) {
        self.sync.wait_until_synced(term).await;
    }

    /// The [`SyncState`], for the watch that fills the index.
    pub(crate) fn sync_state(&self) -> SyncState {
        self.sync.clone()
    }

    /// The objects of an owner, sorted by name.
    pub(crate) fn owned_by(&self, owner: &OwnerKey) -> Vec<Arc<K>> {
        let inner = self.lock();
        inner.by_owner.get(owner).map(|all| all.values().cloned().collect()).unwrap_or_default()
    }

    /// Applies an event of the watch, and calls `changed` for each owner whose objects changed. The
    /// index counts as synced only after all these calls.
    pub(crate) fn apply_event(&self, event: Event<K>, changed: impl FnMut(&OwnerKey)) {
        let is_complete = matches!(event, Event::InitDone);
        self.apply(event).iter().for_each(changed);
        if is_complete {
            self.sync.finish_list();
        }
    }

    fn apply(&self, event: Event<K>) -> Vec<OwnerKey> {
        let mut inner = self.lock();
        match event {
            Event::Init => {
                inner.incoming.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                insert(&mut inner.incoming, object, self.owners);
                Vec::new()
            }
            Event::InitDone => {
                let incoming = std::mem::take(&mut inner.incoming);
                let before = std::mem::replace(&mut inner.by_owner, incoming);
                let mut owners: Vec<OwnerKey> =
                    inner.by_owner.keys().chain(before.keys()).cloned().collect();
                owners.sort();
                owners.dedup();
                owners
            }
            Event::Apply(object) => insert(&mut inner.by_owner, object, self.owners),
            Event::Delete(object) => {
                let owners = (self.owners)(&object);
                for owner in &owners {
                    if let Some(all) = inner.by_owner.get_mut(owner) {
                        all.remove(&object.name_any());
                        if all.is_empty() {
                            inner.by_owner.remove(owner);
                        }
                    }
                }
                owners
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, IndexState<K>> {
        lock(&self.inner)
    }
}

fn insert<K: ResourceExt>(
    index: &mut HashMap<OwnerKey, BTreeMap<String, Arc<K>>>,
    object: K,
    owners: fn(&K) -> Vec<OwnerKey>,
) -> Vec<OwnerKey> {
    let owners = owners(&object);
    let object = Arc::new(object);
    for owner in &owners {
        index.entry(owner.clone()).or_default().insert(object.name_any(), object.clone());
    }
    owners
}

/// The owners of an object: the MiniCluster in its label, and the MiniClusters in its owner
/// references, of which a shared object has several.
fn owners<K: ResourceExt>(object: &K) -> Vec<OwnerKey> {
    let namespace = object.namespace().unwrap_or_default();
    let labelled = object.labels().get(CLUSTER_LABEL).filter(|name| !name.is_empty()).into_iter();
    let owning = object.owner_references().iter().filter(|owner| owner.kind == "MiniCluster");
    let mut names: Vec<&String> = labelled.chain(owning.map(|owner| &owner.name)).collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|name| (namespace.clone(), name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(name: &str, cluster: &str) -> Pod {
        let metadata =
            json!({ "name": name, "namespace": "n", "labels": { CLUSTER_LABEL: cluster } });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn owner(name: &str) -> OwnerKey {
        ("n".into(), name.into())
    }

    fn names(index: &Index<Pod>, cluster: &str) -> Vec<String> {
        index.owned_by(&owner(cluster)).iter().map(|pod| pod.name_any()).collect()
    }

    fn apply(index: &Index<Pod>, event: Event<Pod>) -> Vec<OwnerKey> {
        let mut changed = Vec::new();
        index.apply_event(event, |owner| changed.push(owner.clone()));
        changed
    }

    #[test]
    fn a_list_replaces_everything_at_once_and_changes_follow() {
        let index = Index::new();
        assert_eq!(apply(&index, Event::Apply(pod("old", "a"))), [owner("a")]);
        apply(&index, Event::Init);
        apply(&index, Event::InitApply(pod("b-0", "b")));
        assert_eq!(names(&index, "a"), ["old"], "a list that is not complete changes nothing");
        assert_eq!(apply(&index, Event::InitDone), [owner("a"), owner("b")]);
        assert_eq!(names(&index, "a"), [""; 0]);
        apply(&index, Event::Apply(pod("b-1", "b")));
        assert_eq!(names(&index, "b"), ["b-0", "b-1"]);
        assert_eq!(apply(&index, Event::Delete(pod("b-0", "b"))), [owner("b")]);
        assert_eq!(names(&index, "b"), ["b-1"]);
    }

    #[test]
    fn a_shared_object_belongs_to_each_owner() {
        let reference = |name: &str| json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "name": name, "uid": name });
        let metadata = json!({ "name": "shared", "namespace": "n", "ownerReferences": [reference("a"), reference("b")] });
        let shared: Pod = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let index = Index::new();
        assert_eq!(apply(&index, Event::Apply(shared)), [owner("a"), owner("b")]);
        assert_eq!(names(&index, "b"), ["shared"]);
    }

    #[test]
    fn the_index_has_synced_once_all_owners_were_reported() {
        let index = Index::new();
        apply(&index, Event::Init);
        apply(&index, Event::InitApply(pod("b-0", "b")));
        let mut reported = 0;
        index.apply_event(Event::InitDone, |_| {
            assert!(!index.has_synced(), "a decision could be made without it");
            reported += 1;
        });
        assert_eq!(reported, 1);
        assert!(index.has_synced());
    }
}
