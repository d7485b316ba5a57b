//! Targets that are paused: their last Burst was of no use, and another one would follow at once, for the
//! same job.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::time::seconds_after;
use crate::{Instance, Memory, Pool};

/// How long a target is paused after a Burst none of whose brokers joined, in seconds.
pub(crate) const PAUSE_SECONDS: i64 = 600;

/// The same after one whose brokers joined, if jobs that it was created for still wait.
pub(crate) const SHORT_PAUSE_SECONDS: i64 = 120;

/// Until when targets are paused, by policy and target.
pub(crate) type Paused = BTreeMap<(String, String), Timestamp>;

/// The targets that are paused now.
pub(crate) fn paused_targets(
    memory: &Memory,
    instance: &Instance,
    pools: &[Pool],
    now: Timestamp,
) -> Paused {
    let mut paused = memory.paused.clone();
    let of_pools = pools.iter().map(|it| (&it.policy, &it.target.name, it.paused_until));
    let of_runs = instance.isolated.iter().map(|it| (&it.policy, &it.target, it.paused_until));
    for (policy, target, until) in of_pools.chain(of_runs) {
        if let (Some(policy), Some(until)) = (policy, until) {
            let known = paused.entry((policy.clone(), target.clone())).or_insert(until);
            *known = until.max(*known);
        }
    }
    // One that is later is of a clock that was wrong.
    let latest = seconds_after(now, PAUSE_SECONDS);
    paused.values_mut().for_each(|until| *until = latest.min(*until));
    paused.retain(|_, until| *until > now);
    paused
}
