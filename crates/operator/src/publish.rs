//! Writes the status and tells Events: once a pass, and only what has changed.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::{MiniCluster, MiniClusterStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;

use crate::errors::chain;

/// Why the status was not written.
#[derive(Debug, thiserror::Error)]
#[error("failed to write the status")]
pub(crate) struct PublishError {
    source: kube::Error,
}

/// Writes `status` unless it is what stands there already, then an Event for
/// every condition that a user would want to hear of.
pub(crate) async fn publish(
    client: &Client,
    recorder: &Recorder,
    minicluster: &MiniCluster,
    status: &MiniClusterStatus,
) -> Result<(), PublishError> {
    let before = minicluster.status.clone().unwrap_or_default();
    if before == *status {
        return Ok(());
    }
    let api: Api<MiniCluster> =
        Api::namespaced(client.clone(), &minicluster.namespace().unwrap_or_default());
    // A field that is gone must be said to be gone in a merge patch.
    let mut patch = serde_json::to_value(status).expect("a status is JSON");
    if status.exit_code.is_none() && before.exit_code.is_some() {
        patch["exitCode"] = serde_json::Value::Null;
    }
    let patch = Patch::Merge(json!({ "status": patch }));
    match api.patch_status(&minicluster.name_any(), &PatchParams::default(), &patch).await {
        Ok(_) => {}
        // Deleted meanwhile: nobody is left to read it.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(source) => return Err(PublishError { source }),
    }
    for event in changes(&before.conditions, &status.conditions) {
        // An Event that is lost must not fail the pass: the status has the truth.
        if let Err(error) = recorder.publish(&event, &minicluster.object_ref(&())).await {
            let error = chain(&error);
            tracing::warn!(cluster = %minicluster.name_any(), error, "failed to write an Event");
        }
    }
    Ok(())
}

/// Events for conditions whose status has changed.
fn changes(before: &[Condition], now: &[Condition]) -> Vec<Event> {
    let told = [ConditionType::Accepted, ConditionType::Ready, ConditionType::Succeeded];
    let find = |list: &[Condition], kind: ConditionType| {
        list.iter().find(|condition| condition.type_ == kind.as_str()).cloned()
    };
    told.into_iter()
        .filter_map(|kind| {
            let now = find(now, kind)?;
            let before = find(before, kind);
            let changed = before.as_ref().map(|before| &before.status) != Some(&now.status);
            let first_and_dull =
                before.is_none() && (now.status != "False" || kind == ConditionType::Ready);
            let news = changed && now.status != "Unknown" && !first_and_dull;
            news.then(|| event(kind, &now))
        })
        .collect()
}

fn event(kind: ConditionType, condition: &Condition) -> Event {
    let good = condition.status == "True" || kind == ConditionType::Ready;
    Event {
        type_: if good { EventType::Normal } else { EventType::Warning },
        reason: condition.reason.clone(),
        note: Some(condition.message.clone()),
        action: kind.as_str().into(),
        secondary: None,
    }
}
