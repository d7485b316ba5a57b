//! What another run would not change ends with a message that says what to do.

use flux_operator_gke::testing::Fault;
use flux_operator_gke::{Failure, Settings};
use flux_operator_wire::GkeFailure;
use serde_json::json;

use super::support::*;

const QUOTA: &str = "Insufficient regional quota to satisfy request: resource \"CPUS\": request requires \
    '16.0' and is short '8.0'. project has a quota of '8.0' with '8.0' available.";

/// The failure of `up` after one refusal.
async fn refused(method: &str, code: u16, status: &'static str, text: &str) -> Failure {
    let fake = fake().await;
    fake.fail(method, Fault::Refused(code, status, text.into()));
    run_up(&fake, &settings(&fake)).await.unwrap_err()
}

#[test]
fn a_refusal_ends_with_what_google_said_and_what_to_do() {
    run_test(async || {
        use GkeFailure::*;
        for (method, code, status, text, kind) in [
            ("CreateCluster", 403, "PERMISSION_DENIED", QUOTA, Quota),
            ("CreateCluster", 429, "RESOURCE_EXHAUSTED", QUOTA, Quota),
            (
                "CreateCluster",
                403,
                "PERMISSION_DENIED",
                "Required \"container.clusters.create\" permission(s) for \"projects/science\".",
                Permission,
            ),
            (
                "GetCluster",
                403,
                "PERMISSION_DENIED",
                "Kubernetes Engine API has not been used in project 1 before or it is disabled.",
                Permission,
            ),
            (
                "CreateCluster",
                400,
                "INVALID_ARGUMENT",
                "Machine type with name 'c3-standard-8' does not exist in zone 'us-central1-a'.",
                Settings,
            ),
            ("GetCluster", 401, "UNAUTHENTICATED", "Request had invalid credentials.", Credentials),
        ] {
            let failure = refused(method, code, status, text).await;
            assert_eq!(failure.kind, kind, "{failure}");
            let shown = failure.to_string();
            assert!(shown.contains(text) && shown.starts_with(kind.text()), "{shown}");
        }
    });
}

#[test]
fn a_quota_that_is_found_too_small_later_is_reported() {
    run_test(async || {
        // By the operation of this run, and by the cluster after the run that began it was killed.
        for is_killed in [false, true] {
            let fake = fake().await;
            let settings = settings(&fake);
            let text = "Instance creation failed: Quota 'CPUS' exceeded. Limit: 8.0 in region us-central1.";
            fake.fail_operation(json!({ "code": 8, "message": text }));
            if is_killed {
                fake.fall_silent_at(4);
                tokio::select! {
                    ended = run_up(&fake, &settings) => panic!("{ended:?}"),
                    () = fake.silence() => {}
                }
                fake.answer_again();
                assert_eq!(fake.created(), 1);
            }
            let failure = run_up(&fake, &settings).await.unwrap_err();
            assert_eq!(failure.kind, GkeFailure::Quota, "{failure}");
            assert!(failure.to_string().contains(text), "{failure}");
            run_down(&settings).await.unwrap();
            assert!(fake.clusters().is_empty());
        }
    });
}

#[test]
fn a_size_that_cannot_be_had_is_reported_and_the_cluster_stays() {
    run_test(async || {
        let fake = fake().await;
        let mut settings = settings(&fake);
        run_up(&fake, &settings).await.unwrap();
        settings.nodes = 8;
        fake.fail_operation(json!({ "code": 8, "message": "GCE_STOCKOUT" }));
        let failure = run_up(&fake, &settings).await.unwrap_err();
        assert_eq!(failure.kind, GkeFailure::Quota, "{failure}");
        assert_eq!(fake.cluster(CLUSTER).unwrap()["currentNodeCount"], 2);
    });
}

#[test]
fn revoked_credentials_end_up_and_down() {
    run_test(async || {
        let fake = fake().await;
        let settings = settings(&fake);
        run_up(&fake, &settings).await.unwrap();
        fake.revoke();
        for failure in
            [run_up(&fake, &settings).await.unwrap_err(), run_down(&settings).await.unwrap_err()]
        {
            assert_eq!(failure.kind, GkeFailure::Credentials, "{failure}");
        }
        assert_eq!(fake.clusters().len(), 1);
    });
}

#[test]
fn a_cluster_of_another_owner_is_left_alone() {
    run_test(async || {
        for labels in [json!({}), json!({ "flux-framework-org-burst": "burst-ffffffffffff" })] {
            let fake = fake().await;
            let settings = settings(&fake);
            let other =
                json!({ "name": "burst-0123456789ab", "status": 2, "resourceLabels": labels });
            fake.set_cluster(CLUSTER, other.clone());
            for failure in [
                run_up(&fake, &settings).await.unwrap_err(),
                run_down(&settings).await.unwrap_err(),
            ] {
                assert_eq!(failure.kind, GkeFailure::OtherOwner, "{failure}");
            }
            assert_eq!(fake.cluster(CLUSTER), Some(other));
        }
    });
}

#[test]
fn down_without_a_cluster_succeeds() {
    run_test(async || {
        let fake = fake().await;
        run_down(&settings(&fake)).await.unwrap();
    });
}

#[test]
fn a_refusal_inside_passes_or_is_reported() {
    run_test(async || {
        let refuse = || Fault::Refused(403, "Forbidden", "not yet".into());
        let fake = fake().await;
        fake.fail("inside POST roles", refuse());
        run_up(&fake, &settings(&fake)).await.unwrap();
        (0..6).for_each(|_| fake.fail("inside POST roles", refuse()));
        let failure = run_up(&fake, &settings(&fake)).await.unwrap_err();
        assert_eq!(failure.kind, GkeFailure::Permission, "{failure}");
    });
}

#[test]
fn a_secret_that_may_not_be_written_is_reported() {
    run_test(async || {
        let fake = fake().await;
        fake.fail("home PATCH secrets", Fault::Refused(403, "Forbidden", "no".into()));
        let failure = run_up(&fake, &settings(&fake)).await.unwrap_err();
        assert_eq!(failure.kind, GkeFailure::Permission, "{failure}");
        assert!(failure.to_string().contains("write the Secret"), "{failure}");
    });
}

#[test]
fn a_key_is_exchanged_for_a_token_that_an_api_server_accepts() {
    run_test(async || {
        let fake = fake().await;
        let settings = with_key(settings(&fake), &fake.url());
        run_up(&fake, &settings).await.unwrap();
        check_made(&fake);
        fake.revoke();
        let failure = run_up(&fake, &settings).await.unwrap_err();
        assert_eq!(failure.kind, GkeFailure::Credentials, "{failure}");
    });
}

#[test]
fn a_key_that_is_none_is_refused_without_its_text() {
    run_test(async || {
        let fake = fake().await;
        let secret = json!({ "private_key": "very-secret", "token_uri": "x" }).to_string();
        let with_key = Settings::of(|name| match name {
            "GKE_CREDENTIALS" => Some(secret.clone()),
            _ => variables(name),
        });
        let settings = Settings { credentials: with_key.unwrap().credentials, ..settings(&fake) };
        let failure = run_down(&settings).await.unwrap_err();
        assert_eq!(failure.kind, GkeFailure::Credentials);
        assert!(!failure.to_string().contains("very-secret"), "{failure}");
    });
}
