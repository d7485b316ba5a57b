//! The life of a job, from its request until it has finished.

use flux_operator_plan::FailureKind;
use flux_operator_queue::EvictionReason;
use serde_json::json;

use crate::objects::{after, no_quota};
use crate::world::{World, is_deletion};

fn pair(phase: &str, reason: &str) -> (String, String) {
    (phase.to_owned(), reason.to_owned())
}

#[test]
fn q10_a_successful_run_is_reported_step_by_step_and_leaves_nothing() {
    let mut world = World::new(json!({ "size": 2 }));
    world.reconcile();
    assert_eq!(world.writes, 0, "the admission is the first write");
    world.admit(2);
    world.settle();
    assert_eq!(
        (world.clusters_created, world.writes),
        (1, 0),
        "the admission has written the whole status"
    );
    assert_eq!(world.phase_and_reason(), pair("Waiting", "Starting"));
    world.cluster("PodsPending");
    world.settle();
    assert_eq!(world.writes, 0, "the MiniCluster reports how its pods start");
    world.cluster("Quorum");
    world.settle();
    assert_eq!(world.phase_and_reason(), pair("Running", ""));
    assert_eq!(world.status().start_time.unwrap().0, after(30));
    world.finish(0);
    assert_eq!(world.reconcile().steps, [], "it is deleted once its result is written");
    assert_eq!(world.phase_and_reason(), pair("Finished", ""));
    world.settle();
    assert_eq!((world.minicluster(), world.runs(), world.writes), (None, 1, 2));
    let status = world.status();
    assert_eq!((status.exit_code, status.finish_time.unwrap().0), (Some(0), after(30)));
    assert_eq!(world.condition("Succeeded").status, "True");
    assert!(world.workload().unwrap().finished, "its quota is free");
}

#[test]
fn a_job_whose_cluster_is_finishing_does_not_wait_again() {
    let mut world = World::new(json!({}));
    world.admit(2);
    world.settle();
    world.cluster("Quorum");
    world.settle();
    world.cluster("LeadNotReady");
    world.settle();
    assert_eq!(world.phase_and_reason(), pair("Running", ""));
    assert_eq!(world.condition("JobWaitingForResources").status, "False");
    assert_eq!(world.condition("Ready").reason, "LeadNotReady");
}

#[test]
fn q3_the_status_of_a_running_job() {
    let mut world = World::admitted(json!({ "size": 2 }));
    world.cluster("Quorum");
    world.settle();
    insta::assert_yaml_snapshot!(world.status());
}

#[test]
fn q12_a_failed_command_is_reported_with_its_exit_code() {
    let mut world = World::admitted(json!({}));
    world.cluster("Quorum");
    world.settle();
    world.finish(7);
    world.settle();
    assert_eq!(world.phase_and_reason(), pair("Failed", "CommandFailed"));
    assert_eq!(world.status().exit_code, Some(7));
    assert_eq!(world.condition("Succeeded").status, "False");
}

#[test]
fn q12_a_job_that_takes_too_long_has_failed() {
    let mut world = World::admitted(json!({ "maxRuntimeSeconds": 60 }));
    assert_eq!(world.minicluster().unwrap().spec.deadline_seconds, 60);
    world.finish_with_reason(143, "DeadlineExceeded");
    world.settle();
    assert_eq!(world.phase_and_reason(), pair("Failed", "DeadlineExceeded"));
}

#[test]
fn q10_a_cluster_without_a_command_stays_ready() {
    let mut world = World::admitted(json!({ "command": "" }));
    world.cluster("Quorum");
    world.settle();
    assert_eq!(world.phase_and_reason(), pair("Ready", ""));
}

#[test]
fn q10_a_command_that_may_have_run_is_not_run_again() {
    let mut world = World::admitted(json!({}));
    world.lose_cluster();
    world.settle();
    assert_eq!(world.clusters_created, 2, "nothing had run");
    world.cluster("Quorum");
    world.settle();
    world.lose_cluster();
    world.settle();
    assert_eq!(
        (world.clusters_created, world.phase_and_reason()),
        (2, pair("Failed", "ClusterLost"))
    );
}

#[test]
fn q11_why_a_cluster_cannot_be_created_is_reported() {
    let mut world = World::new(json!({}));
    world.admit(2);
    world.fail(FailureKind::Refused);
    world.reconcile();
    assert_eq!(world.phase_and_reason(), pair("Waiting", "CreateFailed"));
    assert!(world.condition("Ready").message.contains("Refused"));
    assert_eq!(world.job().unwrap().spec.command, "lmp", "the spec is never changed");
}

