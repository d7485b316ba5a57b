//! HTTP endpoints that show queues and clusters to callers that may get the object:
//!
//! - `GET /v1/queues`: the queues the caller may get.
//! - `GET /v1/queues/NAMESPACE/NAME/pending?limit=&offset=`: the waiting jobs, in order.
//! - `GET /v1/namespaces/NAMESPACE/fluxjobs/NAME`: why a job waits.
//! - `GET /v1/namespaces/NAMESPACE/miniclusters/NAME`: brokers, ranks, number of jobs.
//! - `GET /v1/namespaces/NAMESPACE/miniclusters/NAME/jobs`: the jobs pending in its instance.
//!
//! Every request needs a token.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use flux_operator_api::view::{Cluster, ErrorResponse, JobExplanation, QueueList, WaitingJobs};
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_plan::view::{self, QueueView, TentativeAdmissions, of_job};
use flux_operator_queue::SetupName;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use serde::Deserialize;

use super::authorization::Caller;
use super::ledger::uid_of;
use super::schedule::now;
use crate::http::ServerState;

/// The maximum number of jobs in a response; the same as Kueue's.
const MAX_JOBS: usize = 1000;

/// An error response.
pub(crate) struct HttpError(pub(crate) StatusCode, pub(crate) String);

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        (self.0, Json(ErrorResponse { message: self.1 })).into_response()
    }
}

/// The requested range of waiting jobs.
#[derive(Deserialize)]
pub(crate) struct PageQuery {
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

/// `GET /v1/queues`
pub(crate) async fn queues(
    State(server): State<ServerState>,
    headers: HeaderMap,
) -> Result<Json<QueueList>, HttpError> {
    let caller = Caller::authenticate(&server.client, &headers).await?;
    let names: Vec<SetupName> =
        server.queues.ledger().setups().map(|(name, _)| name.clone()).collect();
    let mut items = Vec::new();
    for name in names {
        if caller.can_get::<FluxSetup>(&server.client, &name.namespace, &name.name).await? {
            items.extend(
                QueueView::new(&server.queues.ledger(), &NO_TENTATIVE_ADMISSIONS, now())
                    .queue(&name),
            );
        }
    }
    Ok(Json(QueueList { items }))
}

/// `GET /v1/queues/NAMESPACE/NAME/pending`
pub(crate) async fn pending(
    State(server): State<ServerState>,
    Path((namespace, name)): Path<(String, String)>,
    Query(page): Query<PageQuery>,
    headers: HeaderMap,
) -> Result<Json<WaitingJobs>, HttpError> {
    authorize::<FluxSetup>(&server, &headers, &namespace, &name).await?;
    let queue = SetupName::new(&namespace, &name);
    let ledger = server.queues.ledger();
    if ledger.setup_rules(&queue).is_none() {
        return Err(not_found("FluxSetup", &namespace, &name));
    }
    let limit = page.limit.unwrap_or(MAX_JOBS).min(MAX_JOBS);
    Ok(Json(QueueView::new(&ledger, &NO_TENTATIVE_ADMISSIONS, now()).waiting_jobs(
        &queue,
        page.offset,
        limit,
    )))
}

/// `GET /v1/namespaces/NAMESPACE/fluxjobs/NAME`
pub(crate) async fn why(
    State(server): State<ServerState>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<JobExplanation>, HttpError> {
    authorize::<FluxJob>(&server, &headers, &namespace, &name).await?;
    let reference = ObjectRef::new(&name).within(&namespace);
    let Some(job) = server.queues.jobs.get(&reference) else {
        return Err(not_found("FluxJob", &namespace, &name));
    };
    let why = QueueView::new(&server.queues.ledger(), &NO_TENTATIVE_ADMISSIONS, now())
        .for_namespace(&namespace)
        .explain(&uid_of(&*job));
    // A job that is not in one of our queues is described by its own status.
    let own = || job.unpack().ok().map(|job| of_job(&job));
    Ok(Json(why.or_else(own).unwrap_or_default()))
}

/// `GET /v1/namespaces/NAMESPACE/miniclusters/NAME`
pub(crate) async fn cluster(
    State(server): State<ServerState>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<Cluster>, HttpError> {
    let minicluster = find_cluster(&server, &headers, &namespace, &name).await?;
    let now = Timestamp::now();
    let observed = server.stores.observe(&minicluster, &server.reports, now);
    Ok(Json(view::cluster(&minicluster, &observed)))
}

/// `GET /v1/namespaces/NAMESPACE/miniclusters/NAME/jobs`
pub(crate) async fn cluster_jobs(
    State(server): State<ServerState>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, HttpError> {
    let minicluster = find_cluster(&server, &headers, &namespace, &name).await?;
    let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
    let jobs = server.reports.pending(uid);
    let body = view::instance_jobs_text(jobs.as_deref());
    Ok(([(CONTENT_TYPE, "application/json")], body))
}

async fn find_cluster(
    server: &ServerState,
    headers: &HeaderMap,
    namespace: &str,
    name: &str,
) -> Result<MiniCluster, HttpError> {
    authorize::<MiniCluster>(server, headers, namespace, name).await?;
    if !server.leadership.is_leader() {
        // Agents report to the leader only.
        let message = "this replica does not lead, and only the leader knows: try again";
        return Err(HttpError(StatusCode::SERVICE_UNAVAILABLE, message.into()));
    }
    let stored = server.stores.miniclusters.get(&ObjectRef::new(name).within(namespace));
    let readable = stored.and_then(|stored| stored.0.as_ref().ok().cloned());
    readable.ok_or_else(|| not_found("MiniCluster", namespace, name))
}

/// The operator's ledger already contains its own decisions.
static NO_TENTATIVE_ADMISSIONS: TentativeAdmissions = TentativeAdmissions::none();

/// Checks that the caller may get this object. A caller without permission does not even learn
/// whether the object exists.
async fn authorize<K: Resource<DynamicType = ()>>(
    server: &ServerState,
    headers: &HeaderMap,
    namespace: &str,
    name: &str,
) -> Result<(), HttpError> {
    let caller = Caller::authenticate(&server.client, headers).await?;
    if caller.can_get::<K>(&server.client, namespace, name).await? {
        return Ok(());
    }
    let (kind, plural) = (K::kind(&()), K::plural(&()));
    let message =
        format!("you may not get {kind} {namespace}/{name}: this needs the verb get on {plural}");
    Err(HttpError(StatusCode::FORBIDDEN, message))
}

fn not_found(kind: &str, namespace: &str, name: &str) -> HttpError {
    HttpError(StatusCode::NOT_FOUND, format!("there is no {kind} {namespace}/{name}"))
}
