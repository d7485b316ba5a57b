//! Carries objects out. No choice about meaning is left here.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// The field manager of the objects we make.
const MANAGER: &str = "flux-operator";

/// Why an object could not be applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("failed to apply {kind} {name:?}")]
    Apply { kind: String, name: String, source: kube::Error },
    #[error("failed to create {kind} {name:?}")]
    Create { kind: String, name: String, source: kube::Error },
    #[error("{kind} {name:?} exists and belongs to somebody else: rename one of them")]
    NotOurs { kind: String, name: String },
    #[error("failed to resize Job {name:?}")]
    Resize { name: String, source: kube::Error },
    #[error("failed to read namespace {name:?}")]
    Namespace { name: String, source: kube::Error },
    #[error("failed to delete Job {name:?}")]
    Delete { name: String, source: kube::Error },
}

/// Creates or corrects an object by server-side apply.
pub(crate) async fn apply<K>(client: &Client, object: &K) -> Result<(), ApplyError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let name = object.name_any();
    let parameters = PatchParams::apply(MANAGER).force();
    match api(client, object).patch(&name, &parameters, &Patch::Apply(object)).await {
        Ok(_) => Ok(()),
        Err(source) => Err(ApplyError::Apply { kind: K::kind(&()).into(), name, source }),
    }
}

/// Creates an object unless it is there already, and then leaves it alone: keys
/// that are made anew, or a Job's template, would break what runs.
pub(crate) async fn create_once<K>(client: &Client, object: &K) -> Result<(), ApplyError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let (name, kind) = (object.name_any(), K::kind(&()).to_string());
    let api: Api<K> = api(client, object);
    let parameters = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
    match api.create(&parameters, object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let failed =
                |source| ApplyError::Create { kind: kind.clone(), name: name.clone(), source };
            let existing = api.get(&name).await.map_err(failed)?;
            let ours = existing.owner_references().iter().any(|owner| {
                object.owner_references().iter().any(|wanted| wanted.uid == owner.uid)
            });
            if ours { Ok(()) } else { Err(ApplyError::NotOurs { kind, name }) }
        }
        Err(source) => Err(ApplyError::Create { kind, name, source }),
    }
}

/// Brings a Job to what may change of it: its size, and whether it is suspended.
pub(crate) async fn adjust_job(
    client: &Client,
    current: &Job,
    wanted: &Job,
) -> Result<(), ApplyError> {
    let (Some(current_spec), Some(wanted_spec)) = (&current.spec, &wanted.spec) else {
        return Ok(());
    };
    let suspended = |spec: &k8s_openapi::api::batch::v1::JobSpec| spec.suspend.unwrap_or(false);
    let same = current_spec.parallelism == wanted_spec.parallelism
        && suspended(current_spec) == suspended(wanted_spec);
    if same {
        return Ok(());
    }
    let patch = json!({ "spec": {
        "parallelism": wanted_spec.parallelism,
        "completions": wanted_spec.completions,
        "suspend": suspended(wanted_spec),
    }});
    let name = current.name_any();
    let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    api(client, current)
        .patch(&name, &parameters, &Patch::Merge(patch))
        .await
        .map(drop)
        .map_err(|source| ApplyError::Resize { name, source })
}

/// Whether a namespace is being deleted.
pub(crate) async fn is_going(client: &Client, namespace: &str) -> Result<bool, ApplyError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let failed = |source| ApplyError::Namespace { name: namespace.to_owned(), source };
    let found = namespaces.get_metadata_opt(namespace).await.map_err(failed)?;
    Ok(found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()))
}

/// Deletes a Job with its pods.
pub(crate) async fn delete_job(client: &Client, job: &Job) -> Result<(), ApplyError> {
    let name = job.name_any();
    match api(client, job).delete(&name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(ApplyError::Delete { name, source }),
    }
}

fn api<K>(client: &Client, object: &K) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), &object.namespace().unwrap_or_default())
}
