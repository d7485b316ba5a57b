//! Changes of a status: how soon it must be written, and which Events report it.

use flux_operator_api::condition::ConditionType;
use flux_operator_api::minicluster::{Lease, LeaseState};
use flux_operator_api::reason::AnyReason;
use flux_operator_api::{MiniClusterStatus, Reason};
use flux_operator_flux::IdSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::verdict::find;

/// How soon a status must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It has not changed.
    None,
    /// Only counts or wording have changed: more changes are likely in a moment.
    Soon,
    /// It is not urgent: it is written when there is time.
    Later,
    /// A user may be waiting for it.
    Now,
}

/// How urgent the change from `before` to `now` is. The first status can wait a
/// moment too, unless the manifest is refused: the pods are about to start.
pub(crate) fn urgency(before: Option<&MiniClusterStatus>, now: &MiniClusterStatus) -> Urgency {
    let Some(before) = before.filter(|before| !before.conditions.is_empty()) else {
        let accepted = find(&now.conditions, ConditionType::Accepted);
        let refused = accepted.is_some_and(|accepted| accepted.status == "False");
        return if refused { Urgency::Now } else { Urgency::Soon };
    };
    if before == now {
        return Urgency::None;
    }
    let has_changed_condition = now.conditions.iter().any(|condition| {
        let before = before.conditions.iter().find(|before| before.type_ == condition.type_);
        before.is_none_or(|before| {
            before.status != condition.status || before.reason != condition.reason
        })
    });
    // A joiner waits for them.
    if before.leases != now.leases {
        return Urgency::Now;
    }
    // Pods that start one after the other are not worth a write each.
    let starting_phases = ["Pending", "Starting", ""];
    let starts = starting_phases.contains(&before.phase.as_str())
        && starting_phases.contains(&now.phase.as_str());
    // Most often it is about to finish.
    let ready = find(&now.conditions, ConditionType::Ready);
    let is_finishing =
        ready.is_some_and(|ready| AnyReason::read(&ready.reason) == Reason::LeadNotReady);
    let refused =
        find(&now.conditions, ConditionType::Accepted).is_some_and(|c| c.status != "True");
    if has_changed_condition && (!(starts || is_finishing) || refused) {
        Urgency::Now
    } else {
        Urgency::Soon
    }
}

/// An Event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Whether nothing is wrong: the Event is `Normal`, otherwise a `Warning`.
    pub is_normal: bool,
    /// The condition it is about.
    pub condition: &'static str,
    /// The reason of the condition.
    pub reason: String,
    /// The message of the condition.
    pub note: String,
}

/// The Events for a change of the status.
pub(crate) fn new_events(
    before: Option<&MiniClusterStatus>,
    now: &MiniClusterStatus,
) -> Vec<NewEvent> {
    let conditions = before.map_or(&[][..], |before| &before.conditions);
    let leases = before.map_or(&[][..], |before| &before.leases);
    let mut events = condition_events(conditions, &now.conditions);
    events.extend(lease_events(leases, &now.leases));
    events
}

/// Ranks that were leased, are given back, or are free again.
fn lease_events(before: &[Lease], now: &[Lease]) -> Vec<NewEvent> {
    let ranks = |lease: &Lease| lease.rank_list().to_set();
    let held = |leases: &[Lease], of: &Lease, state: Option<LeaseState>| {
        let same = leases.iter().filter(|it| it.holder == of.holder);
        let same = same.filter(|it| state.is_none_or(|state| it.state == state));
        IdSet::union_all(&same.map(ranks).collect::<Vec<_>>())
    };
    let event = |reason: &str, lease: &Lease, ranks: &IdSet, what: &str| NewEvent {
        is_normal: true,
        condition: ConditionType::Ready.as_str(),
        reason: reason.to_owned(),
        note: format!("ranks {ranks} {what} {}/{}", lease.namespace, lease.name),
    };
    let changed = now.iter().filter_map(|lease| {
        let new = ranks(lease).difference(&held(before, lease, Some(lease.state)));
        (!new.is_empty()).then(|| match lease.state {
            LeaseState::Active => event("Leased", lease, &new, "are leased to"),
            LeaseState::Leaving => event("GivenBack", lease, &new, "are given back by"),
        })
    });
    let removed = before.iter().filter_map(|lease| {
        let free = ranks(lease).difference(&held(now, lease, None));
        (!free.is_empty()).then(|| event("Released", lease, &free, "are free again, after"))
    });
    changed.chain(removed).collect()
}

