//! The Burst that a policy creates.

use flux_operator_api::burst::BurstTarget;
use flux_operator_api::{Burst, BurstPolicy, BurstSpec, MiniCluster};
use flux_operator_flux::JobId;
use kube::{Resource, ResourceExt};

use super::names::PolicyBurst;

/// How many jobs a Burst lists: those at the front of the queue say whether it was of use.
const MAX_JOBS: usize = 50;

/// The Burst that a policy creates for a MiniCluster. The first name that is free is used.
pub fn policy_burst(
    policy: &BurstPolicy,
    cluster: &MiniCluster,
    target: &BurstTarget,
    nodes: i32,
    jobs: &[u64],
    is_free: impl Fn(&str) -> bool,
) -> Burst {
    let (uids, cluster_name) = (uids(policy, cluster), cluster.name_any());
    let names = names(&uids, &cluster_name, target);
    let name = (0..).map(|it| names.numbered(it)).find(|name| is_free(name)).unwrap_or_default();
    let spec = BurstSpec {
        idle_seconds: Some(policy.spec.give_back.idle_seconds()),
        jobs: jobs.iter().take(MAX_JOBS).map(|id| JobId::from(*id).to_string()).collect(),
        ..spec_of(policy, cluster, target, nodes)
    };
    owned(policy, &name, spec)
}

/// The Burst that runs a job in an instance of its own. Its name follows from the job, so that a
/// controller which has forgotten that it created one finds the name taken.
pub fn isolated_policy_burst(
    policy: &BurstPolicy,
    cluster: &MiniCluster,
    target: &BurstTarget,
    nodes: i32,
    job: u64,
) -> Burst {
    let (uids, cluster_name) = (uids(policy, cluster), cluster.name_any());
    let name = names(&uids, &cluster_name, target).of_job(job);
    let id = JobId::from(job);
    let spec = BurstSpec {
        isolated_job: id.to_f58_plain(),
        jobs: vec![id.to_string()],
        ..spec_of(policy, cluster, target, nodes)
    };
    owned(policy, &name, spec)
}

/// The uids of a policy and a MiniCluster.
fn uids(policy: &BurstPolicy, cluster: &MiniCluster) -> (String, String) {
    (policy.uid().unwrap_or_default(), cluster.uid().unwrap_or_default())
}

fn names<'a>(
    (policy_uid, cluster_uid): &'a (String, String),
    cluster: &'a str,
    target: &'a BurstTarget,
) -> PolicyBurst<'a> {
    PolicyBurst { policy_uid, cluster_uid, cluster, target: &target.name }
}

/// What all Bursts of a policy have.
fn spec_of(
    policy: &BurstPolicy,
    cluster: &MiniCluster,
    target: &BurstTarget,
    nodes: i32,
) -> BurstSpec {
    BurstSpec {
        cluster: cluster.name_any(),
        policy: policy.name_any(),
        target: target.clone(),
        nodes,
        lifetime_seconds: Some(policy.spec.limits.lifetime_seconds()),
        grace_seconds: Some(policy.spec.give_back.grace_seconds()),
        ..BurstSpec::default()
    }
}

/// A Burst of a policy. One that is deleted takes its Bursts with it.
fn owned(policy: &BurstPolicy, name: &str, spec: BurstSpec) -> Burst {
    let mut burst = Burst::new(name, spec);
    burst.metadata.namespace = policy.namespace();
    burst.metadata.owner_references = policy.controller_owner_ref(&()).map(|it| vec![it]);
    burst
}

#[cfg(test)]
mod tests {
    use flux_operator_testkit::smallest_minicluster;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_burst_has_a_free_name_and_what_its_policy_says() {
        let policy = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
            "metadata": { "name": "p", "namespace": "hpc", "uid": "u" },
            "spec": { "selector": {}, "limits": { "nodes": 4, "lifetimeSeconds": 900 },
                "targets": [{ "name": "t", "maxNodes": 4, "cluster": {} }] } });
        let policy: BurstPolicy = serde_json::from_value(policy).unwrap();
        let cluster: MiniCluster = serde_json::from_value(smallest_minicluster("fs")).unwrap();
        let jobs: Vec<u64> = (1..=1000).collect();
        let target = &policy.spec.targets[0];
        let first = policy_burst(&policy, &cluster, target, 3, &jobs, |_| true);
        assert_eq!((first.spec.nodes, first.spec.jobs.len()), (3, MAX_JOBS));
        assert_eq!(first.spec.lifetime_seconds, Some(900));
        assert_eq!(first.owning_policy(), Some("p"));
        assert_eq!(first.namespace().as_deref(), Some("hpc"));
        let again = policy_burst(&policy, &cluster, target, 3, &jobs, |_| true);
        assert_eq!(again.name_any(), first.name_any(), "the same number gives the same name");
        let taken = first.name_any();
        let second = policy_burst(&policy, &cluster, target, 3, &jobs, |name| name != taken);
        assert_ne!(second.name_any(), taken);
        let run = isolated_policy_burst(&policy, &cluster, target, 3, 1);
        assert_eq!(run.spec.isolated_job, JobId::from(1).to_f58_plain());
        assert_eq!(run.name_any().len(), "fs-t-".len() + 12, "{}", run.name_any());
    }
}
