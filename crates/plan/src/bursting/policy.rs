//! The status of a BurstPolicy, and what it selects.

use flux_operator_api::burst::DayUsage;
use flux_operator_api::{Burst, BurstPolicy, BurstPolicyStatus, MiniCluster, Reason};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use super::usage::{day, two_decimals, used_today};
use crate::verdict::{self, no, yes};

/// Whether a policy serves a MiniCluster. One whose selector is not valid serves none.
pub fn selects(policy: &BurstPolicy, cluster: &MiniCluster) -> bool {
    let selector = Selector::try_from(policy.spec.selector.clone());
    policy.namespace() == cluster.namespace()
        && policy.metadata.deletion_timestamp.is_none()
        && selector.is_ok_and(|selector| selector.matches(cluster.labels()))
}

/// The status of a policy whose Bursts these are, without what is known of jobs. `is_served`: the
/// controller serves its namespace; `clusters` is how many MiniClusters it selects, and `unknown` are
/// those of them whose jobs are not known.
pub fn policy_status(
    policy: &BurstPolicy,
    bursts: &[&Burst],
    is_served: bool,
    clusters: i32,
    unknown: &[String],
    now: Timestamp,
) -> BurstPolicyStatus {
    let before = policy.status.clone().unwrap_or_default();
    let accepted = match (is_served, Selector::try_from(policy.spec.selector.clone())) {
        (false, _) => no(
            Reason::NamespaceNotListed,
            "the burst controller does not serve this namespace: an administrator has to list it \
             (flux-operator manifests --burst-namespace)",
        ),
        (true, Err(error)) => no(Reason::BadSelector, &format!("selector is not valid: {error}")),
        (true, Ok(_)) => yes(Reason::Accepted, "the policy is applied"),
    };
    let active = match (accepted.status, policy.spec.suspend, unknown) {
        ("True", true, _) => no(Reason::Suspended, "it requests no more nodes: suspend is set"),
        ("True", false, [first, ..]) => {
            let message = format!(
                "the operator does not list the jobs of MiniCluster {first:?}: it may not be ready"
            );
            no(Reason::JobsUnknown, &message)
        }
        ("True", false, []) if clusters == 0 => no(
            Reason::NoClusters,
            "no MiniCluster of this namespace has the labels that the selector asks for",
        ),
        ("True", false, []) => yes(Reason::Active, "it requests nodes for jobs that it selects"),
        _ => accepted.clone(),
    };
    let (hours, cost) = used_today(before.usage.as_ref(), bursts.iter().copied(), now);
    let finished = before.usage.as_ref().filter(|it| it.day == day(now));
    let has_price = policy.spec.targets.iter().any(|target| target.price() > 0.0);
    let usage = DayUsage {
        day: day(now),
        node_hours: two_decimals(hours),
        cost: if has_price { two_decimals(cost) } else { String::new() },
        finished: finished.map(|it| it.finished.clone()).unwrap_or_default(),
    };
    let verdicts = [("Accepted", accepted), ("Active", active)];
    let generation = policy.metadata.generation;
    BurstPolicyStatus {
        clusters,
        bursts: i32::try_from(bursts.len()).unwrap_or(i32::MAX),
        nodes: bursts.iter().fold(0, |sum: i32, it| sum.saturating_add(it.spec.nodes)),
        usage: (hours > 0.0 || before.usage.is_some()).then_some(usage),
        observed_generation: generation,
        conditions: verdict::conditions(verdicts, generation, &before.conditions, now),
        ..BurstPolicyStatus::default()
    }
}