/// Its pods keep running, so its quota counts.
#[test]
fn q16_a_job_keeps_its_quota_while_its_cluster_exists_although_no_watch_shows_it() {
    let mut world = World::admitted(json!({}));
    world.evict(EvictionReason::OverQuota);
    world.reconcile();
    world.hide_cluster();
    let decided = world.decided();
    assert_eq!(decided.steps, []);
    assert!(decided.status().unwrap().admission.is_some(), "its quota was released");
    assert_eq!(decided.requeue_at(), Some(after(1)));
    world.settle();
    assert_eq!((world.status().admission, world.minicluster()), (None, None));
}

/// A MiniCluster that is refused is not "being started".
#[test]
fn q11_why_its_cluster_is_refused_is_reported_for_the_job() {
    let mut world = World::admitted(json!({}));
    world.refuse_cluster("NotOurs");
    world.settle();
    assert_eq!(world.phase_and_reason(), pair("Waiting", "NotOurs"));
    assert_eq!(world.condition("Ready").message, "NotOurs it is");
}

#[test]
fn q11_a_name_that_is_taken_uses_no_quota() {
    let mut world = World::new(json!({}));
    world.admit(2);
    world.take_name();
    world.settle();
    assert_eq!(world.status().admission, None);
    let reported = world.condition("Accepted");
    assert_eq!((reported.status.as_str(), reported.reason.as_str()), ("False", "NameTaken"));
    assert!(world.minicluster().is_some(), "it has another owner");
}

#[test]
fn q13_a_kept_cluster_uses_no_quota() {
    let mut world = World::admitted(json!({ "keepCluster": true }));
    world.finish(0);
    world.settle();
    assert!(world.minicluster().is_some());
    assert!(world.workload().unwrap().finished);
    world.change(&json!({ "keepCluster": false }));
    world.settle();
    assert_eq!(world.minicluster(), None);
}

#[test]
fn q13_a_job_is_kept_for_the_requested_time() {
    for (spec, setup, seconds) in [
        (json!({ "ttlSecondsAfterFinished": 60 }), json!({ "retentionSeconds": 90 }), Some(60)),
        (json!({}), json!({ "retentionSeconds": 90 }), Some(90)),
        (json!({}), json!({}), None),
    ] {
        let mut world = World::admitted(spec);
        world.change_setup(&setup);
        world.pass_time(30);
        world.finish(0);
        world.settle();
        assert_eq!(world.decided().requeue_at(), seconds.map(|seconds| after(30 + seconds)));
        world.pass_time(200);
        world.settle();
        assert_eq!(world.job().is_some(), seconds.is_none());
    }
}

#[test]
fn q14_an_admitted_job_reports_which_field_cannot_change() {
    let mut world = World::admitted(json!({ "size": 2 }));
    world.change(&json!({ "size": 5, "image": "other", "priority": 9, "keepCluster": true }));
    world.settle();
    let reported = world.condition("Accepted");
    assert_eq!((reported.status.as_str(), reported.reason.as_str()), ("False", "Immutable"));
    assert!(
        reported.message.starts_with("spec.image, spec.size cannot change"),
        "{}",
        reported.message
    );
    assert_eq!(world.status().admission.unwrap().size, 2);
    world.change(&json!({ "size": 2, "image": "" }));
    world.settle();
    assert_eq!(world.condition("Accepted").status, "True");
}

#[test]
fn q14_a_job_that_exceeds_its_quota_before_its_start_waits_again() {
    let mut world = World::new(json!({ "size": 2 }));
    world.admit(2);
    let services = json!([{ "name": "db" }]);
    world.change(&json!({ "template": { "spec": { "containers": [{}], "services": services } } }));
    world.settle();
    assert_eq!(
        (world.clusters_created, world.phase_and_reason()),
        (0, pair("Requested", "Pending"))
    );
    assert_eq!(world.status().admission, None);
    assert_eq!(
        world.workload().unwrap().waiting_since,
        after(0).as_millisecond(),
        "it keeps its position"
    );
}

