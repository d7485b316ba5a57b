//! Executes steps. All decisions have been made before.

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::CLUSTER_LABEL;
use flux_operator_plan::{
    self as plan, FIELD_MANAGER, Failure, FailureKind, Step, Target, TargetKind,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::kind::WrittenObject;
use crate::client::is_outcome_unknown;
use crate::keys::{KeyGenerationError, generate_keys};
use flux_operator_service::error_chain::chain;

/// Why a step could not be applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("failed to apply {kind} {name:?}")]
    Apply { kind: String, name: String, source: kube::Error },
    #[error("failed to create {kind} {name:?}")]
    Create { kind: String, name: String, source: kube::Error },
    #[error("{kind} {name:?} exists and has another owner: rename one of them")]
    NotOurs { kind: String, name: String },
    #[error("{kind} {name:?} of a deleted object with the same name is still being deleted")]
    Leftover { kind: String, name: String },
    #[error("failed to change {kind} {name:?}")]
    Change { kind: String, name: String, source: kube::Error },
    #[error("failed to delete {kind} {name:?}")]
    Delete { kind: String, name: String, source: kube::Error },
    #[error("failed to read the lender, or its Secret, {name:?}")]
    Read { name: String, source: kube::Error },
    #[error("the lender's Secret {name:?} was deleted, or belongs to another MiniCluster")]
    NoCertificate { name: String },
    #[error("MiniCluster {name:?} does not lend ranks to this namespace any more")]
    NotAllowed { name: String },
    #[error("failed to generate the keys")]
    Keys { source: KeyGenerationError },
}

impl ApplyError {
    /// The failure for a decision's conclusion.
    pub(super) fn to_failure(&self) -> Failure {
        let kind = match self {
            // The watch will show it.
            ApplyError::Leftover { .. } | ApplyError::NotAllowed { .. } => FailureKind::Transient,
            ApplyError::NotOurs { .. } => FailureKind::NotOurs,
            ApplyError::Keys { .. } | ApplyError::NoCertificate { .. } => FailureKind::Refused,
            ApplyError::Apply { source, .. }
            | ApplyError::Create { source, .. }
            | ApplyError::Read { source, .. }
            | ApplyError::Change { source, .. }
            | ApplyError::Delete { source, .. } => failure_kind(source),
        };
        Failure { kind, message: chain(self) }
    }

    /// Short and bounded: the metric's label.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            ApplyError::Apply { .. } => "Apply",
            ApplyError::Create { .. } => "Create",
            ApplyError::NotOurs { .. } => "NotOurs",
            ApplyError::Leftover { .. } => "Leftover",
            ApplyError::Change { .. } => "Change",
            ApplyError::Delete { .. } => "Delete",
            ApplyError::Read { .. } => "Read",
            ApplyError::NoCertificate { .. } => "NoCertificate",
            ApplyError::NotAllowed { .. } => "NotAllowed",
            ApplyError::Keys { .. } => "Keys",
        }
    }
}

/// Classifies an error of the client.
fn failure_kind(error: &kube::Error) -> FailureKind {
    match error {
        kube::Error::Api(status) if status.code == 409 => FailureKind::Conflict,
        kube::Error::Api(status) if [400, 422].contains(&status.code) => FailureKind::Invalid,
        _ if is_outcome_unknown(error) => FailureKind::Unknown,
        kube::Error::Api(_) => FailureKind::Refused,
        // This replica is no longer the leader; the next leader decides.
        _ => FailureKind::Transient,
    }
}

/// A namespaced kind that can be read and written.
pub(super) trait NamespacedObject:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> NamespacedObject for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned
{
}

