//! Writes the status and tells Events: at most once a pass, and only what has changed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use flux_operator_api::{MiniCluster, MiniClusterStatus};
use flux_operator_plan::status::{News, Urgency, news, undecodable, urgency};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::core::Request;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource, ResourceExt};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::errors::chain;

/// How long a change that nobody waits for is kept back, so that others join it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Why the status was not written.
#[derive(Debug, thiserror::Error)]
#[error("failed to write the status")]
pub(crate) struct PublishError {
    source: kube::Error,
}

/// Writes statuses, and knows which of them can wait.
pub(crate) struct Publisher {
    client: Client,
    /// Since when a MiniCluster's change has been kept back, by its uid.
    kept_back: Mutex<HashMap<String, Instant>>,
    /// The last generation that was told to be unreadable, by its uid.
    refused: Mutex<HashMap<String, Option<i64>>>,
}

impl Publisher {
    pub(crate) fn new(client: Client) -> Publisher {
        Publisher { client, kept_back: Mutex::default(), refused: Mutex::default() }
    }

    /// Writes `status` unless it stands there already or can wait, then an Event for
    /// everything that a user would want to hear of. Returns how long it can wait.
    pub(crate) async fn publish(
        &self,
        recorder: &Recorder,
        minicluster: &MiniCluster,
        status: &MiniClusterStatus,
    ) -> Result<Option<Duration>, PublishError> {
        let uid = minicluster.metadata.uid.clone().unwrap_or_default();
        match urgency(minicluster.status.as_ref(), status) {
            Urgency::None => {
                lock(&self.kept_back).remove(&uid);
                return Ok(None);
            }
            Urgency::Soon => {
                let since = *lock(&self.kept_back).entry(uid.clone()).or_insert_with(Instant::now);
                let left = PATIENCE.saturating_sub(since.elapsed());
                if !left.is_zero() {
                    return Ok(Some(left));
                }
            }
            Urgency::Now => {}
        }
        let before = minicluster.status.clone().unwrap_or_default();
        // A field that is gone must be said to be gone in a merge patch.
        let mut patch = serde_json::to_value(status).expect("a status is JSON");
        let gone = [
            ("exitCode", status.exit_code.is_none() && before.exit_code.is_some()),
            ("admission", status.admission.is_none() && before.admission.is_some()),
        ];
        for (field, _) in gone.into_iter().filter(|(_, gone)| *gone) {
            patch[field] = Value::Null;
        }
        let namespace = minicluster.namespace().unwrap_or_default();
        let written = self.write(&namespace, &minicluster.name_any(), patch).await?;
        lock(&self.kept_back).remove(&uid);
        if !written {
            return Ok(None);
        }
        for news in news(&before.conditions, &status.conditions) {
            // An Event that is lost must not fail the pass: the status has the truth.
            if let Err(error) = recorder.publish(&event(news), &minicluster.object_ref(&())).await {
                let (cluster, error) = (minicluster.name_any(), chain(&error));
                tracing::warn!(cluster, error, "failed to write an Event");
            }
        }
        Ok(None)
    }

    /// Says of an object that could not be read why not, once per generation: what
    /// its status is now cannot be read either.
    pub(crate) async fn refuse(&self, invalid: &InvalidObject) -> Result<(), PublishError> {
        let metadata = &invalid.metadata;
        let uid = metadata.uid.clone().unwrap_or_default();
        if lock(&self.refused).get(&uid) == Some(&metadata.generation) {
            return Ok(());
        }
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        tracing::warn!(
            cluster = name,
            namespace,
            error = invalid.error,
            "a MiniCluster is unreadable"
        );
        let status = undecodable(&invalid.error, metadata.generation, Timestamp::now());
        self.write(
            namespace,
            name,
            json!({ "phase": status.phase, "conditions": status.conditions }),
        )
        .await?;
        lock(&self.refused).insert(uid, metadata.generation);
        Ok(())
    }

    /// Whether it was written; not if the object is gone, and nobody is left to read.
    async fn write(
        &self,
        namespace: &str,
        name: &str,
        status: Value,
    ) -> Result<bool, PublishError> {
        let api: Api<MiniCluster> = Api::namespaced(self.client.clone(), namespace);
        match patch_status(api, name, &json!({ "status": status })).await {
            Ok(()) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(source) => Err(PublishError { source }),
        }
    }
}

/// Writes a status without reading the answer, which may be of an object that does
/// not parse.
async fn patch_status(api: Api<MiniCluster>, name: &str, patch: &Value) -> Result<(), kube::Error> {
    let patch = Patch::Merge(patch);
    let request = Request::new(api.resource_url())
        .patch_subresource("status", name, &PatchParams::default(), &patch)
        .map_err(kube::Error::BuildRequest)?;
    api.into_client().request::<IgnoredAny>(request).await.map(drop)
}

fn event(news: News) -> Event {
    Event {
        type_: if news.good { EventType::Normal } else { EventType::Warning },
        reason: news.reason,
        note: Some(news.note),
        action: news.about.into(),
        secondary: None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}
