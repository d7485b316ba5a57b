//! Questions about FluxSetups and FluxJobs on a stage.

use anyhow::{Context, Result};
use flux_operator_api::{FluxJob, FluxJobStatus, FluxSetup};
use flux_operator_testkit::cluster::{first, patiently};
use flux_operator_testkit::images::with_flux;
use flux_operator_testkit::{merge, smallest};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Stage;

/// A command that runs until its job is deleted or evicted.
pub const LONG: &str = "sleep 600";

impl Stage {
    /// Creates a FluxSetup.
    pub async fn create_setup(&self, name: &str, spec: Value) -> Result<FluxSetup> {
        let setup = serde_json::from_value(json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "FluxSetup",
            "metadata": { "name": name },
            "spec": spec,
        }))?;
        Ok(self.setups().create(&PostParams::default(), &setup).await?)
    }

    /// Creates a FluxJob of one node that runs a command, changed by `spec`.
    pub async fn submit(&self, name: &str, command: &str, spec: Value) -> Result<FluxJob> {
        let mut cluster = smallest(name);
        with_flux(&mut cluster);
        let mut manifest = json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "FluxJob",
            "metadata": { "name": name },
            "spec": { "command": command, "template": { "spec": cluster["spec"] } },
        });
        merge(&mut manifest["spec"], &spec);
        let job = serde_json::from_value(manifest)?;
        Ok(self.fluxjobs().create(&PostParams::default(), &job).await?)
    }

    /// Waits until a FluxJob's status is as wanted, and returns it.
    pub async fn job_becomes(
        &self,
        name: &str,
        wanted: impl Fn(&FluxJobStatus) -> bool,
    ) -> Result<FluxJobStatus> {
        let found =
            becomes(self.fluxjobs(), name, |job: &FluxJob| job.status.clone().filter(&wanted));
        found.await.with_context(|| format!("of FluxJob {name}"))
    }

    /// Waits until a FluxJob has this phase.
    pub async fn job_is(&self, name: &str, phase: &str) -> Result<FluxJobStatus> {
        let found = self.job_becomes(name, |status| status.phase == phase).await;
        found.with_context(|| format!("{name} was never {phase}"))
    }

    /// Waits until a FluxSetup is as wanted.
    pub async fn setup_becomes(
        &self,
        name: &str,
        wanted: impl Fn(&FluxSetup) -> bool,
    ) -> Result<FluxSetup> {
        let wanted = |setup: &FluxSetup| wanted(setup).then(|| setup.clone());
        becomes(self.setups(), name, wanted).await.with_context(|| format!("of FluxSetup {name}"))
    }

    /// Changes the spec of a FluxSetup or a FluxJob by a merge patch.
    pub async fn change<K>(&self, name: &str, spec: Value) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.api::<K>().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Deletes an object and waits until it is gone.
    pub async fn delete_wholly<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        self.api::<K>().delete(name, &DeleteParams::background()).await?;
        self.is_gone::<K>(name).await
    }

    /// Waits until an object is gone.
    pub async fn is_gone<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let gone = await_condition(self.api::<K>(), name, |object: Option<&K>| object.is_none());
        patiently(gone).await.with_context(|| format!("{name} is still there"))??;
        Ok(())
    }

    /// The API of FluxJobs in the namespace.
    pub fn fluxjobs(&self) -> Api<FluxJob> {
        self.api()
    }

    /// The API of FluxSetups in the namespace.
    pub fn setups(&self) -> Api<FluxSetup> {
        self.api()
    }
}

async fn becomes<K, T>(api: Api<K>, name: &str, wanted: impl Fn(&K) -> Option<T>) -> Result<T>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut last = String::new();
    let found = first(watcher(api, one).applied_objects(), |object| {
        last = format!("{object:?}");
        wanted(&object)
    });
    found.await.with_context(|| format!("it was last {last}"))
}
