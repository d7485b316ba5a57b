//! The program is killed, or loses an answer, at every request.

use std::cell::Cell;
use std::collections::BTreeSet;

use flux_operator_gke::Settings;
use flux_operator_gke::testing::{FakeGoogle, Fault};

use super::support::*;

/// The largest number of requests of one run: more than any has.
const MANY: usize = 100;

/// Runs something, and drops it when a request is not answered. Whether it has finished before.
async fn killed(fake: &FakeGoogle, request: usize, run: impl Future<Output = ()>) -> bool {
    fake.fall_silent_at(request);
    let is_finished = tokio::select! {
        () = run => true,
        () = fake.silence() => false,
    };
    fake.answer_again();
    is_finished
}

#[test]
fn up_that_is_killed_at_any_request_is_continued() {
    run_test(async || {
        let mut kills = 0;
        for request in 1..MANY {
            let fake = fake().await;
            let settings = settings(&fake);
            let up = async || run_up(&fake, &settings).await.unwrap();
            if killed(&fake, request, up()).await {
                break;
            }
            kills += 1;
            up().await;
            check_made(&fake);
            assert_eq!(fake.created(), 1, "after request {request}");
        }
        assert!(kills >= 12, "only {kills} requests were cut");
    });
}

#[test]
fn up_that_is_killed_again_and_again_makes_one_cluster() {
    run_test(async || {
        let fake = fake().await;
        let settings = settings(&fake);
        let up = async || run_up(&fake, &settings).await.unwrap();
        let mut runs = 0;
        // Each run gets a little further than the one before.
        while !killed(&fake, runs + 2, up()).await {
            runs += 1;
        }
        check_made(&fake);
        assert_eq!(fake.created(), 1);
        assert!(runs > 5, "{runs}");
    });
}

#[test]
fn down_that_is_killed_at_any_request_is_continued() {
    run_test(async || {
        let mut kills = 0;
        for request in 1..MANY {
            let fake = fake().await;
            let settings = settings(&fake);
            run_up(&fake, &settings).await.unwrap();
            let down = async || run_down(&settings).await.unwrap();
            if killed(&fake, request, down()).await {
                break;
            }
            kills += 1;
            down().await;
            assert!(fake.clusters().is_empty(), "after request {request}");
        }
        assert!(kills > 4, "only {kills} requests were cut");
    });
}

/// `up` was killed at any request, and nothing but `down` is run afterwards.
#[test]
fn down_deletes_whatever_up_has_made() {
    run_test(async || {
        let mut kills = 0;
        for request in 1..MANY {
            let fake = fake().await;
            let settings = settings(&fake);
            let is_finished = killed(&fake, request, async {
                run_up(&fake, &settings).await.unwrap();
            });
            let is_finished = is_finished.await;
            run_down(&settings).await.unwrap();
            assert!(fake.clusters().is_empty(), "after request {request}");
            if is_finished {
                break;
            }
            kills += 1;
        }
        assert!(kills >= 12, "only {kills} requests were cut");
    });
}

/// What may happen to any request without anything being wrong.
fn passing_faults() -> Vec<Fault> {
    let refused = |code, status, text: &str| Fault::Refused(code, status, text.into());
    let too_many = "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'";
    let no_tokens = "Insufficient tokens for quota 'default' and limit 'USER-100s' of service \
                     'container.googleapis.com'";
    vec![
        Fault::LostBefore,
        Fault::LostAfter,
        refused(429, "RESOURCE_EXHAUSTED", too_many),
        refused(429, "RESOURCE_EXHAUSTED", no_tokens),
        refused(503, "UNAVAILABLE", "The service is currently unavailable."),
        refused(500, "INTERNAL", "Internal error encountered."),
    ]
}

/// The first call of every method fails, in each way.
#[test]
fn lost_answers_and_busy_servers_change_nothing() {
    run_test(async || {
        // What one way up and down calls.
        let calm = fake().await;
        let grown = Settings { nodes: 4, ..settings(&calm) };
        run_up(&calm, &settings(&calm)).await.unwrap();
        run_up(&calm, &grown).await.unwrap();
        run_down(&grown).await.unwrap();
        let mut methods: BTreeSet<String> = calm.methods().into_iter().collect();
        // After an error, Google's client waits ten seconds for the next token.
        methods.remove("token");
        assert!(methods.len() > 9, "{methods:?}");
        for fault in passing_faults() {
            let fake = fake().await;
            let grown = Settings { nodes: 4, ..settings(&fake) };
            methods.iter().for_each(|method| fake.fail(method, fault.clone()));
            run_up(&fake, &settings(&fake)).await.unwrap();
            check_made(&fake);
            run_up(&fake, &grown).await.unwrap();
            assert_eq!(fake.cluster(CLUSTER).unwrap()["currentNodeCount"], 4, "{fault:?}");
            assert_eq!(fake.created(), 1, "{fault:?}");
            run_down(&grown).await.unwrap();
            assert!(fake.clusters().is_empty(), "{fault:?}");
            // Whose answer is lost does not know its operation, and asks for the cluster only.
            let unmet = usize::from(matches!(fault, Fault::LostAfter));
            assert_eq!(fake.faults(), unmet, "{fault:?}");
        }
    });
}

/// Any request is never answered, and the connection stays open.
#[test]
fn an_answer_that_never_comes_is_not_waited_for() {
    run_test(async || {
        let mut silences = 0;
        for request in 1..MANY {
            let fake = fake().await;
            let settings = with_key(settings(&fake), &fake.url());
            let is_silent = Cell::new(false);
            let silent = async {
                fake.silence().await;
                is_silent.set(true);
                fake.answer_again();
                // Nothing happens any more until a limit is reached.
                tokio::time::pause();
                std::future::pending::<()>().await;
            };
            fake.fall_silent_at(request);
            tokio::select! {
                made = run_up(&fake, &settings) => made.unwrap(),
                () = silent => {}
            }
            check_made(&fake);
            assert_eq!(fake.created(), 1, "after request {request}");
            if !is_silent.get() {
                break;
            }
            tokio::time::resume();
            silences += 1;
        }
        assert!(silences > 9, "only {silences} answers did not come");
    });
}

#[test]
fn a_metadata_server_that_is_not_ready_is_asked_again() {
    run_test(async || {
        let fake = fake().await;
        // One of these may be about the universe, without which it goes on.
        fake.fail("token", Fault::LostAfter);
        fake.fail("token", Fault::LostAfter);
        run_up(&fake, &settings(&fake)).await.unwrap();
        check_made(&fake);
        assert_eq!(fake.faults(), 0);
    });
}
