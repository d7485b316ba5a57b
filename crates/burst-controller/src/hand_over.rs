//! Asks the operator to have a job at home held, canceled or released.

use std::time::Duration;

use flux_operator_api::Burst;
use flux_operator_api::view::{
    ErrorResponse, HandOverGoal, HandOverRefusal, HandOverRequest, HandOverState, HandedOverJob,
};
use flux_operator_plan::bursting::{HomeAnswer, HomeJob};
use flux_operator_wire::{HomeJobState, JobGoal, JobRefusal, JobspecText};
use http::StatusCode;
use kube::client::Body;
use kube::{Client, ResourceExt};

use crate::errors::{chain, cut};

/// How long the operator may wait for the lead before it answers, in seconds. Few Bursts are
/// reconciled at the same time.
const WAIT_SECONDS: u64 = 3;

/// How long an answer may take beyond that.
const RESPONSE_TIME: Duration = Duration::from_secs(10);

/// Has a job become what is given, and returns what has become of it.
pub(crate) async fn hand_over(operator: &Client, burst: &Burst, goal: JobGoal) -> HomeAnswer {
    let request = match request(burst, goal) {
        Ok(request) => request,
        Err(error) => return HomeAnswer::Failed(format!("failed to write a request: {error}")),
    };
    let limit = Duration::from_secs(WAIT_SECONDS) + RESPONSE_TIME;
    match tokio::time::timeout(limit, ask(operator, request)).await {
        Ok(Ok((status, body))) => answer(status, body.as_ref()),
        Ok(Err(error)) => {
            HomeAnswer::Failed(format!("failed to ask the operator: {}", chain(&error)))
        }
        Err(_elapsed) => HomeAnswer::Failed("the operator does not respond".into()),
    }
}

