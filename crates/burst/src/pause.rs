//! Targets that are paused: their last Burst was of no use, and another one would follow at once, for the
//! same job.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::jiff::Timestamp;

use crate::time::seconds_after;
use crate::{Instance, Job, Memory, Pool, Unproven};

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
    jobs: &[Job],
    now: Timestamp,
) -> Paused {
    let mut paused = memory.paused.clone();
    for Unproven { policy, target, .. } in missing(memory, instance, pools, jobs) {
        paused.insert((policy.clone(), target.clone()), seconds_after(now, PAUSE_SECONDS));
    }
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

/// The Bursts that have not been of use, for the next decision. Those that already pause their target are left
/// out.
pub(crate) fn unproven(instance: &Instance, pools: &[Pool]) -> BTreeMap<String, Unproven> {
    let pools = pools.iter().filter(|it| !it.has_joined && it.paused_until.is_none());
    let pools = pools.map(|it| (&it.name, &it.policy, &it.target.name, None));
    // One that was refused says nothing about its target.
    let runs = instance.isolated.iter().filter(|it| !it.has_started && it.refusal.is_none());
    let runs = runs.filter(|it| it.paused_until.is_none());
    let runs = runs.map(|it| (&it.burst, &it.policy, &it.target, Some(it.job)));
    let of_policy =
        |(name, policy, target, job): (&String, &Option<String>, &String, Option<u64>)| {
            let policy = policy.clone()?;
            Some((name.clone(), Unproven { policy, target: target.clone(), job }))
        };
    pools.chain(runs).filter_map(of_policy).collect()
}

/// Bursts that were deleted without having been of use. A run is left out if its job does not wait any more, or
/// if another Burst runs it.
fn missing<'a>(
    memory: &'a Memory,
    instance: &Instance,
    pools: &[Pool],
    jobs: &[Job],
) -> Vec<&'a Unproven> {
    let runs = instance.isolated.iter();
    let present: HashSet<&str> =
        pools.iter().map(|it| it.name.as_str()).chain(runs.map(|it| it.burst.as_str())).collect();
    let missing = memory.unproven.iter().filter(|(name, _)| !present.contains(name.as_str()));
    let mut missing: Vec<&Unproven> = missing.map(|(_, unproven)| unproven).collect();
    if missing.iter().any(|it| it.job.is_some()) {
        let waiting: HashSet<u64> = jobs.iter().map(|job| job.id).collect();
        let running: HashSet<u64> = instance.isolated.iter().map(|run| run.job).collect();
        let is_useless = |job| waiting.contains(&job) && !running.contains(&job);
        missing.retain(|it| it.job.is_none_or(is_useless));
    }
    missing
}

#[cfg(test)]
mod tests;
