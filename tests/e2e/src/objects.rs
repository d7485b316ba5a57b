//! Helpers for objects of any kind in a test's namespace.

use anyhow::{Context, Result};
use flux_operator_plan::kubernetes::CLUSTER_LABEL;
use flux_operator_testkit::cluster::{first_match, with_timeout};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::TestNamespace;

/// A namespaced kind.
pub trait NamespacedKind:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Send
    + 'static
{
}

impl<K> NamespacedKind for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static
{
}

impl TestNamespace {
    /// The API of a kind in the namespace.
    pub fn api<K: NamespacedKind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Changes an object with a merge patch.
    pub async fn edit<K: NamespacedKind>(&self, name: &str, patch: Value) -> Result<()> {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Deletes an object and waits until it is deleted.
    pub async fn delete_and_wait<K: NamespacedKind>(&self, name: &str) -> Result<()> {
        self.api::<K>().delete(name, &DeleteParams::background()).await?;
        self.wait_until_deleted::<K>(name).await
    }

    /// Waits until an object is deleted.
    pub async fn wait_until_deleted<K: NamespacedKind>(&self, name: &str) -> Result<()> {
        let deleted = await_condition(self.api::<K>(), name, |object: Option<&K>| object.is_none());
        with_timeout(deleted).await.with_context(|| format!("{name} still exists"))??;
        Ok(())
    }

    /// Waits until an object satisfies `wanted`, and returns it.
    pub async fn wait_for_object<K: NamespacedKind>(
        &self,
        name: &str,
        wanted: impl Fn(&K) -> bool,
    ) -> Result<K> {
        let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut last = String::new();
        let found = first_match(watcher(self.api::<K>(), one).applied_objects(), |object| {
            last = format!("{object:?}");
            wanted(&object).then_some(object)
        });
        let kind = K::kind(&());
        found.await.with_context(|| format!("{kind} {name} was last {last}"))
    }

    /// Kind and name of the objects of one kind with the label of a MiniCluster.
    pub async fn names<K: NamespacedKind>(&self, name: &str) -> Result<Vec<String>> {
        let of_cluster = ListParams::default().labels(&format!("{CLUSTER_LABEL}={name}"));
        let found = self.api::<K>().list_metadata(&of_cluster).await?;
        Ok(found
            .iter()
            .map(|it| format!("{} {}", K::kind(&()), stable_name(&it.name_any())))
            .collect())
    }

    /// The Secret with the keys of a MiniCluster, if it exists.
    pub async fn keys(&self, name: &str) -> Result<Option<Secret>> {
        let of_cluster = ListParams::default().labels(&format!("{CLUSTER_LABEL}={name}"));
        let secrets = self.api::<Secret>().list(&of_cluster).await?;
        let prefix = format!("{name}-flux-");
        Ok(secrets.into_iter().find(|secret| secret.name_any().starts_with(&prefix)))
    }

    /// Waits until a MiniCluster has no pods any more.
    pub async fn wait_for_no_pods(&self, name: &str) -> Result<()> {
        self.wait_until_none::<Pod>(&format!("job-name={name}")).await
    }

    /// Waits until a MiniCluster has no Secrets any more.
    pub async fn wait_for_no_secrets(&self, name: &str) -> Result<()> {
        self.wait_until_none::<Secret>(&format!("{CLUSTER_LABEL}={name}")).await
    }

    /// Waits until nothing of a MiniCluster is left: Kubernetes deletes its objects after it.
    pub async fn wait_until_nothing_is_left(&self, name: &str) -> Result<()> {
        let of_cluster = format!("{CLUSTER_LABEL}={name}");
        self.wait_until_none::<Job>(&of_cluster).await?;
        self.wait_until_none::<Pod>(&of_cluster).await?;
        self.wait_until_none::<ConfigMap>(&of_cluster).await?;
        self.wait_until_none::<Secret>(&of_cluster).await
    }

    /// Waits until no object of a kind has these labels any more.
    async fn wait_until_none<K: NamespacedKind>(&self, labels: &str) -> Result<()> {
        let labels = watcher::Config::default().labels(labels);
        let mut left = std::collections::BTreeSet::new();
        let deleted = first_match(watcher(self.api::<K>(), labels), |event| {
            match event {
                watcher::Event::Init => left.clear(),
                watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                    left.insert(object.name_any());
                }
                watcher::Event::Delete(object) => {
                    left.remove(&object.name_any());
                    return left.is_empty().then_some(());
                }
                watcher::Event::InitDone => return left.is_empty().then_some(()),
            }
            None
        });
        deleted.await
    }
}

/// The name of an object without the part that depends on a uid.
pub fn stable_name(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((stable, uid)) if uid.len() == 8 && uid.chars().all(|it| it.is_ascii_hexdigit()) => {
            stable.to_owned()
        }
        _ => name.to_owned(),
    }
}
