//! Which MiniClusters name which as their lender.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use flux_operator_api::MiniCluster;
use flux_operator_plan::lender_of;
use kube::ResourceExt;
use kube::runtime::watcher::Event;

use crate::index::OwnerKey;
use crate::lock::lock;
use crate::stores::GuardedMiniCluster;

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

    /// The lender that a joiner names.
    pub(crate) fn lender_of(&self, joiner: &OwnerKey) -> Option<OwnerKey> {
        lock(&self.0).lenders.get(joiner).cloned()
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
    use flux_operator_service::guarded::Guarded;
    use serde_json::json;

    fn joiner(name: &str, lender: Option<&str>) -> GuardedMiniCluster {
        let join = lender.map(|name| json!({ "join": { "name": name } }));
        let minicluster = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
            "metadata": { "name": name, "namespace": "n" },
            "spec": { "containers": [{}], "flux": join.unwrap_or(json!({})) } });
        Guarded(Ok(serde_json::from_value(minicluster).unwrap()))
    }

    fn name(name: &str) -> OwnerKey {
        ("n".into(), name.into())
    }

    #[test]
    fn lenders_follow_the_joiners() {
        let joins = Joins::default();
        assert_eq!(joins.apply(&Event::Apply(joiner("b", Some("a")))), []);
        joins.apply(&Event::Apply(joiner("c", Some("a"))));
        assert_eq!(joins.joiners_of(&name("a")), [name("b"), name("c")]);
        assert_eq!(joins.lender_of(&name("b")), Some(name("a")));
        let moved = joins.apply(&Event::Apply(joiner("b", Some("z"))));
        assert_eq!(moved, [name("a")], "the former lender is reconciled");
        assert_eq!(joins.joiners_of(&name("a")), [name("c")]);
        assert_eq!(joins.apply(&Event::Delete(joiner("c", Some("a")))), [name("a")]);
        assert_eq!(joins.joiners_of(&name("a")), []);
        assert_eq!(joins.lender_of(&name("c")), None);
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
