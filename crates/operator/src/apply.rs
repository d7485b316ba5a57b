//! Carries steps out. No choice about meaning is left here.

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{self, CLUSTER_LABEL, Rendering};
use flux_operator_plan::{MANAGER, Step};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::errors::chain;
use crate::expected::Written;
use crate::keys::{KeyError, new_keys};

/// Why a step could not be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("failed to apply {kind} {name:?}")]
    Apply { kind: String, name: String, source: kube::Error },
    #[error("failed to create {kind} {name:?}")]
    Create { kind: String, name: String, source: kube::Error },
    #[error("{kind} {name:?} exists and belongs to somebody else: rename one of them")]
    NotOurs { kind: String, name: String },
    #[error("{kind} {name:?} of the namesake that was here before is still being deleted")]
    Leftover { kind: String, name: String },
    #[error("failed to change {kind} {name:?}")]
    Change { kind: String, name: String, source: kube::Error },
    #[error("failed to delete {kind} {name:?}")]
    Delete { kind: String, name: String, source: kube::Error },
    #[error("failed to make the keys")]
    Keys { source: KeyError },
}

impl ApplyError {
    /// Whether it passes by itself in a moment, and is nothing to tell.
    pub(crate) fn passes(&self) -> bool {
        match self {
            ApplyError::Leftover { .. } => true,
            // The object has changed since it was seen; the next pass sees that.
            ApplyError::Change { source: kube::Error::Api(status), .. } => status.code == 409,
            _ => false,
        }
    }

    /// Short and bounded: the metric's label.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            ApplyError::Apply { .. } => "Apply",
            ApplyError::Create { .. } => "Create",
            ApplyError::NotOurs { .. } => "NotOurs",
            ApplyError::Leftover { .. } => "Leftover",
            ApplyError::Change { .. } => "Change",
            ApplyError::Delete { .. } => "Delete",
            ApplyError::Keys { .. } => "Keys",
        }
    }
}

/// A kind of object that lives in a namespace, and can be read and written.
pub(crate) trait Object:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> Object for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned
{
}

/// Carries one step out, and returns what the watches will show of it.
pub(crate) async fn carry_out(
    client: &Client,
    rendering: &Rendering<'_>,
    step: &Step,
) -> Result<Option<Written>, ApplyError> {
    let namespace = rendering.minicluster.namespace().unwrap_or_default();
    let name = rendering.name();
    match step {
        Step::CreateKeys => {
            let keys = new_keys(rendering.minicluster);
            let keys = keys.map_err(|source| ApplyError::Keys { source })?;
            // Nobody watches Secrets.
            create(client, &kubernetes::secret(rendering, &keys)).await.map(|_| None)
        }
        Step::CreateConfigMap(map) => create_or_apply(client, &**map).await,
        Step::CreateService(service) => create_or_apply(client, &**service).await,
        Step::ApplyConfigMap(map) => apply(client, &**map, MANAGER).await,
        Step::ApplyService { service, manager } => apply(client, &**service, manager).await,
        Step::CreatePod(pod) => create(client, &**pod).await,
        Step::CreateJob(job) => create(client, &**job).await,
        Step::PatchJob(patch) => change::<Job>(client, &namespace, name, patch).await,
        Step::LabelPod { pod, index } => {
            let patch = json!({ "metadata": { "labels": { "job-index": index } } });
            change::<Pod>(client, &namespace, pod, &patch).await
        }
        Step::DeleteJob => delete::<Job>(client, &namespace, name, None).await,
        Step::DeleteService(service) => delete::<Service>(client, &namespace, service, None).await,
        Step::DeleteMiniCluster => delete::<MiniCluster>(client, &namespace, name, None).await,
    }
}

/// Whether a namespace is being deleted. If nobody can say, it is not.
pub(crate) async fn is_going(client: &Client, namespace: &str) -> bool {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.get_metadata_opt(namespace).await {
        Ok(found) => found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()),
        Err(error) => {
            tracing::warn!(namespace, error = chain(&error), "failed to read a namespace");
            false
        }
    }
}

/// Creates or corrects an object by server-side apply.
async fn apply<K: Object>(
    client: &Client,
    object: &K,
    manager: &str,
) -> Result<Option<Written>, ApplyError> {
    let name = object.name_any();
    let parameters = PatchParams::apply(manager).force();
    match api(client, object).patch(&name, &parameters, &Patch::Apply(object)).await {
        Ok(applied) => Ok(Some(written::<K>(applied.meta()))),
        Err(source) => Err(ApplyError::Apply { kind: kind::<K>(), name, source }),
    }
}

