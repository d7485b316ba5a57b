//! What no watch shows, and when to query the API server for it.
//!
//! Only the Job's Events show that Kubernetes refuses to create a pod, and only the
//! pod's own that its volumes cannot be mounted. The operator does not watch Events or Secrets
//! for that: there are too many Events, and it must not be able to list users' Secrets.

use flux_operator_api::{MiniCluster, Reason};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::joining::{has_finalizer, has_lease, lender_queries};
use crate::kubernetes::{HOLDER_LABEL, TABLE_LABEL, mounted_secret, secret_name, user_secret};
use crate::observed::{Observed, completions, is_finished, is_terminating};
use crate::status::{Trouble, condition, finished_at};
use crate::time::{after, seconds_after};

/// Seconds after its start by which a Job has its pods.
const CREATION_SECONDS: i64 = 3;

/// Seconds after scheduling by which a pod has its volumes; measured: below 2 s.
const MOUNTING_SECONDS: i64 = 5;

/// How often a query is repeated, so that trouble is reported within 10 s.
const INTERVAL: SignedDuration = SignedDuration::from_secs(8);

/// The subject of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Whether the MiniCluster itself still exists. Its Job existed and does not any more: it
    /// may have been deleted with its owner, while the watch of MiniClusters lags behind.
    MiniCluster,
    /// Which pods of the MiniCluster's own Job exist, or will.
    OwnPods {
        /// The Job's uid.
        job: String,
    },
    /// Which pods of its joiners exist, or will, also of those that are deleted themselves.
    JoinerPods {
        /// The uid of the lender.
        lender: String,
    },
    /// Whether the namespace is being deleted. Kubernetes deletes its pods first, so a
    /// terminating pod may be a sign of it.
    Namespace,
    /// Why the Job has fewer pods than it should.
    Job {
        /// Its uid.
        uid: String,
    },
    /// Whether the Secret with the cluster's keys exists, if a scheduled pod does not
    /// start.
    Keys {
        /// Its name.
        name: String,
    },
    /// Why such a pod does not start.
    Pod {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
}

/// A query for the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its subject.
    pub subject: Subject,
    /// Earlier Events are outdated.
    since: Timestamp,
    /// Before this time the query is not needed yet.
    not_before: Timestamp,
}

/// The API server's reply.
#[derive(Clone, Debug)]
pub enum ServerReply {
    /// The object exists, and is not being deleted.
    Exists,
    /// The object does not exist, or is being deleted.
    Deleted,
    /// The warnings about an object.
    Events(Vec<Event>),
    /// The pods that exist and have not finished, and those that existing Jobs will create. The Jobs
    /// must be read before the pods: a Job that is deleted after that may have created a pod.
    Pods(Vec<ExistingPod>),
}

/// A pod that the API server has, or that a Job will create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingPod {
    /// Its namespace.
    pub namespace: String,
    /// The uid of the joiner whose pod it is; empty if it is not one of a joiner.
    pub holder: String,
    /// Hash of the rank table that its rank belongs to.
    pub table: String,
    /// Its index in its Job. A pod whose index cannot be read counts as the highest.
    pub index: u32,
}

impl ExistingPod {
    /// The pod with these labels and this index. Without an index it counts as the highest, so that
    /// no rank is free because of it.
    pub fn new(object: &impl ResourceExt, index: Option<u32>) -> ExistingPod {
        let label = |name: &str| object.labels().get(name).cloned().unwrap_or_default();
        ExistingPod {
            namespace: object.namespace().unwrap_or_default(),
            holder: label(HOLDER_LABEL),
            table: label(TABLE_LABEL),
            index: index.unwrap_or(u32::MAX),
        }
    }

    /// The last of the pods that a Job has or will create.
    pub fn last_of(job: &Job) -> Option<ExistingPod> {
        let is_over = is_finished(job) || job.metadata.deletion_timestamp.is_some();
        let last = u32::try_from(completions(Some(job))).ok()?.checked_sub(1)?;
        (!is_over).then(|| ExistingPod::new(job, Some(last)))
    }
}

/// What is known from a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryAnswer {
    subject: Subject,
    at: Timestamp,
    is_deleted: bool,
    pods: Option<Vec<ExistingPod>>,
    trouble: Option<Trouble>,
}

