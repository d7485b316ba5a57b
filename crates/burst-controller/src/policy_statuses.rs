//! Writes the statuses of policies: a few at a time, and of each namespace only some, so that nobody waits
//! for the policies of others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::{Burst, BurstPolicy, BurstPolicyStatus, Reason};
use flux_operator_burst::{Summary, is_burst_of};
use flux_operator_plan::bursting::{Service, policy_status};
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::PostParams;
use kube::runtime::reflector::ObjectRef;
use tokio::time::Instant;

use crate::applied::AppliedPolicies;
use crate::bursts::Context;
use crate::errors::{chain, is_conflict, is_not_found};
use crate::fairness::first_of_each;

/// The shortest time between two writes of one policy's status, which a busy queue changes all the
/// time.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// How many are written at the same time, how many before the next decisions, and how many of these are
/// of one namespace.
const CONCURRENCY: usize = 8;
const MAX_WRITES: usize = 32;
const MAX_WRITES_OF_NAMESPACE: usize = 8;

/// The summaries of policies, by namespace and name.
pub(crate) type Summaries = BTreeMap<(String, String), Summary>;

/// When the status of each policy was written last.
#[derive(Default)]
pub(crate) struct PolicyStatuses(HashMap<ObjectRef<BurstPolicy>, Instant>);

impl PolicyStatuses {
    /// Writes statuses that have changed. Returns whether some are left for the next time.
    pub(crate) async fn write(
        &mut self,
        context: &Context,
        applied: &AppliedPolicies,
        summaries: &Summaries,
        now: Timestamp,
    ) -> bool {
        let policies = context.stores.policies.state();
        let bursts = context.stores.bursts.state();
        self.0.retain(|policy, _| context.stores.policies.get(policy).is_some());
        let mut due = Vec::new();
        for policy in policies {
            let is_served = context.home.serves(&policy.namespace().unwrap_or_default());
            let service = if is_served { applied.service(&policy) } else { Service::NotListed };
            let last = self.0.get(&ObjectRef::from_obj(&*policy)).copied();
            if last.is_some_and(|at| at.elapsed() < STATUS_INTERVAL) || says_so(&policy, service) {
                continue;
            }
            let summary = summaries.get(&key(&policy));
            if let Some(status) = changed_status(&policy, &bursts, service, summary, now) {
                due.push((service != Service::Applied, last, policy, status));
            }
        }
        // Those that are applied first, and of them those that have waited for the longest.
        due.sort_by_key(|(is_ignored, last, _, _)| (*is_ignored, *last));
        let count = due.len();
        let namespace = |it: &(bool, Option<Instant>, Arc<BurstPolicy>, BurstPolicyStatus)| {
            it.2.namespace().unwrap_or_default()
        };
        let due = first_of_each(due, namespace, MAX_WRITES_OF_NAMESPACE, MAX_WRITES);
        let is_left = due.len() < count;
        for (_, _, policy, _) in &due {
            self.0.insert(ObjectRef::from_obj(&**policy), Instant::now());
        }
        let writes = futures::stream::iter(due);
        let write = |(_, _, policy, status): (_, _, Arc<BurstPolicy>, _)| async move {
            write_one(context, &policy, status).await;
        };
        writes.for_each_concurrent(CONCURRENCY, write).await;
        is_left
    }
}

/// The key of a policy among [`Summaries`].
pub(crate) fn key(policy: &BurstPolicy) -> (String, String) {
    (policy.namespace().unwrap_or_default(), policy.name_any())
}

/// Whether the status of a policy that is not applied says so: then it is not computed again.
fn says_so(policy: &BurstPolicy, service: Service) -> bool {
    let reason = match service {
        Service::Applied => return false,
        Service::NotListed => Reason::NamespaceNotListed,
        Service::TooMany => Reason::TooManyPolicies,
    };
    policy.status.as_ref().is_some_and(|status| {
        status.observed_generation == policy.metadata.generation
            && status.conditions.iter().any(|it| it.reason == reason.as_str())
    })
}

/// The status of a policy, if it has to be written.
fn changed_status(
    policy: &BurstPolicy,
    bursts: &[Arc<Burst>],
    service: Service,
    summary: Option<&Summary>,
    now: Timestamp,
) -> Option<BurstPolicyStatus> {
    let none = Summary::default();
    let summary = summary.unwrap_or(&none);
    if summary.is_incomplete && policy.status.is_some() {
        return None;
    }
    let own: Vec<&Burst> =
        bursts.iter().map(Arc::as_ref).filter(|it| is_burst_of(policy, it)).collect();
    let status = policy_status(policy, &own, service, summary.clusters, &summary.unknown, now);
    let status = BurstPolicyStatus {
        pending_jobs: summary.pending,
        jobs: summary.answers.clone(),
        ..status
    };
    (policy.status.as_ref() != Some(&status)).then_some(status)
}

async fn write_one(context: &Context, policy: &BurstPolicy, status: BurstPolicyStatus) {
    let mut changed = policy.clone();
    changed.status = Some(status);
    let policies = context.home.api::<BurstPolicy>(&policy.namespace().unwrap_or_default());
    match policies.replace_status(&policy.name_any(), &PostParams::default(), &changed).await {
        Ok(_) => {}
        Err(error) if is_conflict(&error) || is_not_found(&error) => {}
        Err(error) => {
            let policy = ObjectRef::from_obj(policy);
            tracing::warn!(%policy, error = chain(&error), "failed to write a policy's status");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applied::tests::policy;

    #[test]
    fn a_policy_that_is_not_applied_gets_one_status_for_each_generation() {
        let mut policy = (*policy("unserved", 1)).clone();
        let now = Timestamp::UNIX_EPOCH;
        for service in [Service::NotListed, Service::TooMany] {
            assert!(!says_so(&policy, service));
            policy.status = changed_status(&policy, &[], service, None, now);
            assert!(says_so(&policy, service));
            assert!(!says_so(&policy, Service::Applied), "once it is applied it is written again");
        }
        policy.metadata.generation = Some(2);
        assert!(!says_so(&policy, Service::TooMany));
    }

    #[test]
    fn a_status_waits_for_jobs_that_will_be_known_in_a_moment() {
        let mut policy = (*policy("hpc", 1)).clone();
        let now = Timestamp::UNIX_EPOCH;
        let incomplete = Summary { is_incomplete: true, ..Summary::default() };
        let first = changed_status(&policy, &[], Service::Applied, Some(&incomplete), now);
        policy.status = Some(first.unwrap());
        let later = Summary { pending: 1, ..incomplete };
        let status = |summary| changed_status(&policy, &[], Service::Applied, Some(summary), now);
        assert_eq!(status(&later), None);
        assert!(status(&Summary { is_incomplete: false, ..later.clone() }).is_some());
    }
}
