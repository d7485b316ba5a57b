//! Policies and bursts as they are now.

use std::collections::BTreeMap;

use flux_operator_api::burst::BurstTarget;
use flux_operator_api::{Burst, BurstPolicy, BurstPolicySpec};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::Instance;

/// A BurstPolicy that serves the MiniCluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyState {
    /// Its name.
    pub name: String,
    /// Its specification.
    pub spec: BurstPolicySpec,
    /// Why it is not applied, in a sentence. `None`: it is accepted.
    pub rejected: Option<String>,
    /// Why it cannot request anything at present, in a sentence, although it is accepted.
    pub blocked: Option<String>,
    /// What its bursts use, those for other MiniClusters included.
    pub used: Used,
}

/// What bursts of one policy use, those for all MiniClusters that it serves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// Nodes that are requested.
    pub nodes: i32,
    /// Of these, those at each target, by its name.
    pub nodes_by_target: BTreeMap<String, i32>,
    /// Bursts that exist.
    pub bursts: usize,
    /// Node-hours on this day, in UTC.
    pub node_hours_today: f64,
    /// Cost on this day, in UTC.
    pub cost_today: f64,
}

/// A Burst of the MiniCluster. Its brokers that are online are [`Instance::nodes`]; its other nodes,
/// up to `nodes`, are coming up.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// The Burst's name.
    pub name: String,
    /// The policy that has created it. `None`: a user has.
    pub policy: Option<String>,
    /// Its target. `ranks` is the property of the ranks that are leased for it, if it is set.
    pub target: BurstTarget,
    /// How many nodes are requested.
    pub nodes: i32,
    /// What it is doing.
    pub state: PoolState,
    /// What keeps its nodes from coming up, as reason and message, if that is not only time.
    pub trouble: Option<String>,
    /// Whether one of its brokers has ever joined.
    pub has_joined: bool,
    /// Until when its target is paused: it is given back, and was of no use.
    pub paused_until: Option<Timestamp>,
}

/// What a burst is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// Its nodes are online or coming up.
    Active,
    /// The nodes that it does not have yet are not expected any more. Those that are online are
    /// available.
    Stuck,
    /// It is given back: none of its nodes is available to jobs.
    GivingBack,
    /// Its target has failed: nothing more is requested there, and its nodes are not expected, until an
    /// attempt succeeds.
    Failed {
        /// When the next attempt is made, or was made just now.
        until: Timestamp,
    },
}

impl PolicyState {
    /// An accepted policy with what its Bursts use. `bursts` may contain those of other policies;
    /// `used_today` are the node-hours and the cost of this day.
    pub fn of<'a>(
        policy: &BurstPolicy,
        bursts: impl IntoIterator<Item = &'a Burst>,
        used_today: (f64, f64),
    ) -> PolicyState {
        let mut used =
            Used { node_hours_today: used_today.0, cost_today: used_today.1, ..Used::default() };
        let with_nodes = |burst: &&Burst| is_burst_of(policy, burst) && !burst.is_record();
        for burst in bursts.into_iter().filter(with_nodes) {
            let of_target = used.nodes_by_target.entry(burst.spec.target.name.clone());
            let of_target = of_target.or_default();
            // While it shrinks, it has more than it should.
            let present = burst.status.as_ref().map_or(0, |status| status.counted_nodes);
            let nodes = burst.spec.nodes.max(present);
            *of_target = of_target.saturating_add(nodes);
            used.nodes = used.nodes.saturating_add(nodes);
            used.bursts = used.bursts.saturating_add(1);
        }
        PolicyState {
            name: policy.name_any(),
            spec: policy.spec.clone(),
            rejected: None,
            blocked: None,
            used,
        }
    }
}

/// Whether a policy has created a Burst.
pub fn is_burst_of(policy: &BurstPolicy, burst: &Burst) -> bool {
    burst.namespace() == policy.namespace() && burst.owning_policy() == Some(&policy.name_any())
}

