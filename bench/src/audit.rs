//! Counts the requests in the API server's audit log.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One completed request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    at: Timestamp,
    milliseconds: f64,
    namespace: String,
    kind: CallKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CallKind {
    /// A counted request, such as `create jobs`.
    Call(String),
    /// A watch that was opened.
    Watch,
    /// A request for the Lease of leader election.
    Lease,
}

/// The requests of a period.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Tally {
    /// By verb and resource; failed ones with their status code.
    pub(crate) calls: BTreeMap<String, Calls>,
    /// Opened watches.
    pub(crate) watches: u64,
    /// Requests for the Lease.
    pub(crate) lease: u64,
}

/// The requests of one kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Calls {
    /// Their number.
    pub(crate) count: u64,
    /// The total time the API server took for them, including time in its queues.
    pub(crate) milliseconds: f64,
}

impl Tally {
    /// Counts requests between two times, except those in one namespace.
    pub(crate) fn count(calls: &[Call], from: Timestamp, until: Timestamp, without: &str) -> Tally {
        let mut tally = Tally::default();
        let counted = calls.iter().filter(|call| call.at >= from && call.at < until);
        for call in counted.filter(|call| call.namespace != without) {
            match &call.kind {
                CallKind::Call(name) => {
                    let calls = tally.calls.entry(name.clone()).or_default();
                    calls.count += 1;
                    calls.milliseconds += call.milliseconds;
                }
                CallKind::Watch => tally.watches += 1,
                CallKind::Lease => tally.lease += 1,
            }
        }
        tally
    }

    /// The number of counted requests.
    pub(crate) fn total(&self) -> u64 {
        self.calls.values().map(|calls| calls.count).sum()
    }
}

/// Reads all requests of a user from an audit log.
pub(crate) fn calls_of(user: &str, log: &Path) -> Result<Vec<Call>> {
    let failed = || format!("failed to read {}", log.display());
    let file = std::fs::File::open(log).with_context(failed)?;
    let mut calls = Vec::new();
    for line in BufReader::new(file).lines() {
        let line = line.with_context(failed)?;
        // The last line may be incomplete.
        let Ok(event) = serde_json::from_str::<AuditEvent>(&line) else { continue };
        if event.user.username == user {
            calls.extend(to_call(event));
        }
    }
    Ok(calls)
}

/// An event of the audit log.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    #[serde(default)]
    object_ref: Option<ObjectReference>,
    #[serde(default)]
    response_status: Option<Status>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectReference {
    resource: String,
    subresource: String,
    namespace: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

/// A watch is logged when it starts and when it ends; other requests once.
fn to_call(event: AuditEvent) -> Option<Call> {
    let stage = if event.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
    if event.stage != stage {
        return None;
    }
    let code = event.response_status.map(|status| status.code).unwrap_or_default();
    let object = event.object_ref.unwrap_or_default();
    let kind = match (event.verb.as_str(), object.resource.as_str()) {
        ("watch", _) => CallKind::Watch,
        (_, "leases") => CallKind::Lease,
        (verb, "") => {
            let path = event.request_uri.split('?').next().unwrap_or_default();
            CallKind::Call(format!("{verb} {path}"))
        }
        (verb, resource) => {
            let mut name = format!("{verb} {resource}");
            if !object.subresource.is_empty() {
                name = format!("{name}/{}", object.subresource);
            }
            if code >= 400 {
                name = format!("{name} ({code})");
            }
            CallKind::Call(name)
        }
    };
    let at = event.request_received_timestamp;
    let milliseconds = 1000.0 * event.stage_timestamp.duration_since(at).as_secs_f64();
    Some(Call { at, milliseconds, namespace: object.namespace, kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn kind(event: Value) -> Option<CallKind> {
        let mut whole = json!({
            "stage": "ResponseComplete", "requestURI": "/version?timeout=5s",
            "user": { "username": "u" }, "requestReceivedTimestamp": "2026-01-01T00:00:00.5Z",
            "stageTimestamp": "2026-01-01T00:00:00.75Z",
        });
        flux_operator_testkit::merge(&mut whole, &event);
        to_call(serde_json::from_value(whole).unwrap()).map(|call| call.kind)
    }

    #[test]
    fn a_call_is_named_by_verb_and_resource() {
        let status = json!({ "verb": "patch", "objectRef": { "resource": "miniclusters", "subresource": "status" } });
        assert_eq!(kind(status), Some(CallKind::Call("patch miniclusters/status".into())));
        let conflict = json!({ "verb": "create", "objectRef": { "resource": "jobs" }, "responseStatus": { "code": 409 } });
        assert_eq!(kind(conflict), Some(CallKind::Call("create jobs (409)".into())));
        assert_eq!(kind(json!({ "verb": "get" })), Some(CallKind::Call("get /version".into())));
    }

    #[test]
    fn watches_and_the_lease_are_counted_separately() {
        let lease = json!({ "verb": "update", "objectRef": { "resource": "leases" } });
        assert_eq!(kind(lease), Some(CallKind::Lease));
        let watch = json!({ "verb": "watch", "objectRef": { "resource": "jobs" } });
        assert_eq!(kind(watch.clone()), None, "its end is not counted again");
        let mut opened = watch;
        opened["stage"] = "ResponseStarted".into();
        assert_eq!(kind(opened), Some(CallKind::Watch));
    }

    #[test]
    fn only_the_period_is_counted_without_the_other_namespace() {
        let call = |second: i64, namespace: &str| Call {
            at: Timestamp::from_second(second).unwrap(),
            milliseconds: 250.0,
            namespace: namespace.into(),
            kind: CallKind::Call("get pods".into()),
        };
        let calls = [call(1, "a"), call(2, "a"), call(2, "warm"), call(3, "a")];
        let moment = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(Tally::count(&calls, moment(2), moment(3), "warm").total(), 1);
    }
}