/// Creates an object unless it is there already, and then leaves it alone: keys
/// that are made anew, or a Job's template, would break what runs.
async fn create<K: Object>(client: &Client, object: &K) -> Result<Option<Written>, ApplyError> {
    create_once(client, object, CLUSTER_LABEL).await.map(Some)
}

/// The same for an object that carries another label by which we find our own.
pub(crate) async fn create_once<K: Object>(
    client: &Client,
    object: &K,
    label: &str,
) -> Result<Written, ApplyError> {
    match try_create(client, object, label).await? {
        Created::New(written) | Created::Before(written) => Ok(written),
        // An operator of another make owns its objects in the same name, but does not
        // label them.
        Created::Unlabelled => {
            Err(ApplyError::NotOurs { kind: kind::<K>(), name: object.name_any() })
        }
    }
}

/// Creates an object, or corrects it if it is there already and ours.
async fn create_or_apply<K: Object>(
    client: &Client,
    object: &K,
) -> Result<Option<Written>, ApplyError> {
    match try_create(client, object, CLUSTER_LABEL).await? {
        Created::New(written) => Ok(Some(written)),
        Created::Before(_) | Created::Unlabelled => apply(client, object, MANAGER).await,
    }
}

/// What became of creating an object that belongs to another.
enum Created {
    /// It is new.
    New(Written),
    /// It was there already.
    Before(Written),
    /// It was there already, without the label by which we find our own.
    Unlabelled,
}

async fn try_create<K: Object>(
    client: &Client,
    object: &K,
    label: &str,
) -> Result<Created, ApplyError> {
    let (name, kind) = (object.name_any(), kind::<K>());
    let failed = |source| ApplyError::Create { kind: kind.clone(), name: name.clone(), source };
    let api: Api<K> = api(client, object);
    let parameters = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
    match api.create(&parameters, object).await {
        Ok(created) => return Ok(Created::New(written::<K>(created.meta()))),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        Err(source) => return Err(failed(source)),
    }
    let existing = api.get_metadata(&name).await.map_err(failed)?;
    let labelled = existing.labels().contains_key(label);
    let wanted = object.owner_references().first();
    let owned = |same: fn(&OwnerReference, &OwnerReference) -> bool| {
        let owners = existing.owner_references();
        wanted.is_some_and(|wanted| owners.iter().any(|owner| same(owner, wanted)))
    };
    match (owned(|one, other| one.uid == other.uid), labelled) {
        (true, true) => Ok(Created::Before(written::<K>(existing.meta()))),
        (true, false) => Ok(Created::Unlabelled),
        (false, true) if owned(|one, other| one.kind == other.kind && one.name == other.name) => {
            Err(ApplyError::Leftover { kind, name })
        }
        (false, _) => Err(ApplyError::NotOurs { kind, name }),
    }
}

/// Changes an object by a merge patch. One that is gone needs no change any more.
async fn change<K: Object>(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> Result<Option<Written>, ApplyError> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    match api.patch_metadata(name, &parameters, &Patch::Merge(patch)).await {
        Ok(changed) => Ok(Some(written::<K>(changed.meta()))),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(source) => Err(ApplyError::Change { kind: kind::<K>(), name: name.to_owned(), source }),
    }
}

/// Deletes an object with everything it owns; with a uid, no namesake of it.
pub(crate) async fn delete<K: Object>(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: Option<String>,
) -> Result<Option<Written>, ApplyError> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let only = uid.is_some();
    let preconditions = Preconditions { uid, ..Preconditions::default() };
    let parameters = DeleteParams::background().preconditions(preconditions);
    match api.delete(name, &parameters).await {
        // Deleting twice does no harm.
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        // The one that was meant is gone.
        Err(kube::Error::Api(status)) if status.code == 409 && only => Ok(None),
        Err(source) => Err(ApplyError::Delete { kind: kind::<K>(), name: name.to_owned(), source }),
    }
}

fn api<K: Object>(client: &Client, object: &K) -> Api<K> {
    Api::namespaced(client.clone(), &object.namespace().unwrap_or_default())
}

fn written<K: Object>(metadata: &ObjectMeta) -> Written {
    Written {
        kind: kind::<K>(),
        name: metadata.name.clone().unwrap_or_default(),
        version: metadata.resource_version.clone(),
    }
}

fn kind<K: Object>() -> String {
    K::kind(&()).into_owned()
}
