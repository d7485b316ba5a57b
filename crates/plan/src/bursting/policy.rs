//! The status of a BurstPolicy, and what it selects.

use flux_operator_api::burst::DayUsage;
use flux_operator_api::{Burst, BurstPolicy, BurstPolicyStatus, MiniCluster, Reason};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use super::usage::{day, two_decimals, used_today};
use crate::verdict::{self, no, yes};

/// How many policies of a namespace are applied: the oldest ones. Each is compared with each MiniCluster
/// of the namespace, and with each of its jobs.
pub const MAX_POLICIES: usize = 64;

/// Whether the burst controller applies a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service<'a> {
    /// It does, if the policy is valid.
    Applied,
    /// It does not serve the namespace.
    NotListed,
    /// The namespace has [`MAX_POLICIES`] that are older.
    TooMany,
    /// It does, but requests no more nodes: the namespace has a Burst that cannot be read, and what it
    /// uses is not known.
    UnreadableBurst,
    /// It does, but the API server has refused the last Burst that it requested, with this message.
    Refused(&'a str),
}

impl Service<'_> {
    /// Why a policy that is applied cannot request nodes at present, if it cannot.
    pub fn blocked(&self) -> Option<(Reason, String)> {
        match self {
            Service::UnreadableBurst => Some((
                Reason::Unreadable,
                "a Burst of this namespace cannot be read, and what it uses is not known; the log of the \
                 burst controller names it"
                    .to_owned(),
            )),
            Service::Refused(why) => Some((
                Reason::RequestRefused,
                format!("the API server refuses its Bursts, and is asked again: {why}"),
            )),
            Service::Applied | Service::NotListed | Service::TooMany => None,
        }
    }
}

/// The MiniClusters that a policy serves.
#[derive(Clone, Debug)]
pub struct ServedClusters {
    namespace: Option<String>,
    /// `None` if it serves none.
    selector: Option<Selector>,
}

impl ServedClusters {
    /// Those of a policy. One whose selector is not valid serves none.
    pub fn of(policy: &BurstPolicy) -> ServedClusters {
        let is_deleting = policy.metadata.deletion_timestamp.is_some();
        let selector = selector(policy).ok().filter(|_| !is_deleting);
        ServedClusters { namespace: policy.namespace(), selector }
    }

    /// Whether a MiniCluster is one of them.
    pub fn contains(&self, cluster: &MiniCluster) -> bool {
        // Namespaces first: that costs nothing, and policies of others must not cost more.
        self.namespace == cluster.namespace()
            && self.selector.as_ref().is_some_and(|it| it.matches(cluster.labels()))
    }
}

/// Whether a policy serves a MiniCluster. Use [`ServedClusters`] to compare it with several.
pub fn selects(policy: &BurstPolicy, cluster: &MiniCluster) -> bool {
    policy.namespace() == cluster.namespace() && ServedClusters::of(policy).contains(cluster)
}

fn selector(policy: &BurstPolicy) -> Result<Selector, String> {
    policy.spec.check_selector_size().map_err(|problem| format!("it {problem}"))?;
    Selector::try_from(policy.spec.selector.clone()).map_err(|error| error.to_string())
}

