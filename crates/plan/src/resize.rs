//! Following `spec.size`: the cluster grows at once, and shrinks when no job is lost by it.
//!
//! The highest ranks are removed. First Flux drains them, so that no new job starts on them;
//! when the jobs that run there have finished, or after [`DRAIN_TIMEOUT_SECONDS`], the Job is made smaller.
//! The start time is noted on the Job, so that a restarted operator knows it.

use flux_operator_api::Reason;
use flux_operator_flux::IdSet;
use flux_operator_wire::Drained;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::joining::busy_ranks;
use crate::kubernetes::Rendering;
use crate::observed::{Observed, is_lead, is_terminating};
use crate::rank_table::RankTable;
use crate::status::ready_since;
use crate::time::seconds_after;

/// The annotation of the Job with the time since which ranks are drained.
pub(crate) const DRAINING_ANNOTATION: &str = "flux-framework.org/draining";

/// How long to wait for jobs on ranks that are to be removed, in seconds: as long as
/// most autoscalers wait before they remove a node.
const DRAIN_TIMEOUT_SECONDS: i64 = 300;

/// Seconds after which a lead that has not reported is treated as absent: while the operator is
/// not reachable, a lead retries every 30 seconds.
const FIRST_REPORT_SECONDS: i64 = 40;

/// What to do about the Job's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    /// Nothing.
    Keep,
    /// It already has the wanted size again: remove the note that ranks are drained.
    Cancel,
    /// Change it now.
    Apply,
    /// Change it now although jobs run on ranks that are removed: the limit is reached.
    Force(Shrinking),
    /// Start to drain, and note the time.
    Begin(Shrinking),
    /// Wait for jobs.
    Wait(Shrinking),
}

/// A cluster that is shrinking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrinking {
    /// The ranks to remove.
    pub ranks: IdSet,
    /// Ranks on which jobs still run, once the lead has reported them.
    pub busy: Option<IdSet>,
    /// The end of the wait.
    pub until: Timestamp,
    /// The limit is reached.
    pub forced: bool,
}

impl Shrinking {
    /// The condition's reason.
    pub fn reason(&self) -> Reason {
        if self.forced { Reason::DrainTimeout } else { Reason::Draining }
    }
}

impl std::fmt::Display for Shrinking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shrinking { ranks, busy, until: _, forced } = self;
        match (forced, busy) {
            (false, None) => write!(f, "draining ranks {ranks}: waiting for the lead"),
            (false, Some(busy)) => {
                write!(
                    f,
                    "draining ranks {ranks}: waiting for jobs on {busy}, at most {DRAIN_TIMEOUT_SECONDS} s"
                )
            }
            (true, None) => write!(
                f,
                "ranks {ranks} were removed although the lead did not report them as drained within {DRAIN_TIMEOUT_SECONDS} s"
            ),
            (true, Some(busy)) => write!(
                f,
                "ranks {ranks} were removed although jobs still ran on {busy} after {DRAIN_TIMEOUT_SECONDS} s"
            ),
        }
    }
}

/// What the lead reports about draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeadState<'a> {
    /// There is no lead to ask.
    Absent,
    /// It should report before then.
    Expected(Timestamp),
    /// It reports, and has drained these ranks.
    Reports(Option<&'a Drained>),
}

/// Whether there is a lead that can drain ranks.
pub(crate) fn lead_state<'a>(
    rendering: &Rendering<'_>,
    observed: &'a Observed,
    job: &Job,
) -> LeadState<'a> {
    let suspended = job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
    let mut leads = observed.job_pods().filter(|pod| is_lead(pod) && !is_terminating(pod));
    let (Some(ready), Some(_), false) =
        (leads.find_map(ready_since), &rendering.settings.report_url, suspended)
    else {
        return LeadState::Absent;
    };
    let until = seconds_after(ready.max(observed.watching_since), FIRST_REPORT_SECONDS);
    match &observed.report {
        // However old it is: without it ranks would be removed while jobs run on them.
        Some(report) => LeadState::Reports(report.state.drained.as_ref()),
        None if observed.now < until => LeadState::Expected(until),
        None => LeadState::Absent,
    }
}

