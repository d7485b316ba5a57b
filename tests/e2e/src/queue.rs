//! Helpers for FluxSetups and FluxJobs in a test's namespace.

use anyhow::{Context, Result};
use flux_operator_api::{FluxJob, FluxJobStatus, FluxSetup};
use flux_operator_testkit::images::with_flux;
use flux_operator_testkit::{merge, smallest_minicluster};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::TestNamespace;
use crate::objects::NamespacedKind;

/// A command that runs until its job is deleted or evicted.
pub const LONG_COMMAND: &str = "sleep 600";

impl TestNamespace {
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

    /// Creates a FluxJob of one node that runs a command, patched with `spec`.
    pub async fn submit(&self, name: &str, command: &str, spec: Value) -> Result<FluxJob> {
        let mut cluster = smallest_minicluster(name);
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

    /// Waits until a FluxJob's status satisfies `wanted`, and returns it.
    pub async fn wait_for_job(
        &self,
        name: &str,
        wanted: impl Fn(&FluxJobStatus) -> bool,
    ) -> Result<FluxJobStatus> {
        let wanted = |job: &FluxJob| job.status.as_ref().is_some_and(&wanted);
        Ok(self.wait_for_object(name, wanted).await?.status.unwrap_or_default())
    }

    /// Waits until a FluxJob has this phase.
    pub async fn wait_for_job_phase(&self, name: &str, phase: &str) -> Result<FluxJobStatus> {
        let found = self.wait_for_job(name, |status| status.phase == phase).await;
        found.with_context(|| format!("{name} was never {phase}"))
    }

    /// Waits until a FluxSetup satisfies `wanted`.
    pub async fn wait_for_setup(
        &self,
        name: &str,
        wanted: impl Fn(&FluxSetup) -> bool,
    ) -> Result<FluxSetup> {
        self.wait_for_object(name, wanted).await
    }

    /// Changes the spec of a FluxSetup or a FluxJob with a merge patch.
    pub async fn patch_spec<K: NamespacedKind>(&self, name: &str, spec: Value) -> Result<()> {
        self.edit::<K>(name, json!({ "spec": spec })).await
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
