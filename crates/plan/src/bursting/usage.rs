//! What Bursts use: seconds of nodes, hours, cost, by day.

use std::collections::BTreeMap;

use flux_operator_api::burst::{DayUsage, FinishedBurst, TargetKind};
use flux_operator_api::{Burst, BurstStatus};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::value::{RawValue, to_raw_value};

use super::life::has_finalizer;
use super::made_cluster::is_made;
use super::observed::{Presence, TargetView};

/// How long nodes are used before the status is written for that alone, in seconds.
const COUNT_SECONDS: i64 = 60;

/// How many Bursts that no longer exist are listed one by one.
const MAX_FINISHED: usize = 64;

/// How many nodes of a Burst are paid for, as far as its target shows it; `None`: as many as before. The
/// number that a target reports is limited to what was requested.
pub(super) fn used_nodes(burst: &Burst, view: &TargetView) -> Option<i32> {
    let before = burst.status.as_ref().map_or(0, |status| status.counted_nodes);
    let target = &burst.spec.target;
    let is_autoscaled = matches!(target.kind(), TargetKind::Gke(_)) && target.scaling.is_some();
    let nodes = match &view.presence {
        Presence::Nothing | Presence::ClusterDeleted => Some(0),
        _ if !is_made(burst) => view.present,
        // Whatever runs on them, machines are deleted with their cluster, and not before.
        Presence::ClusterReady | Presence::Complete if !is_autoscaled => {
            Some(burst.spec.nodes.max(before))
        }
        Presence::Complete if view.has_pods() => view.present,
        _ => None,
    };
    let most = burst.spec.nodes.max(burst.spec.leased_ranks()).max(before);
    nodes.map(|nodes| nodes.clamp(0, most.max(0)))
}

/// Counts what the nodes of a Burst have used, if their number has changed, or if it is time to.
/// `nodes`: how many it has; `None` if that is not known, so that there are as many as before.
pub(super) fn count(status: &mut BurstStatus, nodes: Option<i32>, price: f64, now: Timestamp) {
    let nodes = nodes.unwrap_or(status.counted_nodes);
    let counted = status.counted.parse::<Timestamp>().ok();
    let seconds = counted.map_or(0, |since| now.duration_since(since).as_secs().max(0));
    let has_changed = nodes != status.counted_nodes;
    // A time in the future is of a clock that was wrong: it would be waited for.
    let was_wrong = counted.is_some_and(|since| since > now);
    if !has_changed && !was_wrong && (nodes == 0 || seconds < COUNT_SECONDS) {
        return;
    }
    let used = seconds.saturating_mul(i64::from(status.counted_nodes));
    status.node_seconds_today = seconds_today(status, now);
    status.node_seconds = status.node_seconds.saturating_add(used);
    status.counted = now.to_string();
    status.counted_nodes = nodes;
    status.node_hours = two_decimals(hours(status.node_seconds));
    status.cost = cost(status.node_seconds, price);
}

/// The day of a time, in UTC.
pub fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

/// Node-hours and cost of a policy's Bursts today: of those that exist, and of those in its record.
pub fn used_today<'a>(
    usage: Option<&DayUsage>,
    bursts: impl IntoIterator<Item = &'a Burst>,
    now: Timestamp,
) -> (f64, f64) {
    let finished = finished_today(usage, now);
    let mut parts: Vec<(i64, f64)> =
        finished.iter().map(|it| (it.node_seconds, it.price.parse().unwrap_or_default())).collect();
    for burst in bursts {
        let uid = burst.uid().unwrap_or_default();
        // A run that is over is in the policy's record, maybe no longer by its uid.
        let is_recorded = burst.is_record() && !has_finalizer(burst);
        if !is_recorded && !finished.iter().any(|it| it.uid == uid) {
            parts.push((burst_seconds_today(burst, now), burst.spec.target.price()));
        }
    }
    parts.iter().fold((0.0, 0.0), |(hours_used, cost), (seconds, price)| {
        (hours_used + hours(*seconds), cost + hours(*seconds) * price)
    })
}

