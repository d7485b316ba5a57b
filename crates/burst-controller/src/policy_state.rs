//! What the Bursts of a policy use.

use flux_operator_api::burst::DayUsage;
use flux_operator_api::{Burst, BurstPolicy};
use flux_operator_burst::{PolicyState, is_burst_of};
use flux_operator_plan::bursting::used_today;
use k8s_openapi::jiff::Timestamp;

/// A policy with what its Bursts use: those of `bursts` that it has created, and those in `usage`, its
/// record of the day.
pub fn policy_state<'a>(
    policy: &BurstPolicy,
    bursts: impl IntoIterator<Item = &'a Burst>,
    usage: Option<&DayUsage>,
    now: Timestamp,
) -> PolicyState {
    let own: Vec<&Burst> = bursts.into_iter().filter(|it| is_burst_of(policy, it)).collect();
    let used = used_today(usage, own.iter().copied(), now);
    PolicyState::of(policy, own, used)
}
