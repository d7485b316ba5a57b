//! The measurements of connecting, by name and as a table.

use serde::Serialize;

use crate::summary::{Measures, Samples, table};

/// Measurements, in seconds.
#[derive(Serialize)]
pub(crate) struct Figures {
    pub(super) rounds: usize,
    pub(super) operators: Vec<OperatorFigures>,
}

#[derive(Serialize, Default)]
pub(super) struct OperatorFigures {
    pub(super) name: String,
    /// With a joiner.
    pub(super) joiner: JobTimes,
    /// With brokers in bare pods, which join the same kind of lender.
    pub(super) by_hand: JobTimes,
    /// From the lease in the lender's status until the joiner is Joined.
    pub(super) lease_to_joined: Samples,
    /// Rounds that did not finish in time.
    pub(super) lost: u32,
}

/// How long the pending job took until it had finished.
#[derive(Serialize, Default)]
pub(crate) struct JobTimes {
    /// Since the last of the missing brokers had started.
    pub(crate) since_brokers: Samples,
    /// Since the joiner, or the first of the bare pods, was created.
    pub(crate) since_creation: Samples,
}

impl JobTimes {
    /// Adds the times of another.
    pub(crate) fn merge(&mut self, other: JobTimes) {
        let JobTimes { since_brokers, since_creation } = other;
        self.since_brokers.merge(since_brokers);
        self.since_creation.merge(since_creation);
    }
}

impl OperatorFigures {
    pub(super) fn merge(&mut self, other: OperatorFigures) {
        let OperatorFigures { name: _, joiner, by_hand, lease_to_joined, lost } = other;
        self.joiner.merge(joiner);
        self.by_hand.merge(by_hand);
        self.lease_to_joined.merge(lease_to_joined);
        self.lost += lost;
    }
}

impl Figures {
    /// All measurements by name, including the ratios of joiners to brokers started by hand.
    pub(crate) fn measures(&self) -> Measures {
        let mut measures = Measures::new();
        for operator in &self.operators {
            let OperatorFigures { name, joiner, by_hand, lease_to_joined, lost } = operator;
            let mut set = |what: &str, value: Option<f64>| {
                measures.extend(value.map(|value| (format!("connect.{name}.{what}"), value)));
            };
            for (what, ours, theirs) in [
                ("since_brokers", &joiner.since_brokers, &by_hand.since_brokers),
                ("since_creation", &joiner.since_creation, &by_hand.since_creation),
            ] {
                set(what, ours.median());
                set(&format!("by_hand_{what}"), theirs.median());
                set(&format!("{what}_over_by_hand"), ratio(ours, theirs));
            }
            set("lease_to_joined", lease_to_joined.median());
            set("lost", Some(f64::from(*lost)));
        }
        measures
    }

    /// The measurements as a table.
    pub(crate) fn table(&self) -> String {
        let mut rows = vec![["", "by hand", "joiner", "ratio"].map(str::to_owned).to_vec()];
        for operator in &self.operators {
            let OperatorFigures { name, joiner, by_hand, lease_to_joined, lost } = operator;
            for (what, theirs, ours) in [
                (
                    "brokers started, until the job has finished",
                    &by_hand.since_brokers,
                    &joiner.since_brokers,
                ),
                ("created, until the job has finished", &by_hand.since_creation, {
                    &joiner.since_creation
                }),
            ] {
                let ratio = ratio(ours, theirs).map_or("-".into(), |ratio| format!("{ratio:.2}"));
                rows.push(vec![format!("{name}: {what}"), theirs.text(2), ours.text(2), ratio]);
            }
            let alone = |what: &str, value: String| {
                vec![format!("{name}: {what}"), "-".into(), value, "-".into()]
            };
            rows.push(alone("lease granted, until Joined", lease_to_joined.text(2)));
            rows.push(alone("lost rounds", lost.to_string()));
        }
        let title = format!(
            "a pending job of 4 nodes, 2 of which join, {} rounds, seconds: median (worst)",
            self.rounds
        );
        table(&title, &rows)
    }
}

/// `None` if the divisor is too short: start times are multiples of 10 ms, and with fluxlet the job
/// has finished after two or three of them.
pub(crate) fn ratio(one: &Samples, other: &Samples) -> Option<f64> {
    const SHORTEST: f64 = 0.1;
    let other = other.median().filter(|seconds| *seconds >= SHORTEST)?;
    Some(one.median()? / other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(joiner: f64, by_hand: f64) -> Figures {
        let times = |seconds: f64| {
            let mut times = JobTimes::default();
            times.since_brokers.add(seconds);
            times
        };
        let operator = OperatorFigures {
            name: "ours".into(),
            joiner: times(joiner),
            by_hand: times(by_hand),
            ..OperatorFigures::default()
        };
        Figures { rounds: 1, operators: vec![operator] }
    }

    #[test]
    fn a_joiner_is_compared_with_brokers_started_by_hand() {
        let measures = figures(0.6, 0.5).measures();
        assert!((measures["connect.ours.since_brokers_over_by_hand"] - 1.2).abs() < 1e-9);
        assert!(!measures.contains_key("connect.ours.since_creation_over_by_hand"));
    }

    #[test]
    fn a_few_clock_ticks_are_not_compared() {
        let measures = figures(0.06, 0.03).measures();
        assert!(!measures.contains_key("connect.ours.since_brokers_over_by_hand"));
        assert_eq!(measures["connect.ours.since_brokers"], 0.06);
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        let table = figures(0.6, 0.5).table();
        assert!(table.contains("| 0.50    | 0.60   | 1.20  |"), "{table}");
        assert!(table.contains("| -       | -      | -     |"), "{table}");
    }
}