/// Not [`Client::request`]: an error of the operator is not one of an API server, and an answer that
/// cannot be parsed would be logged, with the job's environment.
async fn ask(
    operator: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<(StatusCode, impl AsRef<[u8]>), kube::Error> {
    let response = operator.send(request.map(Body::from)).await?;
    let status = response.status();
    Ok((status, response.into_body().collect_bytes().await?))
}

fn request(burst: &Burst, goal: JobGoal) -> Result<http::Request<Vec<u8>>, http::Error> {
    let namespace = burst.namespace().unwrap_or_default();
    let (cluster, job) = (&burst.spec.cluster, &burst.spec.isolated_job);
    let path = format!("/v1/namespaces/{namespace}/miniclusters/{cluster}/jobs/{job}/handover");
    let wait = WAIT_SECONDS;
    let body = match goal {
        JobGoal::Held => HandOverRequest { goal: HandOverGoal::Held, wait, ..Default::default() },
        JobGoal::Canceled(message) => {
            HandOverRequest { goal: HandOverGoal::Canceled, message, wait, urgency: None }
        }
        JobGoal::Released(urgency) => {
            let goal = HandOverGoal::Released;
            HandOverRequest { goal, urgency, wait, message: String::new() }
        }
    };
    let body = serde_json::to_vec(&body).expect("text and numbers are JSON");
    http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json").body(body)
}

/// What a response says.
fn answer(status: StatusCode, body: &[u8]) -> HomeAnswer {
    if !status.is_success() {
        let error = serde_json::from_slice::<ErrorResponse>(body);
        return failure(status, &error.map(|it| it.message).unwrap_or_default());
    }
    let Ok(job) = serde_json::from_slice::<HandedOverJob>(body) else {
        return HomeAnswer::Failed("the operator's response cannot be parsed".into());
    };
    let HandedOverJob { state, urgency, refusal, jobspec, too_large } = job;
    let Some(state) = state else { return HomeAnswer::Awaited };
    let state = match state {
        HandOverState::Pending => HomeJobState::Pending,
        HandOverState::Held => HomeJobState::Held,
        HandOverState::Started => HomeJobState::Started,
        HandOverState::Finished => HomeJobState::Finished,
        HandOverState::Missing => HomeJobState::Missing,
    };
    let refusal = refusal.map(|refusal| match refusal {
        HandOverRefusal::OtherUser => JobRefusal::OtherUser,
        HandOverRefusal::NotUpdatable => JobRefusal::NotUpdatable,
    });
    let jobspec = JobspecText::new(jobspec);
    HomeAnswer::Job(HomeJob { state, urgency, refusal, jobspec, is_too_large: too_large })
}

/// What an error of the operator means.
fn failure(status: StatusCode, message: &str) -> HomeAnswer {
    let why = match status.as_u16() {
        // It does not lead, or many jobs are handed over.
        429 | 503 => return HomeAnswer::Awaited,
        504 => {
            let why = "the lead does not hand over the job: it may not be ready, or its agent is older \
                       than the operator; then create the MiniCluster again";
            return HomeAnswer::NoAnswer(why.into());
        }
        400 => format!("the operator refuses the request: {}", cut(message)),
        403 => "the burst controller may not patch the MiniCluster: an administrator has to apply \
                `flux-operator manifests` of this release again"
            .into(),
        404 | 405 => {
            "the operator does not know the MiniCluster, or is older than this controller: \
                      then update the operator"
                .into()
        }
        code => format!("the operator responded with HTTP {code}"),
    };
    HomeAnswer::Failed(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_api::BurstSpec;

    #[test]
    fn a_request_names_the_job_and_what_it_should_become() {
        let spec =
            BurstSpec { cluster: "fs".into(), isolated_job: "f2b".into(), ..Default::default() };
        let mut burst = Burst::new("b", spec);
        burst.metadata.namespace = Some("ns".into());
        let asked = request(&burst, JobGoal::Canceled("a \"b\"".into())).unwrap();
        assert_eq!(asked.uri(), "/v1/namespaces/ns/miniclusters/fs/jobs/f2b/handover");
        let body: HandOverRequest = serde_json::from_slice(asked.body()).unwrap();
        assert_eq!((body.goal, body.message.as_str()), (HandOverGoal::Canceled, "a \"b\""));
    }

    #[test]
    fn an_answer_without_a_state_is_awaited() {
        let of_job =
            |job: &HandedOverJob| answer(StatusCode::OK, &serde_json::to_vec(job).unwrap());
        assert_eq!(of_job(&HandedOverJob::default()), HomeAnswer::Awaited);
        let held = HandedOverJob {
            state: Some(HandOverState::Held),
            jobspec: "{}".into(),
            ..HandedOverJob::default()
        };
        let HomeAnswer::Job(job) = of_job(&held) else { panic!("it is an answer") };
        assert_eq!((job.state, job.jobspec.as_secret_str()), (HomeJobState::Held, "{}"));
        let refusal = Some(HandOverRefusal::OtherUser);
        let HomeAnswer::Job(job) = of_job(&HandedOverJob { refusal, ..held }) else {
            panic!("it is an answer")
        };
        assert_eq!(job.refusal, Some(JobRefusal::OtherUser));
    }

    #[test]
    fn errors_of_the_operator_are_told_apart_by_their_code() {
        let error = |code| {
            let error = ErrorResponse { message: "the message is too long".into() };
            answer(StatusCode::from_u16(code).unwrap(), &serde_json::to_vec(&error).unwrap())
        };
        assert!(matches!(error(504), HomeAnswer::NoAnswer(_)));
        assert!(matches!(error(404), HomeAnswer::Failed(_)));
        for code in [429, 503] {
            assert_eq!(error(code), HomeAnswer::Awaited);
        }
        let HomeAnswer::Failed(why) = error(400) else { panic!("it is refused") };
        assert_eq!(why, "the operator refuses the request: the message is too long");
        assert!(matches!(answer(StatusCode::OK, b"hunter2"), HomeAnswer::Failed(_)));
    }
}
