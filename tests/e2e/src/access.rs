//! A client with the operator's roles, and no others.

use anyhow::{Context, Result};
use flux_operator_install::{BurstClusters, InstallSettings, OPERATOR};
use flux_operator_testkit::images::OPERATOR_IMAGE;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::AuthInfo;
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};

/// The namespace of the ServiceAccount that operators in tests share. It is not the test's own
/// namespace, because some tests delete that while the operator is working.
const NAMESPACE: &str = "flux-operator-tests";

/// The settings of an installation for tests.
pub fn settings(namespace: &str) -> InstallSettings {
    InstallSettings {
        namespace: namespace.to_owned(),
        image: OPERATOR_IMAGE.to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        watched_namespace: None,
        replicas: 1,
        network_policy: false,
        gateway: false,
        burst_namespaces: Vec::new(),
        burst_clusters: BurstClusters::default(),
        gke_image: None,
    }
}

/// A client with the permissions of an installed operator.
pub async fn operator_client(administrator: &Client, config: Config) -> Result<Client> {
    let namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": NAMESPACE },
    });
    apply(administrator, &[namespace]).await?;
    let settings = InstallSettings { gateway: true, ..settings(NAMESPACE) };
    apply(administrator, &flux_operator_install::access_objects(&settings)).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(administrator.clone(), NAMESPACE);
    let request = TokenRequest::default();
    let answer = accounts.create_token_request(OPERATOR, &PostParams::default(), &request).await?;
    let token = answer.status.and_then(|status| status.token);
    let token = token.context("the API server returned no token")?;
    let mut config = config;
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    Ok(Client::try_from(config)?)
}

/// Applies objects one after the other, as `kubectl apply --server-side` does.
pub async fn apply(client: &Client, objects: &[Value]) -> Result<()> {
    for value in objects {
        let object: DynamicObject = serde_json::from_value(value.clone())?;
        let name = object.name_any();
        let parameters = PatchParams::apply("flux-operator-tests").force();
        dynamic(client, &object)?
            .patch(&name, &parameters, &Patch::Apply(&object))
            .await
            .with_context(|| format!("failed to apply {} {name:?}", value["kind"]))?;
    }
    Ok(())
}

/// Deletes the cluster-scoped ones of the objects, with what they own.
pub async fn delete_cluster_scoped(client: &Client, objects: &[Value]) -> Result<()> {
    for value in objects {
        let object: DynamicObject = serde_json::from_value(value.clone())?;
        if object.namespace().is_none() {
            let name = object.name_any();
            dynamic(client, &object)?.delete(&name, &Default::default()).await?;
        }
    }
    Ok(())
}

fn dynamic(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("an object has no kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    Ok(match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}
