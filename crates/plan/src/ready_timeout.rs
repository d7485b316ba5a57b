//! `readyTimeoutSeconds`: a cluster that cannot reach its quorum releases its nodes,
//! so that two half-started clusters do not block each other forever.
//!
//! To release them, the Job is suspended and the time is noted; after a back-off it is
//! resumed and tries again. The back-off differs between clusters, so that the
//! two do not collide again.
//!
//! A command that has started is never stopped by this: its quorum was reached, and a second
//! run must be requested. For a cluster without a command, and for one whose lead was
//! replaced, the whole time starts again when it becomes unready.

use flux_operator_api::MiniCluster;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use crate::kubernetes::belongs_to_kueue;
use crate::status::Readiness;
use crate::time::seconds_after;

/// The annotation of the Job with the time at which the nodes were released.
pub(crate) const RELEASED_AT_ANNOTATION: &str = "flux-framework.org/given-back";

/// The shortest time, in seconds, between releasing nodes and trying again: others need it to
/// use them.
const MIN_BACK_OFF_SECONDS: i64 = 10;

/// What the timeout requires now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadyTimeout {
    /// Nothing.
    NotApplicable,
    /// There is still time until then.
    Until(Timestamp),
    /// Time is up: release the nodes.
    Release,
    /// The nodes are released until then.
    BackingOff(Timestamp),
    /// The back-off has ended: resume the Job.
    Retry,
}

/// Evaluates the timeout.
pub(crate) fn ready_timeout(
    minicluster: &MiniCluster,
    job: &Job,
    lead: Readiness,
    now: Timestamp,
) -> ReadyTimeout {
    if belongs_to_kueue(job) {
        // Kueue releases nodes itself, and only Kueue may suspend its Jobs.
        return ReadyTimeout::NotApplicable;
    }
    let back_off_end =
        released_at(job).map(|since| seconds_after(since, back_off_seconds(minicluster, since)));
    let limit = minicluster.spec.ready_timeout_seconds.filter(|seconds| *seconds > 0);
    match (back_off_end, limit) {
        (Some(until), Some(_)) if now < until => return ReadyTimeout::BackingOff(until),
        (Some(_), _) => return ReadyTimeout::Retry,
        (None, _) => {}
    }
    let started = job.status.as_ref().and_then(|status| status.start_time.as_ref());
    let started = started.filter(|_| !is_suspended(job));
    let waits = !lead.ready && !lead.command_started;
    let (Some(limit), Some(started), true) = (limit, started, waits) else {
        return ReadyTimeout::NotApplicable;
    };
    let since = lead.unready_since.map_or(started.0, |since| since.max(started.0));
    let until = seconds_after(since, limit);
    if now < until { ReadyTimeout::Until(until) } else { ReadyTimeout::Release }
}

/// When the nodes were released, if they are.
pub(crate) fn released_at(job: &Job) -> Option<Timestamp> {
    job.annotations().get(RELEASED_AT_ANNOTATION)?.parse().ok()
}

/// Whether a Job is suspended, or still has its start time from before: Kubernetes
/// sets a new one only when it notices the resumption.
fn is_suspended(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true))
        || conditions.any(|condition| condition.type_ == "Suspended" && condition.status == "True")
}

