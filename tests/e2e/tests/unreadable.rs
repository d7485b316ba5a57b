//! Objects that our schemas refuse, stored with laxer schemas: some cannot be deserialized, others
//! can but are not valid. The CRDs are shared by all tests, so this file has only one test: files
//! run one after the other.

use anyhow::{Context, Result};
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_testkit::cluster::{install_crds, with_timeout};
use flux_operator_testkit::smallest_minicluster;
use flux_operator_tests_e2e::plugin::Plugin;
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{CustomResourceExt, Resource, ResourceExt};
use serde_json::{Value, json};

#[tokio::test]
async fn an_undecodable_object_is_reported_and_does_not_block_others() -> Result<()> {
    with_operator(async |stage| {
        let stored = async {
            let number =
                |schema: &mut Value| *schema = json!({ "x-kubernetes-int-or-string": true });
            let word = json!("four");
            // It is not kept by the finalizer of joiners.
            let mut bad = smallest_minicluster("bad");
            bad["metadata"]["finalizers"] = json!(["flux-framework.org/leave"]);
            store::<MiniCluster>(stage, bad, "tasks", number, &word).await?;
            store::<FluxSetup>(stage, queue_object("FluxSetup"), "maxSize", number, &word).await?;
            store::<FluxJob>(stage, queue_object("FluxJob"), "size", number, &word).await?;
            // This one can be deserialized, but has nothing to run.
            let any = |schema: &mut Value| schema["minItems"] = json!(0);
            store::<MiniCluster>(
                stage,
                smallest_minicluster("empty"),
                "containers",
                any,
                &json!([]),
            )
            .await
        };
        let stored = stored.await;
        // The schemas are strict again before anything can fail.
        install_crds(&stage.client).await?;
        stored?;
        stage.create("good", json!({ "containers": [{ "command": "hostname" }] })).await?;
        let finished = stage.wait_until_finished("good").await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0));
        stage.create_setup("good", json!({ "quota": { "nodes": "1" } })).await?;
        stage.submit("better", "hostname", json!({})).await?;
        stage.wait_for_job_phase("better", "Finished").await?;

        // The plugin leaves them out and prints a warning.
        let queue = Plugin::new(stage)?.run(&["queue"]).await?;
        assert!(queue.output.contains("good"), "{}{}", queue.output, queue.errors);
        for kind in ["MiniCluster", "FluxSetup", "FluxJob"] {
            let warning = format!("warning: {kind} \"bad\" in ");
            assert!(queue.errors.contains(&warning), "{}", queue.errors);
        }
        assert!(queue.errors.contains("objects that could not be decoded are not counted"));
        let list = Plugin::new(stage)?.run(&["list"]).await?;
        assert!(list.output.contains("good"), "{}{}", list.output, list.errors);
        assert_reported_and_delete::<MiniCluster>(stage, "bad", ["Accepted", "Invalid", "four"])
            .await?;
        assert_reported_and_delete::<FluxSetup>(stage, "bad", ["Active", "Unreadable", "four"])
            .await?;
        assert_reported_and_delete::<FluxJob>(stage, "bad", ["Accepted", "Unreadable", "four"])
            .await?;
        assert_reported_and_delete::<MiniCluster>(
            stage,
            "empty",
            ["Accepted", "Invalid", "spec.containers: "],
        )
        .await?;
        Ok(())
    })
    .await
}

fn queue_object(kind: &str) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": kind,
        "metadata": { "name": "bad" },
        "spec": {},
    })
}

/// One of our kinds.
trait CustomKind:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + CustomResourceExt
{
}

impl<K> CustomKind for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + CustomResourceExt
{
}

/// Stores an object with a value that our schema does not allow.
async fn store<K: CustomKind>(
    stage: &TestNamespace,
    mut manifest: Value,
    field: &str,
    allow: impl Fn(&mut Value),
    value: &Value,
) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
    let mut lax = serde_json::to_value(K::crd())?;
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let spec = lax.pointer_mut(schema).context("the schema has no spec")?;
    allow(&mut spec["properties"][field]);
    // The validation rules would not allow it either.
    spec.as_object_mut().context("the schema is not a map")?.remove("x-kubernetes-validations");
    let parameters = PatchParams::apply("flux-operator-tests").force();
    crds.patch(&K::crd().name_any(), &parameters, &Patch::Apply(&lax)).await?;
    manifest["spec"][field] = value.clone();
    let bad: DynamicObject = serde_json::from_value(manifest)?;
    // A new schema takes effect a moment after it is written.
    let stores = async {
        loop {
            match untyped::<K>(stage).create(&PostParams::default(), &bad).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 422 => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                Err(error) => return Err(error),
            }
        }
    };
    Ok(with_timeout(stores).await??)
}

/// Waits until a condition of the object is False, checks its reason and a word of its message, and
/// deletes the object.
async fn assert_reported_and_delete<K: CustomKind>(
    stage: &TestNamespace,
    name: &str,
    [kind, reason, word]: [&str; 3],
) -> Result<()> {
    let objects = untyped::<K>(stage);
    let is_reported = |object: Option<&DynamicObject>| {
        object.and_then(|object| condition(object, kind)).is_some_and(|it| it["status"] == "False")
    };
    let bad = with_timeout(await_condition(objects.clone(), name, is_reported)).await??;
    let bad = bad.context("it was deleted")?;
    let found = condition(&bad, kind).context("no condition")?;
    assert_eq!(found["reason"], reason);
    let message = found["message"].as_str().unwrap_or_default();
    assert!(message.contains(word), "{message}");
    objects.delete(name, &DeleteParams::default()).await?;
    let uid = bad.uid().unwrap_or_default();
    with_timeout(await_condition(objects, name, is_deleted(&uid))).await??;
    Ok(())
}

fn untyped<K: CustomKind>(stage: &TestNamespace) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<K>(&());
    Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource)
}

fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|each| each["type"] == kind)
}
