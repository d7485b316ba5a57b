//! HTTP endpoints that show queues and clusters to callers that may get the object:
//!
//! - `GET /v1/queues`: the queues the caller may get.
//! - `GET /v1/queues/NAMESPACE/NAME/pending?limit=&offset=`: the waiting jobs, in order.
//! - `GET /v1/namespaces/NAMESPACE/fluxjobs/NAME`: why a job waits.
//! - `GET /v1/namespaces/NAMESPACE/miniclusters/NAME`: brokers, ranks, number of jobs.
//! - `GET /v1/namespaces/NAMESPACE/miniclusters/NAME/jobs?version=&wait=`: the jobs pending in its
//!   instance; with a version, as soon as there is another one.
//!
//! Every request needs a token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
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
use crate::connections::ConnectionGuard;
use crate::http::ServerState;
use crate::reports::MAX_WAIT;

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

/// Which jobs of an instance the client knows, and how long it waits for others.
#[derive(Deserialize)]
pub(crate) struct JobsQuery {
    version: Option<u64>,
    /// Seconds.
    #[serde(default)]
    wait: u64,
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
        if caller.can::<FluxSetup>(&server.client, "get", &name.namespace, &name.name).await? {
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
    let minicluster = find_cluster(&server, &headers, "get", &namespace, &name).await?;
    let now = Timestamp::now();
    let observed = server.stores.observe(&minicluster, &server.reports, now);
    Ok(Json(view::cluster(&minicluster, &observed)))
}

/// `GET /v1/namespaces/NAMESPACE/miniclusters/NAME/jobs`
///
/// A client that knows the current version waits, unless too many wait already.
pub(crate) async fn cluster_jobs(
    State(server): State<ServerState>,
    Path((namespace, name)): Path<(String, String)>,
    Query(query): Query<JobsQuery>,
    Extension(connection): Extension<Arc<ConnectionGuard>>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    let minicluster = find_cluster(&server, &headers, "get", &namespace, &name).await?;
    drop(headers);
    let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
    let is_live = |pod: &str| server.stores.live_pods(&minicluster).contains(pod);
    let patience = Duration::from_secs(query.wait).min(MAX_WAIT);
    let mut jobs = match query.version {
        Some(known) if !patience.is_zero() && connection.start_client_long_poll(uid) => {
            server.reports.wait_for_other_jobs(uid, known, patience, is_live).await
        }
        _ => server.reports.jobs(uid, is_live),
    };
    let observed = server.stores.observe(&minicluster, &server.reports, Timestamp::now());
    view::add_nodes(&mut jobs.head, &minicluster, &observed);
    // The jobs are shared with other responses, not copied: there may be megabytes of them.
    let (start, end) = view::instance_jobs_text(&jobs.head);
    let parts = [Bytes::from(start), jobs.items, Bytes::from_static(end.as_bytes())];
    let length: usize = parts.iter().map(Bytes::len).sum();
    let parts = parts.into_iter().filter(|part| !part.is_empty()).map(Ok::<_, Infallible>);
    let headers =
        [(CONTENT_TYPE, "application/json".to_owned()), (CONTENT_LENGTH, length.to_string())];
    Ok((headers, Body::from_stream(futures::stream::iter(parts))).into_response())
}

/// The MiniCluster, if the caller may do this with it.
pub(super) async fn find_cluster(
    server: &ServerState,
    headers: &HeaderMap,
    verb: &str,
    namespace: &str,
    name: &str,
) -> Result<MiniCluster, HttpError> {
    authorize_to::<MiniCluster>(server, headers, verb, namespace, name).await?;
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
    authorize_to::<K>(server, headers, "get", namespace, name).await
}

/// The same for any verb.
async fn authorize_to<K: Resource<DynamicType = ()>>(
    server: &ServerState,
    headers: &HeaderMap,
    verb: &str,
    namespace: &str,
    name: &str,
) -> Result<(), HttpError> {
    let caller = Caller::authenticate(&server.client, headers).await?;
    if caller.can::<K>(&server.client, verb, namespace, name).await? {
        return Ok(());
    }
    let (kind, plural) = (K::kind(&()), K::plural(&()));
    let message = format!(
        "you may not {verb} {kind} {namespace}/{name}: this needs the verb {verb} on {plural}"
    );
    Err(HttpError(StatusCode::FORBIDDEN, message))
}

fn not_found(kind: &str, namespace: &str, name: &str) -> HttpError {
    HttpError(StatusCode::NOT_FOUND, format!("there is no {kind} {namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Connections;
    use crate::lease::Leadership;
    use crate::reports::fixture::{minicluster, server_with};
    use axum::Router;
    use axum::body::to_bytes;
    use axum::http::Request;
    use axum::http::header::AUTHORIZATION;
    use axum::routing::get;
    use flux_operator_api::view::InstanceJobs;
    use kube::Client;
    use tokio::time::Instant;
    use tower::ServiceExt;

    /// A client of an API server that authenticates every token, and permits everything.
    fn permissive_client() -> Client {
        let review = async |request: Request<kube::client::Body>| {
            let status = match request.uri().path().ends_with("tokenreviews") {
                true => serde_json::json!({ "authenticated": true, "user": { "username": "u" } }),
                false => serde_json::json!({ "allowed": true }),
            };
            let review = serde_json::json!({ "spec": {}, "status": status }).to_string();
            Ok::<_, Infallible>(axum::http::Response::new(kube::client::Body::from(
                review.into_bytes(),
            )))
        };
        Client::new(tower::service_fn(review), "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_waits_at_most_25_seconds_and_only_if_there_are_few_of_them() {
        let server = server_with(Leadership::always(), permissive_client(), [minicluster()]);
        let connections = Connections::new(10_000);
        let connect = || connections.admit([127, 0, 0, 1].into(), Duration::from_secs(600)).0;
        let ask = async |query: String| {
            let router = Router::new()
                .route("/{namespace}/{name}", get(cluster_jobs))
                .layer(Extension(Arc::new(connect())))
                .with_state(server.clone());
            let request = Request::get(format!("/a/a{query}")).header(AUTHORIZATION, "Bearer t");
            let start = Instant::now();
            let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let length = response.headers()[CONTENT_LENGTH].to_str().unwrap().to_owned();
            let body = to_bytes(response.into_body(), 10_000).await.unwrap();
            assert_eq!(length, body.len().to_string());
            let jobs: InstanceJobs = serde_json::from_slice(&body).unwrap();
            (jobs, start.elapsed().as_secs())
        };
        let (jobs, waited) = ask("?wait=9".into()).await;
        assert_eq!((jobs.listed, waited), (false, 0), "it does not know a version");
        let known = jobs.version;
        assert_eq!(ask(format!("?version={known}&wait=9")).await, (jobs.clone(), 9));
        assert_eq!(ask(format!("?version={known}&wait=600")).await, (jobs.clone(), 25));
        assert_eq!(ask(format!("?version={}&wait=9", known + 1)).await, (jobs.clone(), 0));
        let waiting = std::iter::from_fn(|| {
            let connection = connect();
            connection.start_client_long_poll("uid").then_some(connection)
        });
        let waiting: Vec<ConnectionGuard> = waiting.collect();
        assert_eq!(ask(format!("?version={known}&wait=9")).await, (jobs.clone(), 0));
        drop(waiting);
        assert_eq!(ask(format!("?version={known}&wait=9")).await, (jobs, 9));
    }
}
