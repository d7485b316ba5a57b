//! An object that is no MiniCluster, stored under a laxer schema. The schema is
//! everybody's, so this file has one test: files are run one after the other.

use anyhow::{Context, Result};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::{install_crds, patiently};
use flux_operator_testkit::smallest;
use flux_operator_tests_e2e::{Stage, on_stage};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{CustomResourceExt, ResourceExt};
use serde_json::{Value, json};

#[tokio::test]
async fn an_object_that_cannot_be_read_is_told_and_stops_nobody() -> Result<()> {
    on_stage(async |stage| {
        let stored = store_unreadable(stage, "bad").await;
        // The schema is strict again before anything can fail.
        install_crds(&stage.client).await?;
        stored?;
        stage.create("good", json!({ "containers": [{ "command": "hostname" }] })).await?;
        let ended = stage.wait_for_end("good").await?;
        assert_eq!(ended.status.context("there is no status")?.exit_code, Some(0));

        let objects = untyped(stage);
        let told = |object: Option<&DynamicObject>| {
            object.and_then(accepted).is_some_and(|accepted| accepted["status"] == "False")
        };
        let bad = patiently(await_condition(objects.clone(), "bad", told)).await??;
        let bad = bad.context("it is gone")?;
        let accepted = accepted(&bad).context("no condition")?;
        assert_eq!(accepted["reason"], "Invalid");
        let message = accepted["message"].as_str().unwrap_or_default();
        assert!(message.contains("four"), "{message}");
        objects.delete("bad", &DeleteParams::default()).await?;
        Ok(())
    })
    .await
}

/// Stores a MiniCluster whose number of tasks is a word.
async fn store_unreadable(stage: &Stage, name: &str) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
    let crd = MiniCluster::crd();
    let mut lax = serde_json::to_value(&crd)?;
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let spec = lax.pointer_mut(spec).context("the schema has a spec")?;
    spec["tasks"] = json!({ "x-kubernetes-int-or-string": true });
    let parameters = PatchParams::apply("flux-operator-tests").force();
    crds.patch(&crd.name_any(), &parameters, &Patch::Apply(&lax)).await?;
    let mut manifest = smallest(name);
    manifest["spec"]["tasks"] = "four".into();
    let bad: DynamicObject = serde_json::from_value(manifest)?;
    // A new schema is served a moment after it is taken.
    let stores = async {
        loop {
            match untyped(stage).create(&PostParams::default(), &bad).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 422 => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                Err(error) => return Err(error),
            }
        }
    };
    Ok(patiently(stores).await??)
}

fn untyped(stage: &Stage) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<MiniCluster>(&());
    Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource)
}

fn accepted(object: &DynamicObject) -> Option<&Value> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|each| each["type"] == ConditionType::Accepted.as_str())
}
