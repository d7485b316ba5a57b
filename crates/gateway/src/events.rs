//! Reports refused connections: one Event and one line of the log for each lease and minute.

use std::time::Duration;

use flux_operator_api::MiniCluster;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};

use crate::lender::LenderId;
use crate::refusal::{LeaseName, RefusalReport, Refusals};

/// The name under which Events are written.
const CONTROLLER: &str = "flux-operator-gateway";

/// The reason of the Events.
const REASON: &str = "GatewayRefused";

/// How long to try to write an Event.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);

/// Reports refused connections until the future is dropped.
pub(crate) async fn report_refusals(client: Client, refusals: Refusals) {
    let reporter = Reporter::from(CONTROLLER);
    loop {
        for report in refusals.wait().await {
            let LeaseName { lender, invitation } = &report.lease;
            tracing::warn!(
                namespace = lender.namespace,
                cluster = lender.name,
                invitation,
                refused = report.total(),
                reasons = report.reasons(),
                last = %report.last,
                "refused connections"
            );
            publish(&client, &reporter, &report).await;
        }
    }
}

async fn publish(client: &Client, reporter: &Reporter, report: &RefusalReport) {
    // A new one each time: a recorder remembers its Events, and a second one of the same reason
    // would only raise the count of the first, whose text has other numbers.
    let recorder = Recorder::new(client.clone(), reporter.clone());
    let event = Event {
        type_: EventType::Warning,
        reason: REASON.into(),
        note: Some(report.to_string()),
        action: "Refuse".into(),
        secondary: None,
    };
    let about = reference(&report.lease.lender);
    let published = tokio::time::timeout(PUBLISH_TIMEOUT, recorder.publish(&event, &about)).await;
    let (namespace, cluster) = (&report.lease.lender.namespace, &report.lease.lender.name);
    // A lost Event is in the log and in the metrics.
    match published {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(namespace, cluster, %error, "failed to write an Event");
        }
        Err(_elapsed) => {
            tracing::warn!(namespace, cluster, error = "timed out", "failed to write an Event");
        }
    }
}

fn reference(lender: &LenderId) -> ObjectReference {
    ObjectReference {
        api_version: Some(MiniCluster::api_version(&()).into()),
        kind: Some(MiniCluster::kind(&()).into()),
        namespace: Some(lender.namespace.clone()),
        name: Some(lender.name.clone()),
        uid: Some(lender.uid.clone()),
        ..ObjectReference::default()
    }
}