#[test]
fn q16_a_suspended_job_releases_its_quota_when_its_cluster_is_deleted() {
    let mut world = World::admitted(json!({}));
    world.cluster("Quorum");
    world.settle();
    world.pass_time(60);
    world.change(&json!({ "suspend": true }));
    assert_eq!(world.reconcile().steps, [], "the reason is written first");
    assert_eq!(world.phase_and_reason(), pair("Suspended", "Suspended"));
    assert!(is_deletion(&world.reconcile().steps));
    assert!(world.status().admission.is_some(), "its quota still counts");
    world.settle();
    let status = world.status();
    assert_eq!((status.admission, status.start_time), (None, None));
    let requeue = status.requeue.unwrap();
    assert_eq!((requeue.count, requeue.until), (0, None), "no back-off");
    world.change(&json!({ "suspend": false }));
    world.admit(2);
    world.settle();
    assert_eq!(world.clusters_created, 2, "it starts from the beginning");
}

#[test]
fn q16_an_evicted_job_waits_with_a_growing_back_off() {
    let mut world = World::admitted(json!({}));
    for (count, seconds) in [(1, 60), (2, 120), (3, 240)] {
        world.evict(EvictionReason::OverQuota);
        world.settle();
        assert_eq!(world.phase_and_reason(), pair("Evicted", "OverQuota"));
        let requeue = world.status().requeue.unwrap();
        assert_eq!(requeue.count, count);
        let until = requeue.until.unwrap().0;
        assert_eq!(until.duration_since(world.now()).as_secs(), seconds);
        assert_eq!(world.decided().requeue_at(), Some(until));
        world.admit(2);
        assert_eq!(world.status().admission, None, "it stays out");
        world.pass_time(seconds);
        world.wait(no_quota(1));
        world.settle();
        assert_eq!(world.phase_and_reason(), pair("Waiting", "WaitingForQuota"));
        world.admit(2);
        world.settle();
    }
    assert_eq!(world.clusters_created, 4);
}

#[test]
fn q16_a_job_that_is_evicted_too_often_has_failed() {
    let mut world = World::admitted(json!({}));
    world.change_setup(&json!({ "requeue": { "limit": 1, "baseSeconds": 1 } }));
    world.evict(EvictionReason::QueueStopped);
    world.settle();
    world.pass_time(2);
    world.admit(2);
    world.settle();
    world.evict(EvictionReason::QueueStopped);
    world.settle();
    assert_eq!(world.phase_and_reason(), pair("Failed", "RequeueLimit"));
    assert!(world.workload().unwrap().finished);
}

#[test]
fn q16_a_cluster_that_is_not_ready_in_time_releases_its_quota() {
    let mut world = World::new(json!({}));
    world.change_setup(&json!({ "readyTimeoutSeconds": 30 }));
    world.admit(2);
    world.settle();
    assert_eq!(world.minicluster().unwrap().spec.ready_timeout_seconds, Some(30));
    world.cluster("ReadyTimeout");
    world.settle();
    assert_eq!(
        (world.minicluster(), world.phase_and_reason()),
        (None, pair("Evicted", "NotReady"))
    );
    assert_eq!(world.status().requeue.unwrap().count, 1);
}

#[test]
fn q16_a_job_that_finishes_before_its_eviction_has_finished() {
    let mut world = World::admitted(json!({}));
    world.cluster("Quorum");
    world.settle();
    world.evict(EvictionReason::OverQuota);
    world.reconcile();
    world.finish(0);
    world.settle();
    assert_eq!(world.phase_and_reason(), pair("Finished", ""));
}

#[test]
fn q19_the_record_of_a_job_names_the_setup_that_has_replaced_its_own() {
    let mut world = World::admitted(json!({ "size": 2 }));
    world.cluster("Quorum");
    world.settle();
    let before = world.status().admission.unwrap();
    let writes = world.writes;
    world.replace_setup("new");
    world.settle();
    let status = world.status();
    assert_eq!((status.queue.as_str(), world.writes), ("hpc/new", writes + 1));
    let after = status.admission.unwrap();
    assert_eq!(after, flux_operator_api::fluxjob::Admission { queue: "hpc/new".into(), ..before });
    // Also while it is being evicted.
    world.evict(EvictionReason::QueueStopped);
    world.reconcile();
    world.replace_setup("newer");
    world.reconcile();
    let leaving = world.status().admission.unwrap();
    assert_eq!((leaving.queue.as_str(), leaving.leaving.as_str()), ("hpc/newer", "QueueStopped"));
}
