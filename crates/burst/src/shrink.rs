//! Bursts that become smaller, or are drained before their idle time is over.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::limits::Budget;
use crate::supply::PoolPlan;
use crate::time::seconds_after;
use crate::{Action, Instance, Node, PolicyState, Pool, PoolState};

/// Bursts of policies at a limit of the day. Those on which jobs run are among them: in a busy queue
/// there is always one, and the next would start there.
pub(crate) fn drain_exhausted(
    policies: &[PolicyState],
    budgets: &[Budget],
    pools: &[Pool],
) -> Vec<Action> {
    let mut actions = Vec::new();
    for pool in pools {
        let policy = policies.iter().position(|it| Some(&it.name) == pool.policy.as_ref());
        let exhausted = policy.and_then(|policy| budgets[policy].exhausted);
        let Some(why) = exhausted else { continue };
        if pool.state != PoolState::GivingBack {
            actions.push(Action::Drain { burst: pool.name.clone(), why });
        }
    }
    actions
}

/// Smaller sizes of bursts whose last pods have been idle for long enough and are not needed, and
/// when the next one is.
pub(crate) fn shrink(
    instance: &Instance,
    policies: &[PolicyState],
    plans: &[PoolPlan<'_>],
    now: Timestamp,
) -> (Vec<Action>, Option<Timestamp>) {
    let mut members: BTreeMap<(&str, u32), &Node> = BTreeMap::new();
    for node in &instance.nodes {
        if let Some(member) = &node.member {
            members.insert((member.burst.as_str(), member.pod), node);
        }
    }
    let (mut actions, mut next) = (Vec::new(), None);
    for plan in plans {
        let (Some(pool), Some(policy)) = (plan.pool, plan.policy) else { continue };
        let Some(scaling) = &pool.target.scaling else { continue };
        if !plan.is_coming || plan.nodes != pool.nodes {
            continue;
        }
        let idle = i64::from(policies[policy].spec.give_back.idle_seconds());
        let needed = i32::try_from(plan.needed).unwrap_or(i32::MAX);
        let floor = scaling.min_nodes.max(needed).max(1);
        let mut size = pool.nodes;
        while size > floor {
            let pod = u32::try_from(size - 1).unwrap_or_default();
            let node = members.get(&(pool.name.as_str(), pod)).filter(|node| node.is_free);
            let Some(since) = node.and_then(|node| node.idle_since) else { break };
            let over = seconds_after(since, idle);
            if now < over {
                next = crate::time::earlier(next, over);
                break;
            }
            size -= 1;
        }
        if size < pool.nodes {
            actions.push(Action::Resize { burst: pool.name.clone(), nodes: size });
        }
    }
    (actions, next)
}

#[cfg(test)]
mod tests;
