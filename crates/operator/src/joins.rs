//! Which MiniClusters join which: a change of one requires a reconciliation of the other.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use flux_operator_api::MiniCluster;
use flux_operator_plan::lender_of;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::index::OwnerKey;
use crate::lock::lock;
use crate::stores::{GuardedMiniCluster, reference};
use crate::watches::ChangeSender;

/// The lenders that joiners name, whether or not they exist. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Joins(Arc<Mutex<JoinsState>>);

#[derive(Default)]
struct JoinsState {
    lenders: HashMap<OwnerKey, OwnerKey>,
    joiners: HashMap<OwnerKey, BTreeSet<OwnerKey>>,
    /// The joiners of a list that is not complete yet.
    listed: HashMap<OwnerKey, OwnerKey>,
}

impl Joins {
    /// The joiners that name a MiniCluster.
    pub(crate) fn joiners_of(&self, lender: &OwnerKey) -> Vec<OwnerKey> {
        lock(&self.0).joiners.get(lender).into_iter().flatten().cloned().collect()
    }

    /// The MiniClusters that a change of this one may affect: its lender and its joiners.
    fn partners(&self, of: &OwnerKey) -> Vec<OwnerKey> {
        let state = lock(&self.0);
        let joiners = state.joiners.get(of).into_iter().flatten();
        state.lenders.get(of).into_iter().chain(joiners).cloned().collect()
    }

    /// Applies an event of the watch of MiniClusters. Returns the lenders that are affected because
    /// a joiner does not name them any more.
    pub(crate) fn apply(&self, event: &Event<GuardedMiniCluster>) -> Vec<OwnerKey> {
        let mut state = lock(&self.0);
        match event {
            Event::Init => {
                state.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                if let Some((joiner, lender)) = named_lender(object) {
                    state.listed.insert(joiner, lender);
                }
                Vec::new()
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut state.listed);
                let before = std::mem::take(&mut *state);
                for (joiner, lender) in listed {
                    state.insert(joiner, lender);
                }
                let lost = before.lenders.into_iter();
                lost.filter(|(joiner, lender)| state.lenders.get(joiner) != Some(lender))
                    .map(|(_, lender)| lender)
                    .collect()
            }
            Event::Apply(object) => {
                let left = state.remove(&key(object));
                let now = named_lender(object).map(|(joiner, lender)| {
                    state.insert(joiner, lender.clone());
                    lender
                });
                left.filter(|lender| now.as_ref() != Some(lender)).into_iter().collect()
            }
            Event::Delete(object) => state.remove(&key(object)).into_iter().collect(),
        }
    }

    /// Passes on the names of MiniClusters to reconcile, each with its partners.
    pub(crate) async fn relay(
        self,
        mut changes: UnboundedReceiver<ObjectRef<GuardedMiniCluster>>,
        to: ChangeSender,
    ) {
        while let Some(changed) = changes.recv().await {
            let of = (changed.namespace.clone().unwrap_or_default(), changed.name.clone());
            let partners = self.partners(&of).iter().map(reference).collect::<Vec<_>>();
            for reference in std::iter::once(changed).chain(partners) {
                if to.send(reference).is_err() {
                    // The reconciler has stopped.
                    return;
                }
            }
        }
    }
}

impl JoinsState {
    fn insert(&mut self, joiner: OwnerKey, lender: OwnerKey) {
        self.joiners.entry(lender.clone()).or_default().insert(joiner.clone());
        self.lenders.insert(joiner, lender);
    }

    fn remove(&mut self, joiner: &OwnerKey) -> Option<OwnerKey> {
        let lender = self.lenders.remove(joiner)?;
        if let Some(joiners) = self.joiners.get_mut(&lender) {
            joiners.remove(joiner);
            if joiners.is_empty() {
                self.joiners.remove(&lender);
            }
        }
        Some(lender)
    }
}

fn key(object: &GuardedMiniCluster) -> OwnerKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn named_lender(object: &GuardedMiniCluster) -> Option<(OwnerKey, OwnerKey)> {
    let minicluster: &MiniCluster = object.0.as_ref().ok()?;
    let lender = lender_of(minicluster)?;
    Some((key(object), (lender.namespace, lender.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::DeserializeGuard;
    use serde_json::json;

    fn joiner(name: &str, lender: Option<&str>) -> GuardedMiniCluster {
        let join = lender.map(|name| json!({ "join": { "name": name } }));
        let minicluster = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
            "metadata": { "name": name, "namespace": "n" },
            "spec": { "containers": [{}], "flux": join.unwrap_or(json!({})) } });
        DeserializeGuard(Ok(serde_json::from_value(minicluster).unwrap()))
    }

    fn name(name: &str) -> OwnerKey {
        ("n".into(), name.into())
    }

    #[test]
    fn partners_follow_the_joiners() {
        let joins = Joins::default();
        assert_eq!(joins.apply(&Event::Apply(joiner("b", Some("a")))), []);
        joins.apply(&Event::Apply(joiner("c", Some("a"))));
        assert_eq!(joins.partners(&name("a")), [name("b"), name("c")]);
        assert_eq!(joins.partners(&name("b")), [name("a")]);
        let moved = joins.apply(&Event::Apply(joiner("b", Some("z"))));
        assert_eq!(moved, [name("a")], "the former lender is reconciled");
        assert_eq!(joins.joiners_of(&name("a")), [name("c")]);
        assert_eq!(joins.apply(&Event::Delete(joiner("c", Some("a")))), [name("a")]);
        assert_eq!(joins.partners(&name("a")), []);
    }

    #[test]
    fn a_list_replaces_all() {
        let joins = Joins::default();
        joins.apply(&Event::Apply(joiner("b", Some("a"))));
        joins.apply(&Event::Init);
        joins.apply(&Event::InitApply(joiner("c", Some("a"))));
        assert_eq!(joins.joiners_of(&name("a")), [name("b")], "the list is not complete");
        assert_eq!(joins.apply(&Event::InitDone), [name("a")]);
        assert_eq!(joins.joiners_of(&name("a")), [name("c")]);
    }
}