/// What to do about the size of a Job, which should be `want`.
pub(crate) fn resize(job: &Job, want: u32, lead: LeadState<'_>, now: Timestamp) -> Resize {
    let spec = job.spec.as_ref();
    let count = |count: Option<i32>| u32::try_from(count.unwrap_or_default()).unwrap_or_default();
    let have = count(spec.and_then(|spec| spec.completions));
    let since = draining_since(job);
    if want >= have {
        let has_right_size = want == have && count(spec.and_then(|spec| spec.parallelism)) == want;
        return match (has_right_size, since) {
            (true, None) => Resize::Keep,
            (true, Some(_)) => Resize::Cancel,
            (false, _) => Resize::Apply,
        };
    }
    let ranks = IdSet::first_n(have).difference(&IdSet::first_n(want));
    let until = seconds_after(since.unwrap_or(now), DRAIN_TIMEOUT_SECONDS);
    let drained = match lead {
        LeadState::Absent => return Resize::Apply,
        LeadState::Expected(_) => None,
        LeadState::Reports(drained) => drained,
    };
    let busy = drained.zip(since).and_then(|(drained, since)| busy_ranks(drained, since, &ranks));
    let shrinking = Shrinking { ranks, busy, until, forced: false };
    match since {
        None => Resize::Begin(shrinking),
        Some(_) if shrinking.busy.as_ref().is_some_and(IdSet::is_empty) => Resize::Apply,
        Some(_) if now >= until => Resize::Force(Shrinking { forced: true, ..shrinking }),
        Some(_) => Resize::Wait(shrinking),
    }
}

impl Resize {
    /// The Job's own ranks that are not requested, and since when jobs on them are waited for.
    pub(crate) fn unused_ranks(
        &self,
        job: &Job,
        ranks: &RankTable,
        now: Timestamp,
    ) -> (IdSet, Option<Timestamp>) {
        let since = match self {
            Resize::Begin(_) => Some(now),
            Resize::Wait(_) => draining_since(job),
            Resize::Keep | Resize::Cancel | Resize::Apply | Resize::Force(_) => None,
        };
        let used = ranks.first_rank().saturating_add(ranks.size);
        (ranks.own_ranks().difference(&IdSet::first_n(used)), since)
    }

    /// The shrinking to report, if any.
    pub(crate) fn shrinking(&self) -> Option<&Shrinking> {
        match self {
            Resize::Begin(shrinking) | Resize::Wait(shrinking) | Resize::Force(shrinking) => {
                Some(shrinking)
            }
            Resize::Keep | Resize::Cancel | Resize::Apply => None,
        }
    }

    /// When the decision changes with time alone.
    pub(crate) fn requeue_at(&self, lead: LeadState<'_>) -> Option<Timestamp> {
        match (self, lead) {
            (Resize::Begin(waits) | Resize::Wait(waits), LeadState::Expected(until)) => {
                Some(waits.until.min(until))
            }
            (Resize::Begin(waits) | Resize::Wait(waits), _) => Some(waits.until),
            _ => None,
        }
    }
}

