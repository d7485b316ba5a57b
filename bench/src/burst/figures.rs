//! The measurements of bursts, by name and as tables.

use serde::Serialize;

use super::{decision, pending};
use crate::connect::{JobTimes, ratio};
use crate::summary::{Measures, Samples, table};

/// Measurements, in seconds unless they say otherwise.
#[derive(Serialize, Default)]
pub(crate) struct Figures {
    pub(super) decision: decision::Figures,
    pub(super) rounds: usize,
    /// With a policy.
    pub(super) burst: BurstTimes,
    /// With brokers in bare pods.
    pub(super) by_hand: JobTimes,
    pub(super) pending: Option<pending::Figures>,
    /// Rounds that did not finish in time.
    pub(super) lost: u32,
}

/// How long a job took for which a policy got nodes.
#[derive(Serialize, Default)]
pub(super) struct BurstTimes {
    /// From its submission until the joiner was created.
    request: Samples,
    /// From the start of the last broker until it had finished.
    since_brokers: Samples,
    /// The sum of these.
    share: Samples,
    /// From its submission until it had finished.
    since_submission: Samples,
}

impl BurstTimes {
    pub(super) fn add(&mut self, request: f64, since_brokers: f64, since_submission: f64) {
        self.request.add(request);
        self.since_brokers.add(since_brokers);
        self.share.add(request + since_brokers);
        self.since_submission.add(since_submission);
    }

    fn merge(&mut self, other: BurstTimes) {
        let BurstTimes { request, since_brokers, share, since_submission } = other;
        self.request.merge(request);
        self.since_brokers.merge(since_brokers);
        self.share.merge(share);
        self.since_submission.merge(since_submission);
    }
}

impl Figures {
    pub(super) fn merge(&mut self, other: Figures) {
        let Figures { decision: _, rounds: _, burst, by_hand, pending: _, lost } = other;
        self.burst.merge(burst);
        self.by_hand.merge(by_hand);
        self.lost += lost;
    }

    /// All measurements by name.
    pub(crate) fn measures(&self) -> Measures {
        let Figures { decision, rounds, burst, by_hand, pending, lost } = self;
        let mut measures = Measures::new();
        let mut set = |what: &str, value: Option<f64>| {
            measures.extend(value.map(|value| (format!("burst.{what}"), value)));
        };
        set("decision_milliseconds", decision.refused.median());
        set("requests_milliseconds", decision.requested.median());
        set("situation_milliseconds", decision.situation.median());
        set("request", burst.request.median());
        set("since_brokers", burst.since_brokers.median());
        set("share", burst.share.median());
        set("since_submission", burst.since_submission.median());
        set("since_brokers_over_by_hand", ratio(&burst.since_brokers, &by_hand.since_brokers));
        set("since_submission_over_by_hand", {
            ratio(&burst.since_submission, &by_hand.since_creation)
        });
        set("lost", (*rounds > 0).then_some(f64::from(*lost)));
        if let Some(pending) = pending {
            set("known_seconds", Some(pending.known_seconds));
            set("listing_cpu_seconds", Some(pending.listing_cpu_seconds));
            set("cores", Some(pending.cores));
        }
        measures
    }

    /// The measurements as tables.
    pub(crate) fn table(&self) -> String {
        let Figures { decision, rounds, burst, by_hand, pending, lost } = self;
        let row = |what: &str, value: String| vec![what.to_owned(), value];
        let mut rows = vec![
            row("", "median (worst)".into()),
            row("a decision, long queue, ms", decision.refused.text(2)),
            row("a decision that requests nodes for every job, ms", decision.requested.text(2)),
            row("from the operator's answer to its arguments, ms", decision.situation.text(2)),
        ];
        if let Some(pending::Figures { known_seconds, listing_cpu_seconds, cores }) = pending {
            let asked = "all jobs known after they are asked for, s";
            rows.push(row(asked, format!("{known_seconds:.2}")));
            let cpu = "CPU of agent and children for that, s";
            rows.push(row(cpu, format!("{listing_cpu_seconds:.2}")));
            rows.push(row("cores that they use afterwards", format!("{cores:.3}")));
        }
        let mut text = table("10,000 pending jobs; a decision in CPU time", &rows);
        if *rounds == 0 {
            return text;
        }
        let mut rows = vec![["", "by hand", "burst", "ratio"].map(str::to_owned).to_vec()];
        let none = Samples::default();
        for (what, theirs, ours) in [
            ("submitted, until the joiner is created", &none, &burst.request),
            (
                "brokers started, until the job has finished",
                &by_hand.since_brokers,
                &burst.since_brokers,
            ),
            ("both: our share", &none, &burst.share),
            ("submitted, until the job has finished", &by_hand.since_creation, {
                &burst.since_submission
            }),
        ] {
            let ratio = ratio(ours, theirs).map_or("-".into(), |ratio| format!("{ratio:.2}"));
            rows.push(vec![what.to_owned(), theirs.text(2), ours.text(2), ratio]);
        }
        rows.push(vec!["lost rounds".into(), "-".into(), lost.to_string(), "-".into()]);
        text += &table(
            &format!(
                "a job of 4 nodes for which a policy gets 2, {rounds} rounds, seconds: median (worst)"
            ),
            &rows,
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_what_kubernetes_does_not_take() {
        let mut figures = Figures { rounds: 1, ..Figures::default() };
        figures.burst.add(0.25, 0.5, 2.0);
        figures.by_hand.since_creation.add(1.0);
        let measures = figures.measures();
        assert!((measures["burst.share"] - 0.75).abs() < 1e-9);
        assert!((measures["burst.since_submission_over_by_hand"] - 2.0).abs() < 1e-9);
        assert!(!measures.contains_key("burst.known_seconds"));
        assert!(figures.table().contains("| 1.00    | 2.00  | 2.00  |"), "{}", figures.table());
    }
}
