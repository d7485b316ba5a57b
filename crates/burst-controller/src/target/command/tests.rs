//! What a controller does that may run programs of one kind only, with an API server that has no object.

use std::collections::BTreeSet;
use std::convert::Infallible;

use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

/// A program of this kind, and the names of the Jobs that are created for it.
fn program(kind: ProgramKind, commands: bool) -> (Command, UnboundedReceiver<String>) {
    let (created, jobs) = unbounded_channel();
    let settings = Settings {
        agent_image: "agent".into(),
        cluster_domain: "cluster.local".into(),
        delivery: DeliveryMethod::Init,
        report_url: None,
    };
    let home = Home {
        client: client(created),
        settings,
        served: BTreeSet::new(),
        commands,
        gke_image: None,
    };
    let target = json!({ "image": "i", "serviceAccount": "a", "up": ["u"], "down": ["d"] });
    (Command::new(home, serde_json::from_value(target).unwrap(), kind), jobs)
}

fn client(created: UnboundedSender<String>) -> Client {
    let respond = move |request: Request<Body>| {
        let created = created.clone();
        async move {
            let is_list = request.uri().path().ends_with("/jobs");
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await.unwrap();
            let (code, answer) = match method {
                Method::GET if is_list => (200, json!({ "metadata": {}, "items": [] })),
                Method::POST => {
                    let job: Value = serde_json::from_slice(&body).unwrap();
                    created.send(job["metadata"]["name"].as_str().unwrap().to_owned()).unwrap();
                    (201, job)
                }
                _ => {
                    let missing = Status::failure("not found", "NotFound").with_code(404);
                    (404, serde_json::to_value(missing).unwrap())
                }
            };
            let answer = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
        }
    };
    Client::new(tower::service_fn(respond), "default")
}

/// A Burst whose cluster was made, or that is given back.
fn burst(was_made: bool, is_deleting: bool) -> Burst {
    let deleted = is_deleting.then_some("2026-01-01T00:00:00Z");
    let burst = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "Burst",
        "metadata": { "name": "b", "namespace": "team", "uid": "b-uid",
            "deletionTimestamp": deleted },
        "spec": { "cluster": "fs", "nodes": 2, "target": { "name": "made", "maxNodes": 4 } },
        "status": { "clusterMade": was_made } });
    serde_json::from_value(burst).unwrap()
}

#[tokio::test]
async fn programs_of_users_are_not_run_because_ours_may_be() {
    let burst = burst(false, false);
    let up = format!("{}-up-2", object_name(&burst));
    for (kind, commands, is_allowed) in [
        (ProgramKind::OfUser, false, false),
        (ProgramKind::OfUser, true, true),
        (ProgramKind::Gke, false, true),
    ] {
        let (program, mut jobs) = program(kind, commands);
        let seen = program.observe(&burst).await;
        let made = program.make(&burst, 2).await;
        if is_allowed {
            assert_eq!((seen.unwrap(), made.unwrap()), (Presence::Nothing, false));
            assert_eq!(jobs.try_recv().as_ref(), Ok(&up));
            continue;
        }
        for failure in [seen.unwrap_err(), made.unwrap_err()] {
            assert_eq!(failure.reason, Reason::ClusterNotAllowed, "{failure:?}");
            assert!(failure.message.contains("--burst-commands"), "{failure:?}");
        }
        assert!(jobs.try_recv().is_err(), "a program was run");
    }
}

/// The permission was withdrawn.
#[tokio::test]
async fn what_a_program_has_made_is_deleted_without_permission() {
    let (program, mut jobs) = program(ProgramKind::OfUser, false);
    let deleted = burst(true, true);
    assert_eq!(program.observe(&deleted).await.unwrap(), Presence::ClusterReady);
    program.delete(&deleted).await.unwrap();
    assert_eq!(jobs.try_recv(), Ok(format!("{}-down", object_name(&deleted))));
    // It is observed until it is deleted, and no program makes it again, or larger.
    let alive = burst(true, false);
    program.observe(&alive).await.unwrap();
    let failure = program.make(&alive, 2).await.unwrap_err();
    assert_eq!(failure.reason, Reason::ClusterNotAllowed, "{failure:?}");
    assert!(jobs.try_recv().is_err(), "a program was run");
    // Nothing was made, so there is nothing to delete, which ends the Burst.
    let unmade = burst(false, true);
    assert_eq!(program.observe(&unmade).await.unwrap(), Presence::Nothing);
    program.delete(&unmade).await.unwrap();
    assert!(jobs.try_recv().is_err(), "a program was run");
}