impl QueryAnswer {
    /// The answer to a query. Without a reply, nothing is considered wrong.
    pub fn new(
        minicluster: &MiniCluster,
        query: Query,
        reply: Option<ServerReply>,
        now: Timestamp,
    ) -> QueryAnswer {
        let Query { subject, since, .. } = query;
        let trouble = match (&reply, &subject) {
            (Some(ServerReply::Deleted), Subject::Keys { name }) => {
                Some(keys_lost(minicluster, name))
            }
            (Some(ServerReply::Events(events)), Subject::Job { .. }) => {
                creation_trouble(events, since)
            }
            (Some(ServerReply::Events(events)), Subject::Pod { name, .. }) => {
                start_trouble(name, events)
            }
            _ => None,
        };
        QueryAnswer {
            subject,
            at: now,
            is_deleted: matches!(reply, Some(ServerReply::Deleted)),
            trouble,
            pods: match reply {
                Some(ServerReply::Pods(pods)) => Some(pods),
                _ => None,
            },
        }
    }
}

/// The queries that must be made before deciding; usually none.
pub fn queries(minicluster: &MiniCluster, observed: &Observed) -> Vec<Query> {
    let at_once = |subject| Query { subject, since: observed.now, not_before: observed.now };
    if minicluster.metadata.deletion_timestamp.is_some() {
        // Kubernetes deletes what it owns. A joiner waits before that, but not if its pods are
        // deleted with its namespace anyway.
        return has_finalizer(minicluster)
            .then(|| at_once(Subject::Namespace))
            .into_iter()
            .collect();
    }
    let itself = may_be_deleted(minicluster, observed).then(|| at_once(Subject::MiniCluster));
    let namespace = may_lose_its_namespace(observed).then(|| at_once(Subject::Namespace));
    let due = open_queries(observed)
        .into_iter()
        .filter(|query| next_due(query, observed) <= observed.now);
    let holders = lender_queries(minicluster, observed).into_iter().map(at_once);
    itself.into_iter().chain(namespace).chain(holders).chain(due).collect()
}

/// When to make the next query, if there is one to make.
pub(crate) fn next_query(observed: &Observed) -> Option<Timestamp> {
    open_queries(observed).iter().map(|query| next_due(query, observed)).min()
}

impl Observed {
    /// Answers that may be of use the next time: those to queries that would be repeated.
    pub fn lasting_answers(&self) -> Vec<QueryAnswer> {
        let open = open_queries(self);
        let lasts =
            |answer: &&QueryAnswer| open.iter().any(|query| query.subject == answer.subject);
        self.answers.iter().filter(lasts).cloned().collect()
    }

    /// Adds an answer, and removes an older one with the same subject.
    pub fn add_answer(&mut self, answer: QueryAnswer) {
        self.answers.retain(|before| before.subject != answer.subject);
        self.answers.push(answer);
    }

    /// Whether an answer says that the MiniCluster itself is deleted or being deleted.
    pub(crate) fn is_deleted(&self) -> bool {
        self.is_reported_deleted(&Subject::MiniCluster)
    }

    /// Whether an answer says that the namespace is being deleted.
    pub(crate) fn namespace_is_terminating(&self) -> bool {
        self.is_reported_deleted(&Subject::Namespace)
    }

    /// What is wrong, according to reports and answers.
    pub(crate) fn trouble(&self, minicluster: &MiniCluster) -> Option<Trouble> {
        if self.keys_lost {
            let name = secret_name(minicluster, self.job.as_deref());
            return Some(keys_lost(minicluster, &name));
        }
        open_queries(self).iter().find_map(|query| answer(query, self)?.trouble.clone())
    }

    /// The pods that exist, if that was answered.
    pub(crate) fn existing_pods(&self, subject: &Subject) -> Option<&[ExistingPod]> {
        self.answers.iter().find(|answer| answer.subject == *subject)?.pods.as_deref()
    }

    fn is_reported_deleted(&self, subject: &Subject) -> bool {
        self.answers.iter().any(|answer| answer.is_deleted && answer.subject == *subject)
    }
}

