//! Writes statuses and Events for any kind.

use flux_operator_plan::status::NewEvent;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kind::WrittenObject;
use flux_operator_service::error_chain::chain;

/// The result of writing a status.
pub(super) enum StatusResult {
    /// It was written.
    Written(WrittenObject),
    /// The object has changed since the status was computed, or is deleted.
    Outdated,
}

/// The part of a response that is read: the rest may not be deserializable.
#[derive(Deserialize)]
struct PartialObject {
    #[serde(default)]
    metadata: PartialMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialMetadata {
    resource_version: Option<String>,
}

/// Replaces the status of an object, if the object is unchanged since the status was computed. This
/// costs the API server two thirds of what a patch costs.
pub(super) async fn write_status<K>(
    client: &Client,
    object: &K,
    status: &impl Serialize,
) -> Result<StatusResult, kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let ObjectMeta { name, namespace, uid, resource_version, .. } = object.meta();
    let object_with_status = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": name, "namespace": namespace, "uid": uid,
            "resourceVersion": resource_version },
        "status": status,
    });
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    status_result::<K>(
        &name,
        replace_status::<K>(client, &namespace, &name, &object_with_status).await,
    )
}

/// Changes the status of exactly this version of an object, which need not be deserializable.
pub(super) async fn patch_own_status<K>(
    client: &Client,
    metadata: &ObjectMeta,
    status: Value,
) -> Result<StatusResult, kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let version = &metadata.resource_version;
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
    status_result::<K>(name, patch_status::<K>(client, namespace, name, &patch).await)
}

/// Removes a finalizer from exactly this version of an object, which need not be deserializable.
pub(super) async fn remove_finalizer<K>(
    client: &Client,
    metadata: &ObjectMeta,
    finalizer: Option<&str>,
) -> Result<(), kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    let others: Vec<&String> =
        finalizers.iter().filter(|it| Some(it.as_str()) != finalizer).collect();
    if others.len() == finalizers.len() {
        return Ok(());
    }
    let objects: Api<K> =
        Api::namespaced(client.clone(), metadata.namespace.as_deref().unwrap_or_default());
    let name = metadata.name.as_deref().unwrap_or_default();
    let patch = json!({ "metadata":
        { "resourceVersion": metadata.resource_version, "finalizers": others } });
    match objects.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(error),
    }
}

fn status_result<K>(
    name: &str,
    result: Result<Option<String>, kube::Error>,
) -> Result<StatusResult, kube::Error>
where
    K: Resource<DynamicType = ()>,
{
    let (kind, name) = (K::kind(&()).into_owned(), name.to_owned());
    match result {
        Ok(version) => Ok(StatusResult::Written(WrittenObject { kind, name, version })),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
            Ok(StatusResult::Outdated)
        }
        Err(error) => Err(error),
    }
}

/// Changes a status with a merge patch. Returns the new resource version.
pub(crate) async fn patch_status<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> Result<Option<String>, kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), Some(namespace)))
        .patch_subresource("status", name, &PatchParams::default(), &Patch::Merge(patch))
        .map_err(kube::Error::BuildRequest)?;
    client.request::<PartialObject>(request).await.map(|stored| stored.metadata.resource_version)
}

/// Replaces a status. Returns the new resource version.
pub(crate) async fn replace_status<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    object: &Value,
) -> Result<Option<String>, kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(K::url_path(&(), Some(namespace)))
        .replace_subresource("status", name, &PostParams::default(), body)
        .map_err(kube::Error::BuildRequest)?;
    client.request::<PartialObject>(request).await.map(|stored| stored.metadata.resource_version)
}

/// Writes Events about an object.
pub(super) async fn write_events(
    recorder: &Recorder,
    about: &ObjectReference,
    events: &[NewEvent],
) {
    for new in events {
        let event = Event {
            type_: if new.is_normal { EventType::Normal } else { EventType::Warning },
            reason: new.reason.clone(),
            note: Some(new.note.clone()),
            action: new.condition.into(),
            secondary: None,
        };
        // A lost Event must not fail the reconciliation: the status has the same information.
        if let Err(error) = recorder.publish(&event, about).await {
            let (kind, name, error) = (&about.kind, &about.name, chain(&error));
            tracing::warn!(kind, name, error, "failed to write an Event");
        }
    }
}
