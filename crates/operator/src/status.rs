//! What writing a status takes, whatever the kind: the patch, the Events, and a word
//! to objects that cannot be read.

use std::collections::HashMap;
use std::sync::Mutex;

use flux_operator_plan::status::News;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::errors::chain;

/// Writes a status without reading the answer, which may be of an object that does
/// not parse.
pub(crate) async fn patch_status<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> Result<(), kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), Some(namespace)))
        .patch_subresource("status", name, &PatchParams::default(), &Patch::Merge(patch))
        .map_err(kube::Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await.map(drop)
}

/// Puts a status in the place of another, without reading the answer.
pub(crate) async fn replace_status<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    object: &Value,
) -> Result<(), kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(K::url_path(&(), Some(namespace)))
        .replace_subresource("status", name, &PostParams::default(), body)
        .map_err(kube::Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await.map(drop)
}

/// Writes an Event for everything that is news.
pub(crate) async fn tell(recorder: &Recorder, about: &ObjectReference, told: Vec<News>) {
    for news in told {
        let event = Event {
            type_: if news.good { EventType::Normal } else { EventType::Warning },
            reason: news.reason,
            note: Some(news.note),
            action: news.about.into(),
            secondary: None,
        };
        // An Event that is lost must not fail the pass: the status has the truth.
        if let Err(error) = recorder.publish(&event, about).await {
            let (kind, name, error) = (&about.kind, &about.name, chain(&error));
            tracing::warn!(kind, name, error, "failed to write an Event");
        }
    }
}

/// The last generation that was told to be unreadable, by the object's uid.
#[derive(Default)]
pub(crate) struct Unreadable(Mutex<HashMap<String, Option<i64>>>);

impl Unreadable {
    /// Says of an object that could not be read why not, once per generation: what
    /// its status is now cannot be read either.
    pub(crate) async fn tell<K>(
        &self,
        client: &Client,
        invalid: &InvalidObject,
        status: Value,
    ) -> Result<(), kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        let metadata = &invalid.metadata;
        let uid = metadata.uid.clone().unwrap_or_default();
        let lock = || self.0.lock().expect("no holder of this lock panics");
        if lock().get(&uid) == Some(&metadata.generation) {
            return Ok(());
        }
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let (kind, error) = (K::kind(&()), &invalid.error);
        tracing::warn!(%kind, name, namespace, error, "an object is unreadable");
        match patch_status::<K>(client, namespace, name, &json!({ "status": status })).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            written => written?,
        }
        lock().insert(uid, metadata.generation);
        Ok(())
    }
}