/// Executes one step for an object. Returns the written version, which the watches will deliver.
pub(super) async fn apply<K: NamespacedObject>(
    client: &Client,
    object: &K,
    step: &Step,
) -> Result<Option<WrittenObject>, ApplyError> {
    let namespace = object.namespace().unwrap_or_default();
    match step {
        Step::CreateKeys(new) => {
            let keys = generate_keys(new).map_err(|source| ApplyError::Keys { source })?;
            // Secrets are not watched.
            create(client, &new.secret(&keys), CLUSTER_LABEL).await.map(|_| None)
        }
        Step::CopyCertificate(copy) => {
            let lenders: Api<MiniCluster> = Api::namespaced(client.clone(), &copy.from_namespace);
            let lender = lenders.get_opt(&copy.lender_name).await;
            let read = |source| ApplyError::Read { name: copy.lender_name.clone(), source };
            if !lender.map_err(read)?.is_some_and(|lender| copy.is_allowed_by(&lender)) {
                return Err(ApplyError::NotAllowed { name: copy.lender_name.clone() });
            }
            let name = copy.from_name.clone();
            let missing = || ApplyError::NoCertificate { name: name.clone() };
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &copy.from_namespace);
            let found = secrets.get_opt(&name).await;
            let found = found.map_err(|source| ApplyError::Read { name: name.clone(), source })?;
            let secret = found.and_then(|found| copy.secret(found)).ok_or_else(missing)?;
            create(client, &secret, CLUSTER_LABEL).await.map(|_| None)
        }
        Step::Create(it) => {
            let label = it.label();
            match it {
                plan::Object::ConfigMap(it) => create(client, &**it, label).await,
                plan::Object::Service(it) => create(client, &**it, label).await,
                plan::Object::EndpointSlice(it) => create(client, &**it, label).await,
                plan::Object::Pod(it) => create(client, &**it, label).await,
                plan::Object::Job(it) => create(client, &**it, label).await,
                plan::Object::MiniCluster(it) => create(client, &**it, label).await,
            }
        }
        Step::CreateOrApply(it) => {
            let label = it.label();
            match it {
                plan::Object::ConfigMap(it) => create_or_apply(client, &**it, label).await,
                plan::Object::Service(it) => create_or_apply(client, &**it, label).await,
                plan::Object::EndpointSlice(it) => create_or_apply(client, &**it, label).await,
                plan::Object::Pod(it) => create_or_apply(client, &**it, label).await,
                plan::Object::Job(it) => create_or_apply(client, &**it, label).await,
                plan::Object::MiniCluster(it) => create_or_apply(client, &**it, label).await,
            }
        }
        Step::Apply { object, manager } => match object {
            plan::Object::ConfigMap(it) => apply_object(client, &**it, manager).await,
            plan::Object::Service(it) => apply_object(client, &**it, manager).await,
            plan::Object::EndpointSlice(it) => apply_object(client, &**it, manager).await,
            plan::Object::Pod(it) => apply_object(client, &**it, manager).await,
            plan::Object::Job(it) => apply_object(client, &**it, manager).await,
            plan::Object::MiniCluster(it) => apply_object(client, &**it, manager).await,
        },
        Step::Patch { target: Target { kind, name, uid }, patch } => {
            let patch = &with_uid(patch, uid);
            match kind {
                TargetKind::Job => change::<Job>(client, &namespace, name, patch).await,
                TargetKind::Pod => change::<Pod>(client, &namespace, name, patch).await,
                TargetKind::Service => change::<Service>(client, &namespace, name, patch).await,
                TargetKind::EndpointSlice => {
                    change::<EndpointSlice>(client, &namespace, name, patch).await
                }
                TargetKind::MiniCluster => {
                    change::<MiniCluster>(client, &namespace, name, patch).await
                }
            }
        }
        Step::Delete(Target { kind, name, uid }) => match kind {
            TargetKind::Job => delete::<Job>(client, &namespace, name, uid).await,
            TargetKind::Pod => delete::<Pod>(client, &namespace, name, uid).await,
            TargetKind::Service => delete::<Service>(client, &namespace, name, uid).await,
            TargetKind::EndpointSlice => {
                delete::<EndpointSlice>(client, &namespace, name, uid).await
            }
            TargetKind::MiniCluster => delete::<MiniCluster>(client, &namespace, name, uid).await,
        },
        Step::PatchSelf(patch) => {
            let patch = with_uid(patch, &object.uid());
            change::<K>(client, &namespace, &object.name_any(), &patch).await
        }
        Step::DeleteSelf => {
            delete::<K>(client, &namespace, &object.name_any(), &object.uid()).await
        }
    }
}

/// Whether a namespace is being deleted or does not exist.
pub(crate) async fn is_terminating(client: &Client, namespace: &str) -> Result<bool, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = namespaces.get_metadata_opt(namespace).await?;
    Ok(found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()))
}

/// Creates or updates an object with server-side apply.
async fn apply_object<K: NamespacedObject>(
    client: &Client,
    object: &K,
    manager: &str,
) -> Result<Option<WrittenObject>, ApplyError> {
    let name = object.name_any();
    let parameters = PatchParams::apply(manager).force();
    match api(client, object).patch(&name, &parameters, &Patch::Apply(object)).await {
        Ok(applied) => Ok(Some(written::<K>(applied.meta()))),
        Err(source) => Err(ApplyError::Apply { kind: kind::<K>(), name, source }),
    }
}