/// Whether the MiniCluster may be deleted although the watch shows it: its Job does not
/// exist any more. A joiner without ranks has none, and creates none.
fn may_be_deleted(minicluster: &MiniCluster, observed: &Observed) -> bool {
    let status = minicluster.status.as_ref();
    let lender = observed.lender.as_ref().map(|lender| &lender.minicluster);
    let may_create_job = !minicluster.spec.is_joiner()
        || minicluster.spec.remote_lead().is_some()
        || lender.is_some_and(|lender| has_lease(lender, minicluster));
    observed.job.is_none()
        && may_create_job
        && status.is_some_and(|status| !status.conditions.is_empty())
        && finished_at(minicluster).is_none()
}

fn may_lose_its_namespace(observed: &Observed) -> bool {
    observed.job.is_some() && observed.pods.iter().any(|pod| is_terminating(pod))
}

/// All subjects about which Events may say more, now or soon.
fn open_queries(observed: &Observed) -> Vec<Query> {
    let job = observed.job.as_deref().filter(|job| should_have_pods(job));
    let Some(job) = job else { return Vec::new() };
    query_missing_pods(job, observed).into_iter().chain(query_stuck_pod(observed)).collect()
}

fn answer<'a>(query: &Query, observed: &'a Observed) -> Option<&'a QueryAnswer> {
    observed.answers.iter().find(|answer| answer.subject == query.subject)
}

fn next_due(query: &Query, observed: &Observed) -> Timestamp {
    answer(query, observed).map_or(query.not_before, |answer| after(answer.at, INTERVAL))
}

/// Why pods are refused, according to the Events of their Job.
fn creation_trouble(events: &[Event], since: Timestamp) -> Option<Trouble> {
    let event = latest(events, &["FailedCreate"]).filter(|event| time(event) >= Some(since))?;
    let message = event.message.as_deref()?;
    // Each attempt has another pod name in its message, which would be a change each time.
    let why = message.split_once("is forbidden: ").map_or(message, |(_, why)| why);
    Some(if why.starts_with("exceeded quota") {
        Trouble::new(
            Reason::QuotaExceeded,
            format!("a pod was refused: {why}: waiting for other pods to finish or for more quota"),
        )
    } else if why.starts_with("violates PodSecurity") {
        let hint = "change securityContext, or the namespace's label";
        Trouble::new(Reason::PodSecurity, format!("pods are refused: {why}: {hint}"))
    } else {
        Trouble::new(Reason::PodsRefused, format!("pods are refused: {why}"))
    })
}

/// Why a pod does not start, according to its Events.
fn start_trouble(pod: &str, events: &[Event]) -> Option<Trouble> {
    let known = [Reason::FailedMount, Reason::FailedAttachVolume, Reason::FailedCreatePodSandBox];
    let event = latest(events, &known.map(Reason::as_str))?;
    let reason = known.into_iter().find(|known| event.reason.as_deref() == Some(known.as_str()))?;
    let message = event.message.as_deref().unwrap_or_default();
    Some(Trouble::new(reason, format!("pod {pod:?} does not start: {message}")))
}

/// The Secret with the cluster's keys was deleted.
fn keys_lost(minicluster: &MiniCluster, name: &str) -> Trouble {
    // Running pods have the old keys, and could not communicate with pods that have new ones.
    let hint = match user_secret(minicluster) == Some(name) {
        false => "delete the MiniCluster and create it again",
        true => "create it again with the same content",
    };
    let message =
        format!("Secret {name:?} with the cluster's keys was deleted, so no pod can start: {hint}");
    Trouble::new(Reason::KeysLost, message)
}

/// Whether the Job should have pods.
fn should_have_pods(job: &Job) -> bool {
    let suspended = job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
    !suspended && !is_finished(job) && job.metadata.deletion_timestamp.is_none()
}

fn query_missing_pods(job: &Job, observed: &Observed) -> Option<Query> {
    let wanted = job.spec.as_ref()?.parallelism?;
    let started = job.status.as_ref()?.start_time.as_ref()?.0;
    let present = observed.job_pods().filter(|pod| !has_finished(pod));
    if present.count() >= usize::try_from(wanted).unwrap_or_default() {
        return None;
    }
    let newest = observed.job_pods().filter_map(|pod| Some(pod.creation_timestamp()?.0)).max();
    Some(Query {
        subject: Subject::Job { uid: job.uid()? },
        since: newest.map_or(started, |newest| newest.max(started)),
        not_before: seconds_after(started, CREATION_SECONDS),
    })
}

