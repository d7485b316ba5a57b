//! Who waits where, over HTTP, for those who may read the queue or the job:
//!
//! - `GET /v1/queues`: the queues the caller may get.
//! - `GET /v1/queues/NAMESPACE/NAME/pending?limit=&offset=`: who waits there, in order.
//! - `GET /v1/namespaces/NAMESPACE/fluxjobs/NAME`: why a job waits.
//!
//! Without a token nothing is answered.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use flux_operator_api::{FluxJob, FluxSetup};
use flux_operator_plan::reason::{of_inactive, of_waiting};
use flux_operator_queue::{Kind, SetupName, Uid, Waiting, Workload};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::access::Caller;
use super::ledger::{Ledger, uid_of};
use super::schedule::now;
use crate::http::Server;

/// How many are told at once; the same as Kueue's.
const MOST: usize = 1000;

/// Why there is no answer.
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "message": self.1 }))).into_response()
    }
}

/// Which of those that wait are asked for.
#[derive(Deserialize)]
pub(crate) struct Part {
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

/// A job that waits.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    kind: &'static str,
    namespace: String,
    name: String,
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// How many of its queue come before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    reason: String,
    message: String,
}

/// `GET /v1/queues`
pub(crate) async fn queues(
    State(server): State<Server>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    let caller = Caller::of(&server.client, &headers).await?;
    let names: Vec<SetupName> =
        server.queues.ledger().setups().map(|(name, _)| name.clone()).collect();
    let mut items = Vec::new();
    for name in names {
        if caller.may_get::<FluxSetup>(&server.client, &name.namespace, &name.name).await? {
            items.extend(queue(&server.queues.ledger(), &name));
        }
    }
    Ok(Json(json!({ "items": items })))
}

fn queue(ledger: &Ledger, name: &SetupName) -> Option<Value> {
    let (setup, usage) = (ledger.read(name)?, ledger.scheduler().usage(name)?);
    Some(json!({
        "namespace": &*name.namespace,
        "name": &*name.name,
        "pending": usage.pending,
        "admitted": usage.admitted,
        "room": setup.room.to_string(),
        "used": usage.used.to_string(),
        "active": usage.inactive.is_none(),
        "reason": usage.inactive.as_ref().map(|inactive| of_inactive(inactive.reason).as_str()),
        "message": usage.inactive.as_ref().map(|inactive| &inactive.message),
    }))
}

/// `GET /v1/queues/NAMESPACE/NAME/pending`
pub(crate) async fn pending(
    State(server): State<Server>,
    Path((namespace, name)): Path<(String, String)>,
    Query(part): Query<Part>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    allow::<FluxSetup>(&server, &headers, &namespace, &name).await?;
    let queue = SetupName::new(&namespace, &name);
    let ledger = server.queues.ledger();
    if ledger.read(&queue).is_none() {
        return Err(not_found("FluxSetup", &namespace, &name));
    }
    let scheduler = ledger.scheduler();
    let waiting = scheduler.pending(&queue);
    let limit = part.limit.unwrap_or(MOST).min(MOST);
    let items: Vec<Item> = waiting
        .iter()
        .enumerate()
        .skip(part.offset)
        .take(limit)
        .filter_map(|(position, workload)| {
            let why = scheduler.why(&workload.uid, now())?;
            Some(item(workload, &Waiting { position: Some(position), ..why }))
        })
        .collect();
    Ok(Json(json!({ "total": waiting.len(), "items": items })))
}

/// `GET /v1/namespaces/NAMESPACE/fluxjobs/NAME`
pub(crate) async fn why(
    State(server): State<Server>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    allow::<FluxJob>(&server, &headers, &namespace, &name).await?;
    let reference = ObjectRef::new(&name).within(&namespace);
    let Some(job) = server.queues.jobs.get(&reference) else {
        return Err(not_found("FluxJob", &namespace, &name));
    };
    let told = told(&server.queues.ledger(), &uid_of(&*job));
    let told = told.unwrap_or_else(|| {
        // It has room, has ended, or cannot be queued: its status says which.
        let status = job.open().ok().and_then(|job| job.status).unwrap_or_default();
        json!({
            "kind": "FluxJob", "namespace": namespace, "name": name, "queue": status.queue,
            "reason": if status.reason.is_empty() { &status.phase } else { &status.reason },
            "message": format!("it does not wait: it is {}", status.phase),
        })
    });
    Ok(Json(told))
}

fn told(ledger: &Ledger, uid: &Uid) -> Option<Value> {
    let (scheduler, now) = (ledger.scheduler(), now());
    let why = scheduler.why(uid, now)?;
    let queue = why.queue.clone();
    let workload = queue.and_then(|queue| {
        scheduler.pending(&queue).into_iter().find(|workload| workload.uid == *uid)
    });
    Some(match workload {
        Some(workload) => json!(item(workload, &why)),
        None => {
            let reason = of_waiting(&why.reason).as_str();
            json!({ "kind": "FluxJob", "reason": reason, "message": why.reason.to_string() })
        }
    })
}

fn item(workload: &Workload, why: &Waiting) -> Item {
    Item {
        kind: match workload.kind {
            Kind::FluxJob => "FluxJob",
            Kind::MiniCluster => "MiniCluster",
        },
        namespace: workload.namespace.to_string(),
        name: workload.name.to_string(),
        priority: workload.priority,
        queue: why.queue.as_ref().map(ToString::to_string),
        position: why.position,
        reason: of_waiting(&why.reason).to_string(),
        message: why.reason.to_string(),
    }
}

/// Whether the caller may get this object. What it is not allowed to see it is not told
/// of, not even that it is not there.
async fn allow<K: Resource<DynamicType = ()>>(
    server: &Server,
    headers: &HeaderMap,
    namespace: &str,
    name: &str,
) -> Result<(), Refusal> {
    let caller = Caller::of(&server.client, headers).await?;
    if caller.may_get::<K>(&server.client, namespace, name).await? {
        return Ok(());
    }
    let (kind, plural) = (K::kind(&()), K::plural(&()));
    let message =
        format!("you may not get {kind} {namespace}/{name}: ask for the verb get on {plural}");
    Err(Refusal(StatusCode::FORBIDDEN, message))
}

fn not_found(kind: &str, namespace: &str, name: &str) -> Refusal {
    Refusal(StatusCode::NOT_FOUND, format!("there is no {kind} {namespace}/{name}"))
}