impl Pool {
    /// Whether it gets nodes that it does not have yet.
    pub(crate) fn is_coming(&self) -> bool {
        match self.state {
            PoolState::Active => true,
            PoolState::Stuck | PoolState::GivingBack | PoolState::Failed { .. } => false,
        }
    }
}

/// The property of the MiniCluster's own ranks.
pub(crate) const HOME: &str = "home";

/// The property of spare ranks, which targets get first.
pub(crate) const SPARE: &str = "spare";

/// The property of the ranks that brokers of a target get, unless others are chosen for a job.
pub(crate) fn target_property(target: &BurstTarget) -> &str {
    if target.ranks.is_empty() { SPARE } else { &target.ranks }
}

/// Whether brokers of a target can have ranks of a property: one with fewer cores or GPUs than the rank table
/// says is refused when it starts. Nodes of which a target says nothing are large enough for spare ranks, and
/// for those that it names.
pub(crate) fn can_have_ranks(target: &BurstTarget, property: &str, instance: &Instance) -> bool {
    let Some((cores, gpus)) = instance.shapes.get(property) else { return true };
    let is_meant = !target.ranks.is_empty() || property == SPARE;
    let unless_meant = |lead: u32| if is_meant { u32::MAX } else { lead };
    let has_cores = match u32::try_from(target.cores) {
        Ok(cores) if cores > 0 => cores,
        _ => unless_meant(instance.lead_cores),
    };
    let has_gpus = target.gpus.and_then(|gpus| u32::try_from(gpus).ok());
    has_cores >= *cores && has_gpus.unwrap_or_else(|| unless_meant(instance.lead_gpus)) >= *gpus
}

/// Cores and GPUs of each node of a target. A broker that gets a rank has what the rank table says,
/// whatever its node has.
pub(crate) fn shape(target: &BurstTarget, property: &str, instance: &Instance) -> (u32, u32) {
    let cores = match u32::try_from(target.cores) {
        Ok(cores) if cores > 0 => cores,
        _ => instance.lead_cores,
    };
    let gpus = target.gpus.and_then(|gpus| u32::try_from(gpus).ok());
    let gpus = gpus.unwrap_or(instance.lead_gpus);
    let ranks = instance.shapes.get(property).copied().unwrap_or((cores, gpus));
    (cores.min(ranks.0), gpus.min(ranks.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_api::BurstSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use kube::Resource;

    fn burst(namespace: &str, policy: &str, target: &str, nodes: i32) -> Burst {
        let target = BurstTarget { name: target.into(), ..BurstTarget::default() };
        let spec = BurstSpec { policy: policy.into(), target, nodes, ..BurstSpec::default() };
        let mut burst = Burst::new("b", spec);
        burst.metadata.namespace = Some(namespace.into());
        let owner = BurstPolicy::new(policy, BurstPolicySpec::default());
        burst.metadata.owner_references = owner_of(owner);
        burst
    }

    fn owner_of(mut policy: BurstPolicy) -> Option<Vec<OwnerReference>> {
        policy.metadata.uid = Some("uid".into());
        policy.controller_owner_ref(&()).map(|owner| vec![owner])
    }

    #[test]
    fn a_policy_uses_what_its_own_bursts_use() {
        let mut policy = BurstPolicy::new("p", BurstPolicySpec::default());
        policy.metadata.namespace = Some("team".into());
        // A user's, who names the policy.
        let mut named = burst("team", "p", "gke", 7);
        named.metadata.owner_references = None;
        let bursts = [
            named,
            burst("team", "p", "gke", 2),
            burst("team", "p", "gke", 3),
            burst("team", "p", "eks", 1),
            burst("team", "", "gke", 7),
            burst("other", "p", "gke", 7),
        ];
        let PolicyState { name, used, .. } = PolicyState::of(&policy, &bursts, (1.5, 0.5));
        let nodes_by_target = [("eks".to_owned(), 1), ("gke".to_owned(), 5)].into();
        let (node_hours_today, cost_today) = (1.5, 0.5);
        let expected = Used { nodes: 6, nodes_by_target, bursts: 3, node_hours_today, cost_today };
        assert_eq!((name.as_str(), used), ("p", expected));
    }
}
