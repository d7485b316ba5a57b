//! Why nodes were or were not requested for jobs: the answers of the function by which the burst
//! controller decides.

use std::fmt;

use flux_operator_api::burst::JobAnswer;
use flux_operator_api::view::InstanceJobs;
use flux_operator_api::{Burst, BurstPolicy, MiniCluster, Reason};
use flux_operator_burst::{
    Answer, AnswerReason, IdleRanks, Memory, PolicyState, Situation, decide,
};
use flux_operator_burst_controller::policy_state;
use flux_operator_flux::JobId;
use flux_operator_plan::bursting::selects;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::Serialize;

use super::state::{accepted, condition, unprocessed};
use crate::kubectl::table::table;

/// The answer for a job, as it is printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct JobReport {
    /// Its id.
    pub(super) job: String,
    /// `pending`, `running`, or Flux's state of a job that has finished.
    pub(super) state: String,
    /// How many pending jobs the scheduler considers before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) position: Option<usize>,
    /// How many jobs are pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pending: Option<usize>,
    /// The answer in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    /// The answer in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    /// The policy whose answer it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
    /// The Burst that it waits for, or that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) burst: Option<String>,
}

/// The answers for jobs of a MiniCluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    /// The MiniCluster's namespace.
    pub(super) namespace: String,
    /// The MiniCluster's name.
    pub(super) cluster: String,
    /// The jobs.
    pub(super) items: Vec<JobReport>,
    /// What else its reader should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
}

/// The answers for all pending jobs of a MiniCluster. `policies` and `bursts` are those of its
/// namespace.
pub(super) fn answers(
    cluster: &MiniCluster,
    shown: &InstanceJobs,
    policies: &[BurstPolicy],
    bursts: &[Burst],
    now: Timestamp,
) -> Report {
    let mut serving: Vec<&BurstPolicy> =
        policies.iter().filter(|policy| selects(policy, cluster)).collect();
    serving.sort_by_key(|it| (it.creation_timestamp(), it.name_any()));
    let mut own: Vec<&Burst> =
        bursts.iter().filter(|burst| burst.spec.cluster == cluster.name_any()).collect();
    own.sort_by_key(|it| (it.creation_timestamp(), it.name_any()));
    let states: Vec<PolicyState> =
        serving.iter().map(|policy| state_of(policy, bursts, now)).collect();
    let Situation { instance, pools, jobs } =
        Situation::of(cluster, shown, &own, &mut IdleRanks::default(), now);
    // Since when nodes have been missing is known to the controller alone.
    let decision = decide(&instance, &states, &pools, &jobs, &Memory::default(), now);
    let pending = decision.answers.len();
    let item = |(position, answer): (usize, Answer)| {
        let job = JobId::from(answer.job).to_string();
        let recorded = recorded(&serving, cluster, &job).filter(|_| is_by_memory(&answer));
        let (reason, message, policy) = match recorded {
            Some((policy, it)) => (it.reason.clone(), it.message.clone(), Some(policy)),
            None => (answer.reason.to_string(), answer.message, answer.policy),
        };
        JobReport {
            job,
            state: "pending".to_owned(),
            position: Some(position),
            pending: Some(pending),
            reason,
            message,
            policy,
            burst: answer.burst,
        }
    };
    let unprocessed_policies = serving.iter().filter(|it| accepted(it).is_none());
    Report {
        namespace: cluster.namespace().unwrap_or_default(),
        cluster: cluster.name_any(),
        items: decision.answers.into_iter().enumerate().map(item).collect(),
        notes: unprocessed_policies.map(|it| unprocessed(&it.name_any())).collect(),
    }
}

/// Whether an answer depends on what only the controller remembers: since when nodes have been missing,
/// and which targets have failed. Without that, nodes seem to be requested.
fn is_by_memory(answer: &Answer) -> bool {
    matches!(answer.reason, AnswerReason::Stabilizing | AnswerReason::Requested)
}

