//! The status of a policy, read and written without the rest of it. Users choose how large its spec is, and
//! a policy that cannot be read has a status too.

use flux_operator_api::BurstPolicy;
use flux_operator_plan::bursting::RawStatus;
use kube::api::{GetParams, PostParams};
use kube::core::{Request, Resource, TypeMeta};
use kube::{Client, Error};
use serde::{Deserialize, Serialize};

use crate::errors::is_not_found;

/// What is read of a policy.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StoredPolicy {
    pub(crate) metadata: StoredMetadata,
    pub(crate) status: Option<RawStatus>,
}

/// What is read of its metadata, and sent back: which policy it is, and which version of it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StoredMetadata {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// What is written.
#[derive(Serialize)]
struct WithStatus<'a, S> {
    #[serde(flatten)]
    types: TypeMeta,
    metadata: &'a StoredMetadata,
    status: &'a S,
}

/// A policy; `None` if it does not exist.
pub(crate) async fn read_policy(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<StoredPolicy>, Error> {
    let request = requests(namespace).get(name, &GetParams::default());
    match client.request(request.map_err(Error::BuildRequest)?).await {
        Ok(policy) => Ok(Some(policy)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the status of exactly this version of a policy.
pub(crate) async fn replace_policy_status(
    client: &Client,
    policy: &StoredMetadata,
    status: &impl Serialize,
) -> Result<(), Error> {
    let (namespace, name) = (policy.namespace.as_deref(), policy.name.as_deref());
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    let types = TypeMeta::resource::<BurstPolicy>();
    let body = serde_json::to_vec(&WithStatus { types, metadata: policy, status });
    let body = body.map_err(Error::SerdeError)?;
    let request =
        requests(namespace).replace_subresource("status", name, &PostParams::default(), body);
    client.request_text(request.map_err(Error::BuildRequest)?).await.map(drop)
}

fn requests(namespace: &str) -> Request {
    Request::new(BurstPolicy::url_path(&(), Some(namespace)))
}