/// The Events for a change of the conditions.
pub(crate) fn condition_events(before: &[Condition], now: &[Condition]) -> Vec<NewEvent> {
    let mut reported = vec![ConditionType::Accepted, ConditionType::Succeeded];
    // That a finished cluster is not ready is not worth an Event.
    if find(now, ConditionType::Succeeded).is_some_and(|over| over.status == "Unknown") {
        reported.insert(1, ConditionType::Ready);
    }
    reported
        .into_iter()
        .filter_map(|kind| event_for(kind, find(before, kind), find(now, kind)?))
        .collect()
}

fn event_for(kind: ConditionType, before: Option<&Condition>, now: &Condition) -> Option<NewEvent> {
    // A cluster can be ready although something is wrong.
    let reason = AnyReason::read(&now.reason).known();
    let is_progress = reason.is_some_and(Reason::is_progress);
    let good = now.status == "True" && (kind != ConditionType::Ready || is_progress);
    let same_status = before.is_some_and(|before| before.status == now.status);
    let same_reason = before.is_some_and(|before| before.reason == now.reason);
    let reported = match (kind, now.status.as_str()) {
        (_, "Unknown") => false,
        // That a manifest is valid is expected, unless it was not before.
        (ConditionType::Accepted, "True") => before.is_some() && !same_status,
        // Why it does not start: no capacity, no image, not in time.
        (ConditionType::Ready, "False") => {
            let is_expected =
                reason.is_some_and(|it| it.is_progress() || it.is_waiting_for_quota());
            !same_reason && !is_expected
        }
        // That a cluster has shrunk shows in its size.
        (ConditionType::Ready, "True") => {
            let before = before.and_then(|before| AnyReason::read(&before.reason).known());
            let shrank = matches!(before, Some(Reason::Draining | Reason::DrainTimeout));
            !same_status || !(same_reason || shrank && reason == Some(Reason::Quorum))
        }
        _ => !same_status,
    };
    reported.then(|| NewEvent {
        is_normal: good,
        condition: kind.as_str(),
        reason: now.reason.clone(),
        note: now.message.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_api::reason::Topic;
    use serde_json::json;

    fn conditions(ready: [&str; 2], succeeded: [&str; 2]) -> Vec<Condition> {
        let condition = |kind: &str, [status, reason]: [&str; 2]| {
            json!({ "type": kind, "status": status, "reason": reason, "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let accepted = condition("Accepted", ["True", "Accepted"]);
        let all = json!([accepted, condition("Ready", ready), condition("Succeeded", succeeded)]);
        serde_json::from_value(all).unwrap()
    }

    fn reasons(before: &[Condition], now: &[Condition]) -> Vec<String> {
        condition_events(before, now).into_iter().map(|events| events.reason).collect()
    }

    #[test]
    fn a_successful_run_has_one_event_per_stage() {
        let starts = conditions(["False", "PodsPending"], ["Unknown", "NotFinished"]);
        let runs = conditions(["True", "Quorum"], ["Unknown", "NotFinished"]);
        let ends = conditions(["False", "Completed"], ["True", "Completed"]);
        assert_eq!(reasons(&[], &starts), [""; 0]);
        assert_eq!(reasons(&starts, &runs), ["Quorum"]);
        assert_eq!(reasons(&runs, &runs), [""; 0]);
        assert_eq!(reasons(&runs, &ends), ["Completed"]);
    }

    #[test]
    fn why_a_cluster_does_not_start_is_an_event_when_it_changes() {
        let starts = conditions(["False", "BrokersStarting"], ["Unknown", "NotFinished"]);
        let unschedulable = conditions(["False", "Unschedulable"], ["Unknown", "NotFinished"]);
        assert_eq!(reasons(&starts, &unschedulable), ["Unschedulable"]);
        assert_eq!(reasons(&unschedulable, &unschedulable), [""; 0]);
        assert_eq!(reasons(&unschedulable, &starts), [""; 0]);
    }

    /// Which reasons are Events follows from their properties; this test lists them by name.
    #[test]
    fn transient_reasons_of_readiness_are_not_events() {
        let shown = |reason: &&Reason| {
            let waits = [Reason::Suspended, Reason::WaitingForQueue];
            reason.topics().contains(&Topic::Readiness) || waits.contains(reason)
        };
        let of = |status, reason: &Reason| {
            condition_events(
                &[],
                &conditions([status, reason.as_str()], ["Unknown", "NotFinished"]),
            )
        };
        let shown: Vec<&Reason> = Reason::ALL.iter().filter(shown).collect();
        let quiet: Vec<&str> = shown
            .iter()
            .filter(|reason| of("False", reason).is_empty())
            .map(|reason| reason.as_str())
            .collect();
        let steps = ["NotCreated", "PodsPending", "Starting", "BrokersStarting", "LeadNotReady"];
        // Some are not reasons of an unready cluster.
        let joining = ["Joined", "Joining", "Leaving", "StaleTable"];
        let expected = ["Suspended", "WaitingForQueue"].into_iter().chain(joining);
        let expected = expected.chain(["Quorum", "Draining"]);
        assert_eq!(quiet, expected.chain(steps).collect::<Vec<_>>());
        let good: Vec<&&Reason> =
            shown.iter().filter(|reason| of("True", reason)[0].is_normal).collect();
        assert!(good.contains(&&&Reason::Quorum) && good.contains(&&&Reason::Draining));
        assert!(good.iter().all(|reason| reason.is_progress()), "{good:?}");
    }

    #[test]
    fn shrinking_and_its_result_are_events() {
        let ready = |reason| conditions(["True", reason], ["Unknown", "NotFinished"]);
        let (full, drains, forced) = (ready("Quorum"), ready("Draining"), ready("DrainTimeout"));
        assert_eq!(reasons(&full, &drains), ["Draining"]);
        assert_eq!(reasons(&drains, &drains), [""; 0]);
        assert_eq!(reasons(&drains, &full), [""; 0]);
        let reported = condition_events(&drains, &forced);
        assert_eq!((reported[0].reason.as_str(), reported[0].is_normal), ("DrainTimeout", false));
    }

    #[test]
    fn changed_counts_are_not_urgent_and_changed_conditions_are() {
        let status = |phase: &str, ready: [&str; 2]| MiniClusterStatus {
            phase: phase.into(),
            conditions: conditions(ready, ["Unknown", "NotFinished"]),
            ..MiniClusterStatus::default()
        };
        let starting = status("Starting", ["False", "BrokersStarting"]);
        let running = status("Running", ["True", "Quorum"]);
        let counted = MiniClusterStatus { ready: "1/4".into(), ..starting.clone() };
        assert_eq!(urgency(None, &starting), Urgency::Soon);
        assert_eq!(urgency(Some(&starting), &starting), Urgency::None);
        assert_eq!(urgency(Some(&starting), &counted), Urgency::Soon);
        assert_eq!(urgency(Some(&counted), &running), Urgency::Now);
    }

    #[test]
    fn leases_are_events_of_the_lender() {
        let lease = |ranks: &str, state| Lease {
            ranks: ranks.into(),
            holder: "uid".into(),
            namespace: "hpc".into(),
            name: "joiner".into(),
            table: "t".into(),
            since: "2026-01-01T00:00:00Z".into(),
            state,
            invitation: None,
        };
        let active = [lease("2-3", LeaseState::Active)];
        let leaving = [lease("2-3", LeaseState::Leaving)];
        let shown = |before: &[Lease], now: &[Lease]| {
            let events = lease_events(before, now).into_iter();
            events.map(|it| format!("{}: {}", it.reason, it.note)).collect::<Vec<_>>()
        };
        assert_eq!(shown(&[], &active), ["Leased: ranks 2-3 are leased to hpc/joiner"]);
        assert_eq!(shown(&active, &active), [""; 0]);
        assert_eq!(shown(&active, &leaving), ["GivenBack: ranks 2-3 are given back by hpc/joiner"]);
        assert_eq!(shown(&leaving, &[]), ["Released: ranks 2-3 are free again, after hpc/joiner"]);
        let smaller = [lease("2", LeaseState::Active), lease("3", LeaseState::Leaving)];
        assert_eq!(shown(&active, &smaller), ["GivenBack: ranks 3 are given back by hpc/joiner"]);
        let freed = ["Released: ranks 3 are free again, after hpc/joiner"];
        assert_eq!(shown(&smaller, &smaller[..1]), freed);
    }
}
