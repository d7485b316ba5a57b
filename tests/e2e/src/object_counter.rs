//! The number of objects of each kind that were ever created for a MiniCluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use flux_operator_plan::kubernetes::CLUSTER_LABEL;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::TestNamespace;

/// Counts all objects of a MiniCluster that ever existed, by kind.
pub struct ObjectCounter {
    uids: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
    _watches: JoinSet<()>,
}

impl ObjectCounter {
    /// Starts counting.
    pub fn start(stage: &TestNamespace, name: &str) -> ObjectCounter {
        let mut census = ObjectCounter { uids: Arc::default(), _watches: JoinSet::new() };
        census.count::<Job>(stage, name);
        census.count::<Pod>(stage, name);
        census.count::<Secret>(stage, name);
        census
    }

    fn count<K>(&mut self, stage: &TestNamespace, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Send + 'static,
        K: std::fmt::Debug + DeserializeOwned,
    {
        let api: Api<PartialObjectMeta<K>> =
            Api::namespaced(stage.client.clone(), &stage.namespace);
        let all =
            watcher(api, watcher::Config::default().labels(&format!("{CLUSTER_LABEL}={name}")));
        let uids = self.uids.clone();
        self._watches.spawn(all.default_backoff().applied_objects().into_stream().for_each(
            move |object| {
                if let Some(uid) = object.ok().and_then(|object| object.uid()) {
                    let mut uids = uids.lock().expect("no holder of this lock panics");
                    uids.entry(K::kind(&()).into_owned()).or_default().insert(uid);
                }
                std::future::ready(())
            },
        ));
    }

    /// The number of objects of each kind that ever existed.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let uids = self.uids.lock().expect("no holder of this lock panics");
        uids.iter().map(|(kind, uids)| (kind.clone(), uids.len())).collect()
    }
}