/// Between [`MIN_BACK_OFF_SECONDS`] and three times as long, derived from the cluster's uid and
/// the time. Two clusters with the same back-off are unlikely to have the same one next time.
fn back_off_seconds(minicluster: &MiniCluster, since: Timestamp) -> i64 {
    let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
    let digest = Sha256::digest(format!("{uid} {since}"));
    let jitter = digest.first().map_or(0, |byte| i64::from(*byte) % (2 * MIN_BACK_OFF_SECONDS + 1));
    MIN_BACK_OFF_SECONDS.saturating_add(jitter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_testkit::{merge, smallest_minicluster};
    use serde_json::{Value, json};

    const START: &str = "2026-01-01T00:00:00Z";
    const NEVER_READY: Readiness =
        Readiness { ready: false, command_started: false, unready_since: None };

    fn minicluster(patch: Value) -> MiniCluster {
        let mut manifest = smallest_minicluster("fs");
        merge(
            &mut manifest,
            &json!({ "metadata": { "uid": "u" }, "spec": { "readyTimeoutSeconds": 60 } }),
        );
        merge(&mut manifest, &patch);
        serde_json::from_value(manifest).unwrap()
    }

    fn job(patch: Value) -> Job {
        let mut job = json!({ "status": { "startTime": START } });
        merge(&mut job, &patch);
        serde_json::from_value(job).unwrap()
    }

    fn after(seconds: i64) -> Timestamp {
        seconds_after(START.parse().unwrap(), seconds)
    }

    #[test]
    fn nodes_are_released_when_time_is_up() {
        let minicluster = minicluster(json!({}));
        let job = job(json!({}));
        let ask = |lead, seconds| ready_timeout(&minicluster, &job, lead, after(seconds));
        assert_eq!(ask(NEVER_READY, 1), ReadyTimeout::Until(after(60)));
        assert_eq!(ask(NEVER_READY, 60), ReadyTimeout::Release);
        assert_eq!(ask(Readiness { ready: true, ..NEVER_READY }, 61), ReadyTimeout::NotApplicable);
        assert_eq!(
            ask(Readiness { command_started: true, ..NEVER_READY }, 61),
            ReadyTimeout::NotApplicable
        );
    }

    #[test]
    fn without_a_limit_or_a_start_time_there_is_no_timeout() {
        let unlimited = minicluster(json!({ "spec": { "readyTimeoutSeconds": 0 } }));
        assert_eq!(
            ready_timeout(&unlimited, &job(json!({})), NEVER_READY, after(900)),
            ReadyTimeout::NotApplicable
        );
        let unstarted = job(json!({ "status": null }));
        assert_eq!(
            ready_timeout(&minicluster(json!({})), &unstarted, NEVER_READY, after(900)),
            ReadyTimeout::NotApplicable
        );
    }

    #[test]
    fn it_retries_after_a_back_off_and_at_once_without_a_limit() {
        let backing_off =
            job(json!({ "metadata": { "annotations": { RELEASED_AT_ANNOTATION: START } } }));
        let limited = minicluster(json!({}));
        assert!(matches!(
            ready_timeout(&limited, &backing_off, NEVER_READY, after(9)),
            ReadyTimeout::BackingOff(_)
        ));
        assert_eq!(
            ready_timeout(&limited, &backing_off, NEVER_READY, after(30)),
            ReadyTimeout::Retry
        );
        let unlimited = minicluster(json!({ "spec": { "readyTimeoutSeconds": null } }));
        assert_eq!(
            ready_timeout(&unlimited, &backing_off, NEVER_READY, after(1)),
            ReadyTimeout::Retry
        );
    }

    #[test]
    fn there_is_no_timeout_while_the_job_is_suspended_or_belongs_to_kueue() {
        let minicluster = minicluster(json!({}));
        let ask = |patch| ready_timeout(&minicluster, &job(patch), NEVER_READY, after(900));
        assert_eq!(ask(json!({})), ReadyTimeout::Release);
        assert_eq!(
            ask(json!({ "spec": { "suspend": true, "template": {} } })),
            ReadyTimeout::NotApplicable
        );
        let noticed = json!({ "conditions": [{ "type": "Suspended", "status": "True" }] });
        assert_eq!(ask(json!({ "status": noticed })), ReadyTimeout::NotApplicable);
        let labels = json!({ "labels": { "kueue.x-k8s.io/queue-name": "batch" } });
        assert_eq!(ask(json!({ "metadata": labels })), ReadyTimeout::NotApplicable);
    }

    #[test]
    fn two_clusters_do_not_always_have_the_same_back_off() {
        let one = minicluster(json!({}));
        let other = minicluster(json!({ "metadata": { "uid": "v" } }));
        let rests = |seconds| {
            (back_off_seconds(&one, after(seconds)), back_off_seconds(&other, after(seconds)))
        };
        let all: Vec<(i64, i64)> = (0..50).map(rests).collect();
        assert!(all.iter().all(|(a, b)| (10..=30).contains(a) && (10..=30).contains(b)));
        assert!(all.iter().filter(|(a, b)| a == b).count() < 10, "{all:?}");
    }

    #[test]
    fn the_timeout_counts_from_when_the_cluster_became_unready() {
        let lead = Readiness { unready_since: Some(after(300)), ..NEVER_READY };
        let ask =
            |seconds| ready_timeout(&minicluster(json!({})), &job(json!({})), lead, after(seconds));
        assert_eq!(ask(310), ReadyTimeout::Until(after(360)));
        assert_eq!(ask(360), ReadyTimeout::Release);
        // What was observed before the Job was resumed belongs to an earlier run.
        let earlier = Readiness { unready_since: Some(after(-300)), ..NEVER_READY };
        let ask = ready_timeout(&minicluster(json!({})), &job(json!({})), earlier, after(1));
        assert_eq!(ask, ReadyTimeout::Until(after(60)));
    }
}
