//! Writes the status and tells Events: at most once a pass, and only what has changed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use flux_operator_api::{MiniCluster, MiniClusterStatus};
use flux_operator_plan::queueing::merge_patch;
use flux_operator_plan::status::{Urgency, news, undecodable, urgency};
use k8s_openapi::jiff::Timestamp;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::events::Recorder;
use kube::{Client, Resource, ResourceExt};
use serde_json::json;

use crate::status::{Unreadable, patch_status, tell};

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
    unreadable: Unreadable,
}

impl Publisher {
    pub(crate) fn new(client: Client) -> Publisher {
        Publisher { client, kept_back: Mutex::default(), unreadable: Unreadable::default() }
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
        let Some(patch) = merge_patch(&before, status) else { return Ok(None) };
        let patch = json!({ "status": patch });
        let namespace = minicluster.namespace().unwrap_or_default();
        let name = minicluster.name_any();
        let written = patch_status::<MiniCluster>(&self.client, &namespace, &name, &patch).await;
        let written = match written {
            Ok(()) => true,
            // Nobody is left to read it.
            Err(kube::Error::Api(status)) if status.code == 404 => false,
            Err(source) => return Err(PublishError { source }),
        };
        lock(&self.kept_back).remove(&uid);
        if written {
            let told = news(&before.conditions, &status.conditions);
            tell(recorder, &minicluster.object_ref(&()), told).await;
        }
        Ok(None)
    }

    /// Says of an object that could not be read why not, once per generation: what
    /// its status is now cannot be read either.
    pub(crate) async fn refuse(&self, invalid: &InvalidObject) -> Result<(), PublishError> {
        let status = undecodable(&invalid.error, invalid.metadata.generation, Timestamp::now());
        let status = json!({ "phase": status.phase, "conditions": status.conditions });
        let told = self.unreadable.tell::<MiniCluster>(&self.client, invalid, status).await;
        told.map_err(|source| PublishError { source })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}
