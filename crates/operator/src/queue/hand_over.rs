//! `POST /v1/namespaces/NAMESPACE/miniclusters/NAME/jobs/ID/handover`: has a job of an instance
//! held, canceled or released, for callers that may patch the MiniCluster. The response may have the
//! job's environment.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use flux_operator_api::view::{
    HandOverGoal, HandOverRefusal, HandOverRequest, HandOverState, HandedOverJob,
};
use flux_operator_flux::JobId;
use flux_operator_wire::{HomeJobState, JobGoal, JobOrder, JobRefusal};

use super::visibility::{HttpError, find_cluster};
use crate::connections::ConnectionGuard;
use crate::http::ServerState;
use crate::reports::{HandOverError, MAX_WAIT, is_too_large};

/// The longest message of a canceled job.
const MAX_MESSAGE: usize = 1024;

/// The largest urgency of Flux.
const MAX_URGENCY: u32 = 31;

pub(crate) async fn hand_over(
    State(server): State<ServerState>,
    Path((namespace, name, id)): Path<(String, String, String)>,
    Extension(connection): Extension<Arc<ConnectionGuard>>,
    headers: HeaderMap,
    Json(request): Json<HandOverRequest>,
) -> Result<Json<HandedOverJob>, HttpError> {
    let minicluster = find_cluster(&server, &headers, "patch", &namespace, &name).await?;
    drop(headers);
    let order = order(&id, &request)?;
    let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
    let patience = Duration::from_secs(request.wait).min(MAX_WAIT);
    // A client that may not wait gets what there is.
    let may_wait = !patience.is_zero() && connection.start_client_long_poll(uid);
    let patience = if may_wait { patience } else { Duration::from_millis(1) };
    let answer = server.reports.hand_over(&namespace, uid, &order, patience).await;
    let answer = answer.map_err(|error| match error {
        HandOverError::TooMany => HttpError(
            StatusCode::TOO_MANY_REQUESTS,
            "too many jobs of the namespace are handed over at the same time: try again".into(),
        ),
        HandOverError::NoAnswer => HttpError(
            StatusCode::GATEWAY_TIMEOUT,
            "the lead does not hand over the job: it may not be ready, or its agent is older than \
             this operator; then create the MiniCluster again"
                .into(),
        ),
    })?;
    let Some(answer) = answer else { return Ok(Json(HandedOverJob::default())) };
    Ok(Json(HandedOverJob {
        state: Some(state(answer.state)),
        urgency: answer.urgency,
        refusal: answer.refusal.map(refusal),
        too_large: is_too_large(&answer),
        jobspec: answer.part.as_secret_str().to_owned(),
    }))
}

/// The order of a request.
fn order(id: &str, request: &HandOverRequest) -> Result<JobOrder, HttpError> {
    let bad = |message: &str| HttpError(StatusCode::BAD_REQUEST, message.to_owned());
    let job: JobId = id.parse().map_err(|_error| bad("the job's id is not one of Flux"))?;
    let HandOverRequest { goal, message, urgency, wait: _ } = request;
    if message.len() > MAX_MESSAGE {
        return Err(bad("the message is longer than 1024 bytes"));
    }
    if message.contains('\0') {
        return Err(bad("the message has a NUL character"));
    }
    if urgency.is_some_and(|urgency| urgency > MAX_URGENCY) {
        return Err(bad("the urgency is not one of Flux: it is at most 31"));
    }
    let goal = match goal {
        HandOverGoal::Held => JobGoal::Held,
        HandOverGoal::Canceled => JobGoal::Canceled(message.clone()),
        HandOverGoal::Released => JobGoal::Released(*urgency),
    };
    Ok(JobOrder { job: job.number(), goal })
}

fn state(state: HomeJobState) -> HandOverState {
    match state {
        HomeJobState::Pending => HandOverState::Pending,
        HomeJobState::Held => HandOverState::Held,
        HomeJobState::Started => HandOverState::Started,
        HomeJobState::Finished => HandOverState::Finished,
        HomeJobState::Missing => HandOverState::Missing,
    }
}

fn refusal(refusal: JobRefusal) -> HandOverRefusal {
    match refusal {
        JobRefusal::OtherUser => HandOverRefusal::OtherUser,
        JobRefusal::NotUpdatable => HandOverRefusal::NotUpdatable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_checked() {
        let request = |message: &str, urgency| HandOverRequest {
            goal: HandOverGoal::Canceled,
            message: message.into(),
            urgency,
            wait: 0,
        };
        let cancel = order("f1", &request("a 'b'", None)).ok().unwrap();
        assert_eq!(cancel.goal, JobGoal::Canceled("a 'b'".into()));
        for (id, request, what) in [
            ("nonsense!", request("", None), "id"),
            ("f1", request(&"x".repeat(2000), None), "longer"),
            ("f1", request("a\0b", None), "NUL"),
            ("f1", request("", Some(32)), "urgency"),
        ] {
            let HttpError(code, message) = order(id, &request).err().unwrap();
            assert_eq!(code, StatusCode::BAD_REQUEST);
            assert!(message.contains(what), "{message}");
        }
    }
}
