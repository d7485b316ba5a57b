//! Lists the objects from which the state of queues is computed, as far as the user may list them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use anyhow::Result;
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_service::guarded::Guarded;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::ListParams;
use kube::core::error_boundary::InvalidObject;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::session::Session;
use super::view::{ListedObjects, Missing};
use crate::print;

/// The result of listing.
pub(super) enum Listing {
    /// The objects of all namespaces, or of one.
    Objects(ListedObjects),
    /// Not even the objects of the namespace could be listed: the API server's response.
    Forbidden(kube::Error),
}

/// Lists queues and jobs of all namespaces, or of one namespace if the user may not list all.
pub(super) async fn list_all(session: &Session) -> Result<Listing> {
    match list_objects(session).await {
        Ok(objects) => Ok(Listing::Objects(objects)),
        Err(error) if is_forbidden(&error) => Ok(Listing::Forbidden(error)),
        Err(error) => Err(session.explain(error, "failed to list queues and jobs").await),
    }
}

pub(super) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

async fn list_objects(session: &Session) -> kube::Result<ListedObjects> {
    let setups = list_permitted::<FluxSetup>(session).await?;
    let jobs = list_permitted::<FluxJob>(session).await?;
    let miniclusters = list_permitted::<MiniCluster>(session).await?;
    // Cluster-scoped, so not all users may list them. Without them, only the selector `{}` matches
    // anything, and a PriorityClass has no value.
    let namespaces = empty_if_forbidden(list::<Namespace>(session.all()).await)?.items;
    let classes = empty_if_forbidden(list::<PriorityClass>(session.all()).await)?.items;
    let quotas = empty_if_forbidden(list_permitted::<ResourceQuota>(session).await)?.items;
    let name = |namespace: &Namespace| Arc::<str>::from(namespace.name_any());
    let mut labels: BTreeMap<Arc<str>, BTreeMap<String, String>> =
        namespaces.iter().map(|namespace| (name(namespace), namespace.labels().clone())).collect();
    labels.entry(session.namespace.as_str().into()).or_default();
    Ok(ListedObjects {
        missing: setups.missing.or(jobs.missing).or(miniclusters.missing),
        setups: setups.items.into_iter().map(Arc::new).collect(),
        jobs: jobs.items,
        miniclusters: miniclusters.items,
        namespaces: labels,
        classes: classes
            .iter()
            .map(|class| (class.name_any(), class.value.unwrap_or_default()))
            .collect(),
        quotas,
    })
}

/// Objects of one kind.
pub(super) struct Listed<K> {
    /// Those that could be listed and decoded.
    pub(super) items: Vec<K>,
    missing: Option<Missing>,
}

/// The objects of all namespaces, or else of the session's.
async fn list_permitted<K>(session: &Session) -> kube::Result<Listed<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned,
{
    match list(session.all()).await {
        Err(error) if is_forbidden(&error) => {
            let listed = list(session.api()).await?;
            Ok(Listed { missing: Some(Missing::OtherNamespaces), ..listed })
        }
        listed => listed,
    }
}

/// Lists objects, except those that cannot be decoded, such as objects stored by another version.
pub(super) async fn list<K>(api: Api<Guarded<K>>) -> kube::Result<Listed<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let mut listed = Listed { items: Vec::new(), missing: None };
    for Guarded(object) in api.list(&ListParams::default()).await? {
        match object {
            Ok(object) => listed.items.push(object),
            Err(error) => {
                warn_undecodable::<K>(&error);
                listed.missing = Some(Missing::Undecodable);
            }
        }
    }
    Ok(listed)
}

fn warn_undecodable<K: Resource<DynamicType = ()>>(object: &InvalidObject) {
    let kind = K::kind(&());
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let namespace = object.metadata.namespace.as_deref();
    let location = namespace.map(|namespace| format!(" in {namespace:?}")).unwrap_or_default();
    // The error quotes the object, which may be another user's.
    let error = object.error.escape_debug();
    print::message(format_args!(
        "warning: {kind} {name:?}{location} is left out because it cannot be decoded: {error}"
    ));
}

fn empty_if_forbidden<K>(listed: kube::Result<Listed<K>>) -> kube::Result<Listed<K>> {
    match listed {
        Err(error) if is_forbidden(&error) => Ok(Listed { items: Vec::new(), missing: None }),
        listed => listed,
    }
}
