//! Helpers for objects of any kind in a test's namespace.

use anyhow::{Context, Result};
use flux_operator_testkit::cluster::{first_match, with_timeout};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
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
}