/// Since when ranks are drained.
fn draining_since(job: &Job) -> Option<Timestamp> {
    job.annotations().get(DRAINING_ANNOTATION)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_wire::Drain;
    use serde_json::{Value, json};

    const START: &str = "2026-01-01T00:00:00Z";

    fn after(seconds: i64) -> Timestamp {
        seconds_after(START.parse().unwrap(), seconds)
    }

    fn job(size: i32, since: Option<&str>) -> Job {
        let annotations: Value =
            since.map(|since| json!({ DRAINING_ANNOTATION: since })).unwrap_or_default();
        serde_json::from_value(json!({
            "metadata": { "annotations": annotations },
            "spec": { "parallelism": size, "completions": size, "template": {} },
        }))
        .unwrap()
    }

    fn drained(ranks: &str, busy: &str) -> Drained {
        let asked = Drain { ranks: ranks.parse().unwrap(), since: START.into() };
        Drained { asked, busy: busy.parse().unwrap() }
    }

    /// One word for a decision, and the ranks that are waited for.
    fn shown(resize: &Resize) -> String {
        let word = match resize {
            Resize::Keep => "keep",
            Resize::Cancel => "stay",
            Resize::Apply => "now",
            Resize::Force(_) => "force",
            Resize::Begin(_) => "begin",
            Resize::Wait(_) => "wait",
        };
        match resize.shrinking() {
            Some(Shrinking { ranks, busy: Some(busy), .. }) => format!("{word} {ranks}: {busy}"),
            Some(Shrinking { ranks, .. }) => format!("{word} {ranks}"),
            None => word.into(),
        }
    }

    #[test]
    fn what_to_do_about_a_size() {
        let (old, idle) = (drained("3", ""), drained("2-3", ""));
        let (busy, beyond) = (drained("2-3", "3"), drained("2-3", "2"));
        let reports = |drained| LeadState::Reports(Some(drained));
        let silent = LeadState::Reports(None);
        let another = Some("2026-01-01T00:00:01Z");
        let start = Some(START);
        let table = [
            // The Job's size, since when it drains, the wanted size, the lead, seconds.
            (2, None, 2, silent, 0, "keep"),
            (2, None, 4, silent, 0, "now"),
            (2, None, 4, LeadState::Absent, 0, "now"),
            (4, None, 2, LeadState::Absent, 0, "now"),
            (4, None, 2, silent, 0, "begin 2-3"),
            // An answer about another time does not count.
            (4, None, 2, reports(&idle), 0, "begin 2-3"),
            (4, another, 2, reports(&idle), 2, "wait 2-3"),
            (4, None, 2, LeadState::Expected(after(40)), 0, "begin 2-3"),
            (4, start, 2, LeadState::Expected(after(40)), 5, "wait 2-3"),
            (4, start, 2, LeadState::Absent, 5, "now"),
            (4, start, 2, silent, 5, "wait 2-3"),
            (4, start, 2, reports(&old), 5, "wait 2-3"),
            (4, start, 2, reports(&busy), 5, "wait 2-3: 3"),
            (4, start, 2, reports(&idle), 5, "now"),
            // A partial change of mind: rank 2 stays, and its job with it.
            (4, start, 3, reports(&beyond), 5, "now"),
            (4, start, 1, reports(&idle), 5, "wait 1-3"),
            // A complete change of mind.
            (4, start, 4, reports(&busy), 5, "stay"),
            (4, start, 5, reports(&busy), 5, "now"),
            // The limit.
            (4, start, 2, reports(&busy), 299, "wait 2-3: 3"),
            (4, start, 2, reports(&busy), 300, "force 2-3: 3"),
            (4, start, 2, silent, 300, "force 2-3"),
            (4, start, 2, reports(&idle), 300, "now"),
        ];
        for (have, since, want, lead, seconds, expected) in table {
            let decided = resize(&job(have, since), want, lead, after(seconds));
            let case = format!("{have} to {want}, {since:?}, {lead:?}, {seconds}");
            assert_eq!(shown(&decided), expected, "{case}");
        }
    }

    #[test]
    fn parallelism_changed_by_another_client_is_corrected() {
        let mut job = job(2, None);
        job.spec.as_mut().unwrap().parallelism = Some(1);
        assert_eq!(resize(&job, 2, LeadState::Absent, after(0)), Resize::Apply);
    }

    fn table(size: u32) -> RankTable {
        let pool = json!({ "name": "cloud", "size": 2 });
        let spec = json!({ "size": size, "maxSize": 5, "containers": [{}],
            "flux": { "bursting": { "clusters": [pool] } } });
        RankTable::of("fs", &serde_json::from_value(spec).unwrap(), Default::default()).unwrap()
    }

    #[test]
    fn unused_ranks_are_drained_since_the_start_of_the_wait() {
        let work = |job: &Job, want, seconds| {
            let decided = resize(job, want, LeadState::Reports(None), after(seconds));
            let (ranks, since) = decided.unused_ranks(job, &table(want), after(seconds));
            (ranks.to_string(), since)
        };
        assert_eq!(work(&job(4, None), 2, 0), ("2-4".into(), Some(after(0))));
        assert_eq!(work(&job(4, Some(START)), 2, 7), ("2-4".into(), Some(after(0))));
        assert_eq!(work(&job(2, None), 2, 8), ("2-4".into(), None));
        assert_eq!(work(&job(2, None), 5, 9), (String::new(), None));
    }

    #[test]
    fn a_requeue_is_needed_only_while_waiting() {
        let job = job(4, Some(START));
        let ask = |want, lead| resize(&job, want, lead, after(1)).requeue_at(lead);
        assert_eq!(ask(2, LeadState::Reports(None)), Some(after(300)));
        assert_eq!(ask(2, LeadState::Expected(after(40))), Some(after(40)));
        assert_eq!(ask(4, LeadState::Reports(None)), None);
    }
}