/// Queries about the pod that has waited longest for its volumes or its network.
fn query_stuck_pod(observed: &Observed) -> Vec<Query> {
    let stuck = observed
        .job_pods()
        .filter(|pod| !has_finished(pod) && !is_terminating(pod))
        .filter_map(|pod| {
            let find_true =
                |kind| condition(pod, kind).filter(|condition| condition.status == "True");
            let placed = find_true("PodScheduled")?.last_transition_time.as_ref()?.0;
            let mounted =
                find_true("PodReadyToStartContainers").is_some() || phase(pod) != Some("Pending");
            (!mounted).then_some((placed, pod))
        });
    let Some((placed, pod)) = stuck.min_by_key(|(placed, _)| *placed) else { return Vec::new() };
    let not_before = seconds_after(placed, MOUNTING_SECONDS);
    let pod = Subject::Pod { name: pod.name_any(), uid: pod.uid().unwrap_or_default() };
    let keys = observed.job.as_deref().and_then(mounted_secret).map(|name| Subject::Keys { name });
    let subjects = keys.into_iter().chain([pod]);
    subjects.map(|subject| Query { subject, since: placed, not_before }).collect()
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn has_finished(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Succeeded" | "Failed"))
}

/// The last Event with one of these reasons.
fn latest<'a>(events: &'a [Event], reasons: &[&str]) -> Option<&'a Event> {
    let known = |event: &&Event| reasons.contains(&event.reason.as_deref().unwrap_or_default());
    events.iter().filter(known).max_by_key(|event| time(event))
}