/// The controller's own answer for a job, and the policy in whose status it is.
fn recorded<'a>(
    policies: &[&'a BurstPolicy],
    cluster: &MiniCluster,
    job: &str,
) -> Option<(String, &'a JobAnswer)> {
    policies.iter().find_map(|policy| {
        let mut answers = policy.status.as_ref()?.jobs.iter();
        let answer = answers.find(|it| it.id == job && it.cluster == cluster.name_any())?;
        Some((policy.name_any(), answer))
    })
}

/// A policy with what its Bursts use.
fn state_of(policy: &BurstPolicy, bursts: &[Burst], now: Timestamp) -> PolicyState {
    let usage = policy.status.as_ref().and_then(|status| status.usage.as_ref());
    let rejected = accepted(policy).filter(|it| it.status == "False");
    // The controller alone knows what it cannot read, and what was refused.
    let blocking = [Reason::Unreadable, Reason::RequestRefused].map(Reason::as_str);
    let is_blocked = |it: &&Condition| blocking.contains(&it.reason.as_str());
    let blocked = condition(policy, "Active").filter(is_blocked);
    PolicyState {
        rejected: rejected.map(|it| it.message.clone()),
        blocked: blocked.map(|it| it.message.clone()),
        ..policy_state(policy, bursts, usage, now)
    }
}

/// A report about one job, as text.
pub(super) struct OneJob<'a>(pub(super) &'a Report);

impl fmt::Display for OneJob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { namespace, cluster, items, notes } = self.0;
        for item in items {
            writeln!(f, "job {} of {namespace}/{cluster}: {}", item.job, item.state)?;
            let position = item.position.zip(item.pending);
            let position = position.map(|(place, pending)| format!("{place} ({pending} wait)"));
            let reason = match (item.reason.as_str(), item.message.as_str()) {
                ("", message) => message.to_owned(),
                (reason, message) => format!("{reason}: {message}"),
            };
            for (label, text) in [
                ("position", position.as_deref().unwrap_or_default()),
                ("reason", &reason),
                ("policy", item.policy.as_deref().unwrap_or_default()),
                ("burst", item.burst.as_deref().unwrap_or_default()),
            ] {
                if !text.is_empty() {
                    writeln!(f, "  {label:<9} {text}")?;
                }
            }
        }
        notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

/// A report about several jobs, as a table.
pub(super) fn rows(report: &Report) -> String {
    let row = |item: &JobReport| {
        let JobReport { job, reason, message, policy, burst, .. } = item;
        let or_none = |it: &Option<String>| it.clone().unwrap_or_else(|| "-".to_owned());
        vec![job.clone(), reason.clone(), or_none(policy), or_none(burst), message.clone()]
    };
    let rows: Vec<Vec<String>> = report.items.iter().map(row).collect();
    table(&["JOB", "REASON", "POLICY", "BURST", "MESSAGE"], &rows)
}

#[cfg(test)]
mod tests {
    use super::super::instance::ObservedInstance;
    use super::super::instance::tests::fake_flux;
    use super::super::testing::{burst, cluster, condition, now, policy};
    use super::*;
    use flux_operator_api::view::SlotRange;
    use serde_json::json;

