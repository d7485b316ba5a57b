//! Sets of fields that managers own, as a real API server stores and sends them.

use std::pin::pin;

use anyhow::{Context, Result};
use flux_operator_api::MiniCluster;
use flux_operator_service::api_client::with_timeouts;
use flux_operator_service::guarded::Guarded;
use flux_operator_testkit::cluster::{client, first_match, in_namespace, install_crds};
use flux_operator_testkit::{merge, smallest_minicluster};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::{Request, WatchEvent};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

/// Whoever may create one object could otherwise keep our programs from seeing those of all others.
#[tokio::test]
async fn an_object_whose_managers_own_a_deep_tree_does_not_hide_the_others() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    in_namespace(&client, async |namespace| {
        create(&client, namespace, &smallest_minicluster("flat")).await?;
        let mut fields = json!({});
        for _ in 0..200 {
            fields = json!({ "f:a": fields });
        }
        let mut deep = smallest_minicluster("deep");
        merge(
            &mut deep,
            &json!({ "metadata": { "managedFields": [{ "manager": "someone",
            "operation": "Update", "apiVersion": "flux-framework.org/v1alpha2",
            "fieldsType": "FieldsV1", "fieldsV1": fields }] } }),
        );
        create(&client, namespace, &deep).await?;
        let unfiltered: Api<MiniCluster> = Api::namespaced(client.clone(), namespace);
        unfiltered.list(&ListParams::default()).await.expect_err("kube parses what is owned");

        let ours = with_timeouts(client.clone());
        let miniclusters: Api<Guarded<MiniCluster>> = Api::namespaced(ours, namespace);
        let list = miniclusters.list(&ListParams::default()).await?;
        let names: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["deep", "flat"]);
        let managers = list.items[0].managed_fields();
        assert!(managers.iter().any(|it| it.manager.as_deref() == Some("someone")), "{managers:?}");

        let version = list.metadata.resource_version.context("a list has a version")?;
        let requests = Request::new(MiniCluster::url_path(&(), Some(namespace)));
        let changed = Patch::Merge(json!({ "metadata": { "labels": { "changed": "yes" } } }));
        let request = requests.patch("deep", &PatchParams::default(), &changed)?;
        client.request_text(request).await?;
        let events = pin!(miniclusters.watch(&WatchParams::default(), &version).await?);
        let seen = first_match(events, |event| match event {
            WatchEvent::Modified(object) => Some(object.0.map(|it| it.name_any())),
            _ => None,
        });
        assert_eq!(seen.await?.ok().as_deref(), Some("deep"));
        Ok(())
    })
    .await
}

async fn create(client: &Client, namespace: &str, object: &Value) -> Result<()> {
    let requests = Request::new(MiniCluster::url_path(&(), Some(namespace)));
    let request = requests.create(&PostParams::default(), serde_json::to_vec(object)?)?;
    client.request_text(request).await?;
    Ok(())
}
