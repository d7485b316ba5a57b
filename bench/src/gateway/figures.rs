//! The measurements of the gateway, by name and as a table.

use serde::Serialize;

use crate::connect::{JobTimes, ratio};
use crate::summary::{Measures, table};

/// Measurements, in seconds.
#[derive(Serialize, Default)]
pub(crate) struct Figures {
    pub(super) rounds: usize,
    /// With an invitation, by the gateway.
    pub(super) invited: JobTimes,
    /// With brokers in bare pods, which connect to the lead's own node port.
    pub(super) by_hand: JobTimes,
    /// Rounds that did not finish in time.
    pub(super) lost: u32,
}

impl Figures {
    pub(super) fn merge(&mut self, other: Figures) {
        let Figures { rounds: _, invited, by_hand, lost } = other;
        self.invited.merge(invited);
        self.by_hand.merge(by_hand);
        self.lost += lost;
    }

    /// All measurements by name, including the ratios of invitations to brokers started by hand.
    pub(crate) fn measures(&self) -> Measures {
        let Figures { rounds: _, invited, by_hand, lost } = self;
        let mut measures = Measures::new();
        let mut set = |what: &str, value: Option<f64>| {
            measures.extend(value.map(|value| (format!("gateway.{what}"), value)));
        };
        for (what, ours, theirs) in [
            ("since_brokers", &invited.since_brokers, &by_hand.since_brokers),
            ("since_creation", &invited.since_creation, &by_hand.since_creation),
        ] {
            set(what, ours.median());
            set(&format!("by_hand_{what}"), theirs.median());
            set(&format!("{what}_over_by_hand"), ratio(ours, theirs));
        }
        set("lost", Some(f64::from(*lost)));
        measures
    }

    /// The measurements as a table.
    pub(crate) fn table(&self) -> String {
        let Figures { rounds, invited, by_hand, lost } = self;
        let mut rows = vec![["", "by hand", "invitation", "ratio"].map(str::to_owned).to_vec()];
        for (what, theirs, ours) in [
            (
                "brokers started, until the job has finished",
                &by_hand.since_brokers,
                &invited.since_brokers,
            ),
            ("created, until the job has finished", &by_hand.since_creation, {
                &invited.since_creation
            }),
        ] {
            let ratio = ratio(ours, theirs).map_or("-".into(), |ratio| format!("{ratio:.2}"));
            rows.push(vec![what.to_owned(), theirs.text(2), ours.text(2), ratio]);
        }
        rows.push(vec!["lost rounds".into(), "-".into(), lost.to_string(), "-".into()]);
        let title = format!(
            "a pending job of 4 nodes, 2 of which are in another Kubernetes cluster, {rounds} \
             rounds, seconds: median (worst)"
        );
        table(&title, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_is_compared_with_brokers_started_by_hand() {
        let mut figures = Figures { rounds: 1, ..Figures::default() };
        figures.invited.since_creation.add(1.5);
        figures.by_hand.since_creation.add(1.0);
        let measures = figures.measures();
        assert!((measures["gateway.since_creation_over_by_hand"] - 1.5).abs() < 1e-9);
        assert_eq!(measures["gateway.lost"], 0.0);
        assert!(!measures.contains_key("gateway.since_brokers"));
        assert!(
            figures.table().contains("| 1.00    | 1.50       | 1.50  |"),
            "{}",
            figures.table()
        );
    }
}