    /// The answers for pending jobs, each with its number of nodes and an attribute. Two brokers are
    /// online: a job runs on one, and the other is drained.
    async fn answered(
        jobs: &[(u64, u32, &'static str)],
        policies: &[BurstPolicy],
        bursts: &[Burst],
    ) -> Report {
        let range = |owner: &str, ranks: &str, hosts: &str| SlotRange {
            owner: owner.into(),
            ranks: ranks.into(),
            hosts: hosts.into(),
            ..SlotRange::default()
        };
        let slots = vec![range("Job", "0-1", "fs-[0-1]"), range("Spare", "2-5", "fs-spare-[0-3]")];
        let flux = fake_flux(jobs);
        let shown = ObservedInstance::read(&flux).await.unwrap().shown(slots);
        answers(&cluster(json!({ "spareRanks": 4, "expose": {} })), &shown, policies, bursts, now())
    }

    fn reasons(report: &Report) -> Vec<&str> {
        report.items.iter().map(|item| item.reason.as_str()).collect()
    }

    #[tokio::test]
    async fn every_pending_job_has_an_answer_in_the_order_of_the_queue() {
        let jobs = [(7, 2, "burstable"), (8, 1, "other"), (9, 9, "burstable")];
        let report = answered(&jobs, &[policy()], &[]).await;
        assert_eq!(reasons(&report), ["Stabilizing", "NotSelected", "TooLargeForTargets"]);
        assert_eq!(report.items[1].position.zip(report.items[1].pending), Some((1, 3)));
        let report = answered(&jobs, &[], &[]).await;
        assert_eq!(reasons(&report)[0], "NoPolicy");
    }

    #[tokio::test]
    async fn a_job_that_a_burst_serves_names_it() {
        let active = burst("fs-gke-1", "cloud", json!({ "phase": "Joining" }));
        let report = answered(&[(7, 2, "burstable")], &[policy()], &[active]).await;
        let expected = "\
job ƒ8 of team/fs: pending
  position  0 (1 wait)
  reason    WaitsForBurst: starts when the nodes of Burst \"fs-gke-1\" are up
  policy    cloud
  burst     fs-gke-1
";
        assert_eq!(OneJob(&report).to_string(), expected);
        let expected = "\
JOB   REASON          POLICY   BURST      MESSAGE
ƒ8    WaitsForBurst   cloud    fs-gke-1   starts when the nodes of Burst \"fs-gke-1\" are up
";
        assert_eq!(rows(&report), expected);
    }

    /// It alone remembers since when nodes have been missing, and which targets have failed.
    #[tokio::test]
    async fn what_depends_on_the_controllers_memory_is_its_own_answer() {
        for (seconds, without_memory) in [(5, "Stabilizing"), (0, "Requested")] {
            let mut policy = policy();
            policy.spec.when.stabilization_seconds = Some(seconds);
            let jobs = [(7, 2, "burstable"), (8, 1, "other")];
            let report = answered(&jobs, std::slice::from_ref(&policy), &[]).await;
            assert_eq!(reasons(&report), [without_memory, "NotSelected"]);
            let answer = |id: u64| JobAnswer {
                cluster: "fs".into(),
                id: JobId::from(id).to_string(),
                reason: "TargetFailed".into(),
                message: "tried again in 90 s".into(),
            };
            policy.status.as_mut().unwrap().jobs = vec![answer(7), answer(8)];
            let report = answered(&jobs, &[policy], &[]).await;
            assert_eq!(reasons(&report), ["TargetFailed", "NotSelected"], "{without_memory}");
            assert_eq!(report.items[0].message, "tried again in 90 s");
            assert_eq!(report.items[0].policy.as_deref(), Some("cloud"));
        }
    }

    #[tokio::test]
    async fn limits_count_the_bursts_for_other_clusters() {
        let mut other = burst("other-gke-1", "cloud", json!({}));
        other.spec.cluster = "other".into();
        other.spec.nodes = 3;
        let report = answered(&[(7, 2, "burstable")], &[policy()], &[other]).await;
        // The target has four nodes, and its three others are of no use; the second target is.
        assert_eq!(reasons(&report), ["Stabilizing"]);
        let mut one_target = policy();
        one_target.spec.targets.truncate(1);
        let mut other = burst("other-gke-1", "cloud", json!({}));
        other.spec.cluster = "other".into();
        other.spec.nodes = 3;
        let report = answered(&[(7, 2, "burstable")], &[one_target], &[other]).await;
        assert_eq!(reasons(&report), ["TargetFull"]);
    }

    #[tokio::test]
    async fn a_policy_that_is_not_accepted_or_processed_is_reported() {
        let mut refused = policy();
        refused.status.as_mut().unwrap().conditions =
            vec![condition("Accepted", "False", "NamespaceNotListed", "not served")];
        let report = answered(&[(7, 2, "burstable")], &[refused], &[]).await;
        assert_eq!(reasons(&report), ["PolicyRejected"]);
        assert!(report.items[0].message.contains("not served"), "{report:?}");
        let mut unprocessed = policy();
        unprocessed.status = None;
        let report = answered(&[(7, 2, "burstable")], &[unprocessed], &[]).await;
        let text = OneJob(&report).to_string();
        assert!(text.contains("  note: BurstPolicy \"cloud\" has no condition Accepted"), "{text}");
    }
}