/// When an Event was last observed. Which field has the time depends on the client that wrote it.
fn time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let times = [
        series.map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
        event.metadata.creation_timestamp.as_ref().map(|time| time.0),
    ];
    times.into_iter().flatten().max()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use flux_operator_testkit::{merge, smallest_minicluster};
    use serde_json::{Value, json};

    const START: &str = "2026-01-01T00:00:00Z";

    fn after(seconds: i64) -> Timestamp {
        seconds_after(START.parse().unwrap(), seconds)
    }

    fn job(patch: Value) -> Job {
        let mut job = json!({
            "metadata": { "name": "fs", "uid": "j" },
            "spec": { "parallelism": 2, "template": { "spec": { "containers": [], "volumes":
                [{ "name": "flux-operator-keys", "secret": { "secretName": "fs-flux" } }] } } },
            "status": { "startTime": START },
        });
        merge(&mut job, &patch);
        serde_json::from_value(job).unwrap()
    }

    fn pod(index: u32, status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("fs-{index}"), "uid": format!("p{index}"),
                "creationTimestamp": after(1).to_string(),
                "annotations": { crate::observed::INDEX_ANNOTATION: index.to_string() },
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "fs", "uid": "j" }],
            },
            "status": status,
        }))
        .unwrap()
    }

    fn placed(started: bool) -> Value {
        let started = if started { "True" } else { "False" };
        json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "True", "lastTransitionTime": after(2).to_string() },
            { "type": "PodReadyToStartContainers", "status": started },
        ] })
    }

    fn queries_for(job: Job, pods: Vec<Pod>) -> Vec<Query> {
        let mut observed = Observed::empty(after(60));
        observed.job = Some(Arc::new(job));
        observed.pods = pods.into_iter().map(Arc::new).collect();
        open_queries(&observed)
    }

    fn event(reason: &str, seconds: i64, message: &str) -> Event {
        let time = after(seconds).to_string();
        let event = json!({ "metadata": {}, "involvedObject": {}, "reason": reason,
            "message": message, "lastTimestamp": time });
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn a_job_with_too_few_pods_is_queried_after_a_delay() {
        let running = || pod(0, json!({ "phase": "Running" }));
        let query = Query {
            subject: Subject::Job { uid: "j".into() },
            since: after(1),
            not_before: after(3),
        };
        assert_eq!(queries_for(job(json!({})), vec![running()]), [query]);
        let over = || pod(1, json!({ "phase": "Failed" }));
        assert_eq!(queries_for(job(json!({})), vec![running(), over()]).len(), 1);
        let second = || pod(1, json!({ "phase": "Running" }));
        assert_eq!(queries_for(job(json!({})), vec![running(), second()]), []);
    }

    #[test]
    fn a_job_that_should_have_no_pods_is_not_queried() {
        let complete = json!([{ "type": "Complete", "status": "True" }]);
        for patch in [
            json!({ "spec": { "suspend": true } }),
            json!({ "status": { "startTime": null } }),
            json!({ "status": { "conditions": complete } }),
            json!({ "metadata": { "deletionTimestamp": START } }),
        ] {
            assert_eq!(queries_for(job(patch.clone()), vec![]), [], "{patch}");
        }
    }

    #[test]
    fn a_pod_without_its_volumes_is_queried_but_one_that_pulls_an_image_is_not() {
        let runs = || pod(0, json!({ "phase": "Running" }));
        let subject = Subject::Pod { name: "fs-1".into(), uid: "p1".into() };
        let queries = [Subject::Keys { name: "fs-flux".into() }, subject];
        let queries =
            queries.map(|it| Query { subject: it, since: after(2), not_before: after(7) });
        assert_eq!(queries_for(job(json!({})), vec![runs(), pod(1, placed(false))]), queries);
        assert_eq!(queries_for(job(json!({})), vec![runs(), pod(1, placed(true))]), []);
        assert_eq!(
            queries_for(job(json!({})), vec![runs(), pod(1, json!({ "phase": "Pending" }))]),
            []
        );
    }

    #[test]
    fn a_refusal_is_the_same_for_every_attempt() {
        let said = |pod: &str| {
            format!(
                "Error creating: pods \"{pod}\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"
            )
        };
        let first =
            creation_trouble(&[event("FailedCreate", 5, &said("fs-1-abcde"))], after(1)).unwrap();
        let second =
            creation_trouble(&[event("FailedCreate", 9, &said("fs-1-fghij"))], after(1)).unwrap();
        assert_eq!(first, second);
        assert_eq!(first.reason, Reason::QuotaExceeded);
        assert!(first.message.contains("exceeded quota: few"), "{}", first.message);
    }

    #[test]
    fn every_refusal_has_a_reason_and_an_old_one_does_not_count() {
        for (said, reason) in [
            (
                "Error creating: pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
                Reason::PodSecurity,
            ),
            (
                "Error creating: pods \"a\" is forbidden: minimum cpu usage per Container is 1, but request is 100m",
                Reason::PodsRefused,
            ),
            (
                "Error creating: admission webhook \"a.b\" denied the request: no",
                Reason::PodsRefused,
            ),
        ] {
            let events = [event("FailedCreate", 5, said), event("SuccessfulCreate", 6, "Created")];
            assert_eq!(creation_trouble(&events, after(5)).unwrap().reason, reason, "{said}");
            assert_eq!(creation_trouble(&events, after(6)), None, "{said}");
        }
    }

    #[test]
    fn what_cannot_be_mounted_is_named() {
        let said = "MountVolume.SetUp failed for volume \"v\" : secret \"nothere\" not found";
        let trouble = start_trouble("fs-1", &[event("FailedMount", 5, said)]).unwrap();
        assert_eq!(trouble.reason, Reason::FailedMount);
        assert!(trouble.message.contains("secret \"nothere\" not found"), "{}", trouble.message);
        assert_eq!(start_trouble("fs-1", &[event("Unhealthy", 5, "no")]), None);
    }

    /// A Job of an earlier build mounts only the user's Secret. Others mount one of ours beside it.
    #[test]
    fn the_hint_for_lost_keys_depends_on_their_owner() {
        let trouble = |flux: Value, mounted: Option<&str>| {
            let mut manifest = smallest_minicluster("fs");
            manifest["spec"]["flux"] = flux;
            let minicluster = serde_json::from_value(manifest).unwrap();
            let own = secret_name(&minicluster, None);
            keys_lost(&minicluster, mounted.unwrap_or(&own)).message
        };
        let users = json!({ "curveCertSecret": "mine" });
        for flux in [json!({}), users.clone()] {
            let ours = trouble(flux, None);
            assert!(
                ours.contains("\"fs-flux\"") && ours.contains("delete the MiniCluster"),
                "{ours}"
            );
        }
        let theirs = trouble(users, Some("mine"));
        assert!(theirs.contains("\"mine\"") && theirs.contains("create it again"), "{theirs}");
    }
}
