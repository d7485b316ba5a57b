//! Writes the statuses of the policies of a namespace: a few at a time, so that they do not keep the
//! decisions waiting.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::{Burst, BurstPolicy, BurstPolicyStatus, Reason};
use flux_operator_burst::{Summary, is_burst_of};
use flux_operator_plan::bursting::{Service, policy_status};
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use tokio::time::Instant;

use crate::applied::AppliedPolicies;
use crate::bursts::Context;
use crate::errors::{chain, is_conflict, is_not_found};
use crate::stored_policy::{StoredMetadata, replace_policy_status};

/// The shortest time between two writes of one policy's status, which a busy queue changes all the
/// time.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// How many are written at the same time, and how many before the next decisions.
const CONCURRENCY: usize = 4;
const MAX_WRITES: usize = 8;

/// The summaries of policies, by name.
pub(crate) type Summaries = BTreeMap<String, Summary>;

/// When the status of each policy of a namespace was written last, by name.
#[derive(Default)]
pub(crate) struct PolicyStatuses(HashMap<String, Instant>);

impl PolicyStatuses {
    /// Writes the statuses of the policies of a namespace that have changed. `bursts` are all of it.
    /// Returns whether some are left for the next time.
    pub(crate) async fn write(
        &mut self,
        context: &Context,
        policies: &[Arc<BurstPolicy>],
        bursts: &[Arc<Burst>],
        applied: &AppliedPolicies,
        summaries: &Summaries,
        now: Timestamp,
    ) -> bool {
        let names: HashSet<String> = policies.iter().map(|it| it.name_any()).collect();
        self.0.retain(|policy, _| names.contains(policy));
        let mut candidates = Vec::new();
        for policy in policies {
            let namespace = policy.namespace().unwrap_or_default();
            let service = match context.home.serves(&namespace) {
                true => applied.service(policy),
                false => Service::NotListed,
            };
            let summary = summaries.get(&policy.name_any());
            let refused = summary.and_then(|it| it.refused.as_deref());
            let is_known = !context.stores.unreadable.has_any::<Burst>(&namespace);
            let service = match service {
                Service::Applied if !is_known => Service::UnreadableBurst,
                Service::Applied => refused.map_or(Service::Applied, Service::Refused),
                service => service,
            };
            let last = self.0.get(&policy.name_any()).copied();
            let is_early = last.is_some_and(|at| at.elapsed() < STATUS_INTERVAL);
            if !is_early && !says_so(policy, service) {
                candidates.push((service, last, policy));
            }
        }
        // Those that are applied first, and of them those that have waited for the longest.
        candidates.sort_by_key(|(service, last, _)| {
            (matches!(service, Service::NotListed | Service::TooMany), *last)
        });
        let due = candidates.into_iter().filter_map(|(service, _, policy)| {
            let summary = summaries.get(&policy.name_any());
            let status = changed_status(policy, bursts, service, summary, now)?;
            Some((Arc::clone(policy), status))
        });
        // No more are computed than are written.
        let mut due: Vec<_> = due.take(MAX_WRITES + 1).collect();
        let is_left = due.len() > MAX_WRITES;
        due.truncate(MAX_WRITES);
        for (policy, _) in &due {
            self.0.insert(policy.name_any(), Instant::now());
        }
        let write = |(policy, status): (Arc<BurstPolicy>, _)| async move {
            write_one(context, &policy, status).await;
        };
        futures::stream::iter(due).for_each_concurrent(CONCURRENCY, write).await;
        is_left
    }
}

/// Whether the status of a policy that is not applied says so: then it is not computed again.
fn says_so(policy: &BurstPolicy, service: Service<'_>) -> bool {
    let reason = match service {
        Service::Applied | Service::UnreadableBurst | Service::Refused(_) => return false,
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
    service: Service<'_>,
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
    let metadata = StoredMetadata {
        name: policy.metadata.name.clone(),
        namespace: policy.metadata.namespace.clone(),
        uid: policy.metadata.uid.clone(),
        resource_version: policy.metadata.resource_version.clone(),
    };
    match replace_policy_status(&context.home.client, &metadata, &status).await {
        Ok(()) => {}
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