/// The status of a policy whose Bursts these are, without what is known of jobs. `clusters` is how many
/// MiniClusters it selects, and `unknown` are those of them whose jobs are not known.
pub fn policy_status(
    policy: &BurstPolicy,
    bursts: &[&Burst],
    service: Service<'_>,
    clusters: i32,
    unknown: &[String],
    now: Timestamp,
) -> BurstPolicyStatus {
    let before = policy.status.clone().unwrap_or_default();
    let accepted = match (service, selector(policy)) {
        (Service::NotListed, _) => no(
            Reason::NamespaceNotListed,
            "the burst controller does not serve this namespace: an administrator has to list it \
             (flux-operator manifests --burst-namespace)",
        ),
        (Service::TooMany, _) => no(
            Reason::TooManyPolicies,
            &format!(
                "this namespace has {MAX_POLICIES} policies that are older, and no more are applied: \
                 delete some"
            ),
        ),
        (Service::Applied | Service::UnreadableBurst | Service::Refused(_), Err(error)) => {
            no(Reason::BadSelector, &format!("selector is not valid: {error}"))
        }
        (Service::Applied | Service::UnreadableBurst | Service::Refused(_), Ok(_)) => {
            yes(Reason::Accepted, "the policy is applied")
        }
    };
    let active = match (accepted.status, policy.spec.suspend, service.blocked(), unknown) {
        ("True", true, _, _) => no(Reason::Suspended, "it requests no more nodes: suspend is set"),
        ("True", false, Some((reason, message)), _) => no(reason, &message),
        ("True", false, None, [first, ..]) => {
            let message = format!(
                "the operator does not list the jobs of MiniCluster {first:?}: it may not be ready"
            );
            no(Reason::JobsUnknown, &message)
        }
        ("True", false, None, []) if clusters == 0 => no(
            Reason::NoClusters,
            "no MiniCluster of this namespace has the labels that the selector asks for",
        ),
        ("True", false, None, []) => {
            yes(Reason::Active, "it requests nodes for jobs that it selects")
        }
        _ => accepted.clone(),
    };
    let live: Vec<&&Burst> = bursts.iter().filter(|burst| !burst.is_record()).collect();
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
        bursts: i32::try_from(live.len()).unwrap_or(i32::MAX),
        nodes: live.iter().fold(0, |sum: i32, it| sum.saturating_add(it.spec.nodes)),
        usage: (hours > 0.0 || before.usage.is_some()).then_some(usage),
        observed_generation: generation,
        conditions: verdict::conditions(verdicts, generation, &before.conditions, now),
        ..BurstPolicyStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use flux_operator_testkit::smallest_minicluster;
    use serde_json::{Value, json};

    use super::*;

    fn policy(selector: &Value) -> BurstPolicy {
        let policy = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
            "metadata": { "name": "p", "namespace": "hpc", "generation": 3 },
            "spec": { "selector": selector, "limits": { "nodes": 4 },
                "targets": [{ "name": "t", "maxNodes": 4, "cluster": {} }] } });
        serde_json::from_value(policy).unwrap()
    }

    fn accepted(policy: &BurstPolicy, service: Service<'_>) -> String {
        let status = policy_status(policy, &[], service, 1, &[], Timestamp::UNIX_EPOCH);
        assert_eq!(status.observed_generation, Some(3));
        status.conditions[0].reason.clone()
    }

    #[test]
    fn a_policy_serves_miniclusters_of_its_namespace_with_the_labels() {
        let cluster = |namespace: &str, labels: Value| -> MiniCluster {
            let mut cluster = smallest_minicluster("fs");
            cluster["metadata"]["namespace"] = namespace.into();
            cluster["metadata"]["labels"] = labels;
            serde_json::from_value(cluster).unwrap()
        };
        let policy = policy(&json!({ "matchLabels": { "team": "a" } }));
        let served = ServedClusters::of(&policy);
        for (namespace, team, is_served) in
            [("hpc", "a", true), ("hpc", "b", false), ("other", "a", false)]
        {
            let cluster = cluster(namespace, json!({ "team": team }));
            assert_eq!(served.contains(&cluster), is_served, "{namespace} {team}");
            assert_eq!(selects(&policy, &cluster), is_served, "{namespace} {team}");
        }
    }

    #[test]
    fn a_policy_that_is_not_applied_says_why() {
        let valid = policy(&json!({}));
        assert_eq!(accepted(&valid, Service::Applied), "Accepted");
        assert_eq!(accepted(&valid, Service::NotListed), "NamespaceNotListed");
        assert_eq!(accepted(&valid, Service::TooMany), "TooManyPolicies");
        assert_eq!(accepted(&valid, Service::UnreadableBurst), "Accepted");
        let now = Timestamp::UNIX_EPOCH;
        for (service, reason) in [
            (Service::UnreadableBurst, "Unreadable"),
            (Service::Refused("exceeded quota: bursts"), "RequestRefused"),
        ] {
            let status = policy_status(&valid, &[], service, 1, &[], now);
            let active = &status.conditions[1];
            assert_eq!((&*active.reason, &*active.status), (reason, "False"));
        }
        let max = flux_operator_api::BurstPolicySpec::MAX_SELECTOR_PARTS;
        let values: Vec<String> = (0..max).map(|it| it.to_string()).collect();
        let large =
            json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": values }] });
        assert_eq!(accepted(&policy(&large), Service::Applied), "BadSelector");
    }
}
