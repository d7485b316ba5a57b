//! What a policy may still request.
//!
//! Node-hours and cost are those used so far today: a policy below its limits may request nodes, and
//! requests none once it has reached one. How long a burst will exist is not known, so nothing is set
//! aside for it.

use crate::answer::Why;
use crate::{DrainReason, PolicyState};

/// The limit of the day that a policy has reached, if it has.
pub fn exhausted(policy: &PolicyState) -> Option<DrainReason> {
    Budget::new(policy).exhausted
}

/// What a policy may still request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    nodes: i32,
    bursts: usize,
    /// Nodes at each target, in the order of the policy.
    targets: Vec<i32>,
    /// The limit of the day that is reached.
    pub(crate) exhausted: Option<DrainReason>,
}

impl Budget {
    /// What a policy has left.
    pub(crate) fn new(policy: &PolicyState) -> Budget {
        let PolicyState { spec, used, .. } = policy;
        let left = |limit: i32, used: i32| limit.saturating_sub(used).max(0);
        let at = |name: &str| used.nodes_by_target.get(name).copied().unwrap_or_default();
        let hours = spec.limits.node_hours_per_day;
        let exhausted = if hours.is_some_and(|limit| used.node_hours_today >= f64::from(limit)) {
            Some(DrainReason::LimitNodeHours)
        } else if spec.limits.cost_per_day().is_some_and(|limit| used.cost_today >= limit) {
            Some(DrainReason::LimitCost)
        } else {
            None
        };
        Budget {
            nodes: left(spec.limits.nodes, used.nodes),
            bursts: spec.limits.bursts().saturating_sub(used.bursts),
            targets: (spec.targets.iter())
                .map(|target| left(target.max_nodes, at(&target.name)))
                .collect(),
            exhausted,
        }
    }

    /// Whether the limits of the day allow more nodes.
    pub(crate) fn check_day<'a>(&self, policy: &'a PolicyState) -> Result<(), Why<'a>> {
        let (limits, policy) = (&policy.spec.limits, policy.name.as_str());
        match self.exhausted {
            None => Ok(()),
            Some(DrainReason::LimitNodeHours) => {
                let limit = limits.node_hours_per_day.unwrap_or_default();
                Err(Why::LimitNodeHours { policy, limit })
            }
            Some(DrainReason::LimitCost) => {
                Err(Why::LimitCost { policy, limit: &limits.cost_per_day })
            }
        }
    }

    /// Whether so many more nodes of a target are allowed.
    pub(crate) fn check_nodes<'a>(
        &self,
        policy: &'a PolicyState,
        target: usize,
        nodes: i32,
    ) -> Result<(), Why<'a>> {
        if nodes > self.nodes {
            return Err(Why::LimitNodes { policy: &policy.name, missing: nodes, left: self.nodes });
        }
        let left = self.targets[target];
        if nodes > left {
            let target = &policy.spec.targets[target].name;
            return Err(Why::TargetFull { target, missing: nodes, left });
        }
        Ok(())
    }

    /// Whether one more burst is allowed.
    pub(crate) fn check_bursts<'a>(&self, policy: &'a PolicyState) -> Result<(), Why<'a>> {
        if self.bursts > 0 {
            return Ok(());
        }
        Err(Why::LimitBursts { policy: &policy.name, limit: policy.spec.limits.bursts() })
    }

    /// Counts nodes that are requested, for a burst that is created if `is_new`.
    pub(crate) fn spend(&mut self, target: usize, nodes: i32, is_new: bool) {
        self.nodes -= nodes;
        self.targets[target] -= nodes;
        self.bursts -= usize::from(is_new);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::{policy, target};
    use crate::{AnswerReason, Used};

    fn reason(result: Result<(), Why<'_>>) -> Option<AnswerReason> {
        result.err().map(|why| why.reason())
    }

    #[test]
    fn a_limit_of_nodes_is_that_of_policy_and_target() {
        let mut policy = policy("p", target("t"));
        policy.used = Used {
            nodes: 10,
            nodes_by_target: BTreeMap::from([("t".into(), 13)]),
            ..Used::default()
        };
        let mut budget = Budget::new(&policy);
        assert_eq!(reason(budget.check_nodes(&policy, 0, 7)), Some(AnswerReason::LimitNodes));
        assert_eq!(reason(budget.check_nodes(&policy, 0, 4)), Some(AnswerReason::TargetFull));
        assert_eq!(reason(budget.check_nodes(&policy, 0, 3)), None);
        budget.spend(0, 2, true);
        assert_eq!(reason(budget.check_nodes(&policy, 0, 2)), Some(AnswerReason::TargetFull));
        assert_eq!(reason(budget.check_nodes(&policy, 0, 1)), None);
    }

    #[test]
    fn limits_of_the_day_count_what_was_used() {
        let cases = [
            (Some(8), "", 7.9, 99.0, None),
            (Some(8), "", 8.0, 0.0, Some(AnswerReason::LimitNodeHours)),
            (None, "2.5", 99.0, 2.4, None),
            (None, "2.5", 0.0, 2.5, Some(AnswerReason::LimitCost)),
        ];
        for (hours, cost, node_hours_today, cost_today, expected) in cases {
            let mut policy = policy("p", target("t"));
            policy.spec.limits.node_hours_per_day = hours;
            policy.spec.limits.cost_per_day = cost.into();
            policy.used = Used { node_hours_today, cost_today, ..Used::default() };
            assert_eq!(reason(Budget::new(&policy).check_day(&policy)), expected, "{policy:?}");
        }
    }

    #[test]
    fn bursts_are_limited_to_four_unless_set() {
        let mut policy = policy("p", target("t"));
        policy.used.bursts = 3;
        let mut budget = Budget::new(&policy);
        assert_eq!(reason(budget.check_bursts(&policy)), None);
        budget.spend(0, 1, true);
        assert_eq!(reason(budget.check_bursts(&policy)), Some(AnswerReason::LimitBursts));
    }
}
