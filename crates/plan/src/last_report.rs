//! The lead's last report: how long it is fresh, and which changes of it matter.

use flux_operator_wire::InstanceState;
use k8s_openapi::jiff::Timestamp;

use crate::time::seconds_after;

/// How long a report is fresh, in seconds. A lead reports at least every 10
/// seconds, and one that could not reach the operator retries after at most 30.
const FRESH_SECONDS: u32 = 45;

/// The state of an instance in the last report of its lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReport {
    /// The reported state.
    pub state: InstanceState,
    /// When it was received, by the operator's own clock.
    pub received: Timestamp,
}

impl LastReport {
    /// Whether it is too old to be shown as the current state.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        now >= self.fresh_until()
    }

    fn fresh_until(&self) -> Timestamp {
        seconds_after(self.received, FRESH_SECONDS)
    }
}

/// Whether a lead that started before the operator may still send its first report: the
/// operator has accepted reports only since `since`.
pub(crate) fn may_still_report(since: Timestamp, now: Timestamp) -> bool {
    now < first_report_due(since)
}

/// From when on such a lead does not report any more.
pub(crate) fn first_report_due(since: Timestamp) -> Timestamp {
    seconds_after(since, FRESH_SECONDS)
}

/// Whether a report requires a reconciliation: it changes something that decisions or
/// statuses depend on. The number of jobs is only shown on request.
pub fn needs_reconciliation(
    before: Option<&LastReport>,
    state: &InstanceState,
    now: Timestamp,
) -> bool {
    let Some(before) = before.filter(|before| !before.is_stale(now)) else { return true };
    let InstanceState {
        online,
        program_started,
        jobs: _,
        first_job,
        drained,
        blocking_job,
        lead,
        last_error,
    } = state;
    let known = &before.state;
    known.online != *online
        || known.program_started != *program_started
        || known.first_job != *first_job
        || known.drained != *drained
        || known.blocking_job != *blocking_job
        || known.lead != *lead
        || known.last_error != *last_error
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_flux::IdSet;
    use flux_operator_wire::{BlockingJob, Drained, JobCounts};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_report_becomes_stale() {
        let reported = LastReport { state: InstanceState::default(), received: at(100) };
        assert!(!reported.is_stale(at(100)));
        assert!(!reported.is_stale(at(144)));
        assert!(reported.is_stale(at(145)));
        assert!(!reported.is_stale(at(0)), "the clock was set back");
    }

    #[test]
    fn a_report_without_relevant_changes_needs_no_reconciliation() {
        let state = InstanceState { program_started: true, ..InstanceState::default() };
        let before = LastReport { state: state.clone(), received: at(0) };
        assert!(!needs_reconciliation(Some(&before), &state, at(10)));
        let jobs = Some(JobCounts { pending: 1, ..JobCounts::default() });
        let counted = InstanceState { jobs, ..state.clone() };
        assert!(!needs_reconciliation(Some(&before), &counted, at(10)));
        assert!(needs_reconciliation(None, &state, at(10)), "the first");
        assert!(needs_reconciliation(Some(&before), &state, at(100)), "the first after a while");
        for other in [
            InstanceState { online: Some(IdSet::first_n(1)), ..state.clone() },
            InstanceState { program_started: false, ..state.clone() },
            InstanceState { last_error: "e".into(), ..state.clone() },
            InstanceState { first_job: "f1".into(), ..state.clone() },
            InstanceState { drained: Some(Drained::default()), ..state.clone() },
            InstanceState { lead: Some(Default::default()), ..state.clone() },
            InstanceState { blocking_job: Some(BlockingJob { job: 1, nodes: 4 }), ..state.clone() },
        ] {
            assert!(needs_reconciliation(Some(&before), &other, at(10)), "{other:?}");
        }
    }
}