/// The record of a policy with a Burst that has been given back.
pub fn with_finished(usage: Option<&DayUsage>, burst: &Burst, now: Timestamp) -> DayUsage {
    let mut finished = finished_today(usage, now);
    let uid = burst.uid().unwrap_or_default();
    if !finished.iter().any(|it| it.uid == uid) {
        finished.push(FinishedBurst {
            uid,
            node_seconds: burst_seconds_today(burst, now),
            price: burst.spec.target.price_per_node_hour.clone(),
        });
    }
    while finished.len() > MAX_FINISHED {
        merge_oldest(&mut finished);
    }
    DayUsage { day: day(now), finished, ..usage.cloned().unwrap_or_default() }
}

/// The status of a policy, of which only some fields are read: it may be of another version.
pub type RawStatus = BTreeMap<String, Box<RawValue>>;

/// Adds a Burst that has been given back to the record in the status of a policy, and returns whether that
/// has changed it.
pub fn record_finished(
    status: &mut RawStatus,
    burst: &Burst,
    now: Timestamp,
) -> Result<bool, serde_json::Error> {
    let before = status.get("usage").map(|usage| serde_json::from_str::<Option<_>>(usage.get()));
    let before = before.transpose()?.flatten();
    let usage = with_finished(before.as_ref(), burst, now);
    if before.as_ref() == Some(&usage) {
        return Ok(false);
    }
    status.insert("usage".to_owned(), to_raw_value(&usage)?);
    Ok(true)
}

/// Adds the oldest entry to the next one of the same price: its Burst was deleted long ago, so that its
/// uid is not needed any more.
fn merge_oldest(finished: &mut Vec<FinishedBurst>) {
    let oldest = finished.remove(0);
    // If there are as many prices as entries, the record of one is lost.
    if let Some(next) = finished.iter_mut().find(|it| it.price == oldest.price) {
        next.node_seconds = next.node_seconds.saturating_add(oldest.node_seconds);
    }
}

fn finished_today(usage: Option<&DayUsage>, now: Timestamp) -> Vec<FinishedBurst> {
    let today = usage.filter(|usage| usage.day == day(now));
    today.map(|usage| usage.finished.clone()).unwrap_or_default()
}

/// What a Burst has used today, with what is not counted yet.
fn burst_seconds_today(burst: &Burst, now: Timestamp) -> i64 {
    let status = burst.status.clone().unwrap_or_default();
    seconds_today(&status, now)
}

/// The same of a status. What was used before midnight is of another day.
fn seconds_today(status: &BurstStatus, now: Timestamp) -> i64 {
    let Ok(counted) = status.counted.parse::<Timestamp>() else { return 0 };
    // One in the future is of a clock that was wrong, and nothing is uncounted.
    let is_today = counted > now || day(counted) == day(now);
    let since = if is_today { counted } else { midnight(now) };
    let seconds = now.duration_since(since).as_secs().max(0);
    let uncounted = seconds.saturating_mul(i64::from(status.counted_nodes));
    let before = if is_today { status.node_seconds_today } else { 0 };
    before.saturating_add(uncounted)
}

/// When the day of a time began, in UTC.
fn midnight(time: Timestamp) -> Timestamp {
    let seconds = time.as_second();
    Timestamp::from_second(seconds.saturating_sub(seconds.rem_euclid(86_400))).unwrap_or(time)
}

fn hours(seconds: i64) -> f64 {
    // A number of seconds below 2^53 is exact.
    seconds as f64 / 3600.0
}

/// A number as it is shown.
pub fn two_decimals(number: f64) -> String {
    format!("{number:.2}")
}

fn cost(seconds: i64, price: f64) -> String {
    if price > 0.0 { two_decimals(hours(seconds) * price) } else { String::new() }
}
