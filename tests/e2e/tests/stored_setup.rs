//! A FluxSetup that replaces itself, stored before the API server refused it. The CRD is shared by
//! all tests, so this file has only one test: files run one after the other.

use std::time::Duration;

use anyhow::{Context, Result};
use flux_operator_api::{FluxSetup, crd};
use flux_operator_testkit::cluster::{install_crds, with_timeout};
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{CustomResourceExt, ResourceExt};
use serde_json::{Value, json};

#[tokio::test]
async fn q19_a_stored_setup_that_replaces_itself_is_kept_reported_and_can_be_deleted() -> Result<()>
{
    with_operator(async |stage| {
        let old = stage.create_setup("old", json!({ "quota": { "nodes": "1" } })).await?;
        let stored = store(stage, json!({ "replaces": ["own", "old"] })).await;
        // The schema is strict again before anything can fail.
        install_crds(&stage.client).await?;
        let stored = stored?;
        wait_until_refused(stage, "old", json!({ "replaces": ["old"] })).await?;

        // A stored object can be changed, and the operator can write its status.
        stage.patch_spec::<FluxSetup>("own", json!({ "patienceSeconds": 7 })).await?;
        let is_reported = |setup: &FluxSetup| {
            let status = setup.status.clone().unwrap_or_default();
            let generation = status.observed_generation == setup.metadata.generation;
            generation && setup.spec.patience_seconds == Some(7) && !status.conditions.is_empty()
        };
        let own = stage.wait_for_setup("own", is_reported).await?;
        assert_eq!(own.uid(), stored.uid());
        let active = &own.status.context("no status")?.conditions[0];
        assert_eq!((active.status.as_str(), active.reason.as_str()), ("False", "Conflict"));
        assert!(active.message.contains("it replaces itself"), "{}", active.message);

        let kept = stage.setups().get("old").await?;
        assert_eq!(kept.uid(), old.uid());
        assert_eq!(kept.metadata.deletion_timestamp, None);
        stage.delete_and_wait::<FluxSetup>("own").await?;
        Ok(())
    })
    .await
}

/// Stores the setup `own` with a CRD without the rule about names.
async fn store(stage: &TestNamespace, spec: Value) -> Result<FluxSetup> {
    let crds: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
    let mut lax = serde_json::to_value(crd::fluxsetup())?;
    let schema = lax.pointer_mut("/spec/versions/0/schema/openAPIV3Schema");
    let schema = schema.and_then(Value::as_object_mut).context("the schema is not a map")?;
    schema.remove("x-kubernetes-validations").context("there is no rule about names")?;
    let parameters = PatchParams::apply("flux-operator-tests").force();
    crds.patch(&FluxSetup::crd().name_any(), &parameters, &Patch::Apply(&lax)).await?;
    // A new schema takes effect a moment after it is written.
    let stores = async {
        loop {
            match stage.create_setup("own", spec.clone()).await {
                Ok(stored) => return Ok(stored),
                Err(error) if is_invalid(&error) => short_delay().await,
                Err(error) => return Err(error),
            }
        }
    };
    with_timeout(stores).await?
}

/// Waits until the API server refuses a change because a setup cannot replace itself.
async fn wait_until_refused(stage: &TestNamespace, name: &str, spec: Value) -> Result<()> {
    let patch = json!({ "spec": spec });
    let only_try = PatchParams { dry_run: true, ..PatchParams::default() };
    let refuses = async {
        loop {
            match stage.setups().patch(name, &only_try, &Patch::Merge(&patch)).await {
                Ok(_) => short_delay().await,
                Err(kube::Error::Api(status)) if status.code == 422 => return Ok(status.message),
                Err(error) => return Err(error),
            }
        }
    };
    let message = with_timeout(refuses).await??;
    assert!(message.contains("a setup cannot replace itself"), "{message}");
    Ok(())
}

fn is_invalid(error: &anyhow::Error) -> bool {
    let answer = error.downcast_ref::<kube::Error>();
    matches!(answer, Some(kube::Error::Api(status)) if status.code == 422)
}

/// There is no notification when a new schema takes effect.
async fn short_delay() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}
