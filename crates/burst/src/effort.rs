//! How much work a decision may be. Users choose how many jobs, constraints, policies and targets there
//! are, and each job is compared with each target: one namespace could keep the controller busy for
//! minutes.

use crate::constraint::Constraint;
use crate::{Instance, PolicyState, Pool};

/// How many comparisons a decision may take. One about 10,000 jobs of many shapes, with two policies of
/// two targets each, takes some 200,000; this many take some tenths of a second.
const MAX_COMPARISONS: u64 = 20_000_000;

/// The comparisons that are left.
pub(crate) struct Effort {
    left: u64,
    /// Pairs of a target, and a property of ranks or a Burst: each job may be compared with all.
    targets: u64,
    /// Nodes that may have to be compared one by one.
    nodes: u64,
}

impl Effort {
    pub(crate) fn new(instance: &Instance, policies: &[PolicyState], pools: &[Pool]) -> Effort {
        let targets: usize = policies.iter().map(|policy| policy.spec.targets.len()).sum();
        let of_target = instance.lendable.len().saturating_add(pools.len()).saturating_add(1);
        let free = instance.nodes.iter().filter(|node| node.is_free).count();
        Effort {
            left: MAX_COMPARISONS,
            targets: count(targets.saturating_mul(of_target)),
            nodes: count(free),
        }
    }

    /// Whether enough is left for a job with this constraint, which is then used.
    pub(crate) fn spend(&mut self, constraint: &Constraint) -> bool {
        let nodes = if constraint.is_about_nodes() { self.nodes } else { 0 };
        let places = self.targets.saturating_add(nodes).saturating_add(1);
        let needed = places.saturating_mul(count(constraint.size()));
        match self.left.checked_sub(needed) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{instance, policy, pool, target};

    #[test]
    fn a_job_costs_what_it_is_compared_with() {
        let ranks = Constraint::parse(r#"{"and": [{"ranks": ["9"]}, {"properties": ["a", "b"]}]}"#);
        let policies = [policy("p", target("t"))];
        let mut effort = Effort::new(&instance(8, 4), &policies, &[]);
        assert!(effort.spend(&Constraint::Any));
        // One target, for ranks with and without a property, and itself.
        assert_eq!(effort.left, MAX_COMPARISONS - 3);
        assert!(effort.spend(&ranks.unwrap()));
        // Four free nodes too. The constraint has two elements, one of them with two.
        assert_eq!(effort.left, MAX_COMPARISONS - 3 - 7 * 5);
        effort.left = 2;
        assert!(!effort.spend(&Constraint::Any));
        // Each Burst may have nodes for it.
        let bursts = ["a", "b"].map(|name| pool(name, "p", target("t"), 1));
        let mut effort = Effort::new(&instance(8, 4), &policies, &bursts);
        assert!(effort.spend(&Constraint::Any));
        assert_eq!(effort.left, MAX_COMPARISONS - 5);
    }
}