/// Creates an object unless it exists, and otherwise leaves it alone: replacing keys or a Job's
/// template would break a running cluster.
async fn create<K: NamespacedObject>(
    client: &Client,
    object: &K,
    label: &str,
) -> Result<Option<WrittenObject>, ApplyError> {
    match try_create(client, object, label).await? {
        CreateResult::New(written) | CreateResult::Existing(written) => Ok(Some(written)),
        // Another operator's objects have the same names but not our label.
        CreateResult::Unlabelled => {
            Err(ApplyError::NotOurs { kind: kind::<K>(), name: object.name_any() })
        }
    }
}

/// Creates an object, or updates it if it exists and is ours.
async fn create_or_apply<K: NamespacedObject>(
    client: &Client,
    object: &K,
    label: &str,
) -> Result<Option<WrittenObject>, ApplyError> {
    match try_create(client, object, label).await? {
        CreateResult::New(written) => Ok(Some(written)),
        CreateResult::Existing(_) | CreateResult::Unlabelled => {
            apply_object(client, object, FIELD_MANAGER).await
        }
    }
}

/// The result of creating an owned object.
enum CreateResult {
    /// It was created.
    New(WrittenObject),
    /// It existed already.
    Existing(WrittenObject),
    /// It existed already, without the label by which we find our objects.
    Unlabelled,
}

async fn try_create<K: NamespacedObject>(
    client: &Client,
    object: &K,
    label: &str,
) -> Result<CreateResult, ApplyError> {
    let (name, kind) = (object.name_any(), kind::<K>());
    let failed = |source| ApplyError::Create { kind: kind.clone(), name: name.clone(), source };
    let api: Api<K> = api(client, object);
    let parameters =
        PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    match api.create(&parameters, object).await {
        Ok(created) => return Ok(CreateResult::New(written::<K>(created.meta()))),
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
        (true, true) => Ok(CreateResult::Existing(written::<K>(existing.meta()))),
        (true, false) => Ok(CreateResult::Unlabelled),
        (false, true) if owned(|one, other| one.kind == other.kind && one.name == other.name) => {
            Err(ApplyError::Leftover { kind, name })
        }
        (false, _) => Err(ApplyError::NotOurs { kind, name }),
    }
}

/// A merge patch that applies only to the object with this uid: the API server rejects a change of
/// the uid.
fn with_uid(patch: &Value, uid: &Option<String>) -> Value {
    let mut patch = patch.clone();
    if let Some(uid) = uid {
        patch["metadata"]["uid"] = uid.as_str().into();
    }
    patch
}

/// Whether the API server rejected a change of the uid: the intended object is deleted, and another
/// one has its name.
fn is_uid_mismatch(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.into_iter().any(|cause| cause.field == "metadata.uid")
}

/// Changes an object with a merge patch. A deleted object needs no change.
async fn change<K: NamespacedObject>(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> Result<Option<WrittenObject>, ApplyError> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    match api.patch_metadata(name, &parameters, &Patch::Merge(patch)).await {
        Ok(changed) => Ok(Some(written::<K>(changed.meta()))),
        Err(kube::Error::Api(status)) if status.code == 404 || is_uid_mismatch(&status) => Ok(None),
        Err(source) => Err(ApplyError::Change { kind: kind::<K>(), name: name.to_owned(), source }),
    }
}

/// Deletes an object with everything it owns; with a uid, only the object with that uid.
async fn delete<K: NamespacedObject>(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &Option<String>,
) -> Result<Option<WrittenObject>, ApplyError> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let preconditions = Preconditions { uid: uid.clone(), ..Preconditions::default() };
    let parameters = DeleteParams::background().preconditions(preconditions);
    match api.delete(name, &parameters).await {
        // Deleting twice is harmless.
        Ok(_) => Ok(None),
        // The intended object is already deleted.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(None),
        Err(source) => Err(ApplyError::Delete { kind: kind::<K>(), name: name.to_owned(), source }),
    }
}

fn api<K: NamespacedObject>(client: &Client, object: &K) -> Api<K> {
    Api::namespaced(client.clone(), &object.namespace().unwrap_or_default())
}

fn written<K: NamespacedObject>(metadata: &ObjectMeta) -> WrittenObject {
    WrittenObject {
        kind: kind::<K>(),
        name: metadata.name.clone().unwrap_or_default(),
        version: metadata.resource_version.clone(),
    }
}

fn kind<K: NamespacedObject>() -> String {
    K::kind(&()).into_owned()
}
