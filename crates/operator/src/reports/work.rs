//! Work for the leads. It says how things should be, not what to do: it can be said
//! again and again, and an operator or an agent that comes back has lost nothing.

use std::time::Duration;

use flux_operator_wire::{Drain, Work};
use tokio::sync::watch;

use super::Reports;

/// How long a lead that waits for work is kept waiting: long enough that asking
/// costs nothing, and below the 30 seconds after which some networks forget a
/// connection on which nothing is said.
pub(super) const PATIENCE: Duration = Duration::from_secs(25);

impl Reports {
    /// What the lead of the cluster with this uid should make so from now on.
    pub(crate) fn set_drain(&self, uid: &str, drain: Option<Drain>) {
        let mut clusters = self.lock();
        let cluster = clusters.entry(uid.to_owned()).or_default();
        cluster.drain.send_if_modified(|said| {
            let differs = *said != drain;
            *said = drain;
            differs
        });
    }

    /// The lead's work now.
    pub(super) fn work(&self, uid: &str) -> Vec<Work> {
        work(&self.follow(uid).borrow())
    }

    /// The lead's work when it is other than `known`, waited for this long.
    pub(super) async fn other_work(
        &self,
        uid: &str,
        known: &[Work],
        patience: Duration,
    ) -> Vec<Work> {
        let mut drain = self.follow(uid);
        let other = drain.wait_for(|drain| drain.is_some() && work(drain) != known);
        match tokio::time::timeout(patience, other).await {
            Ok(Ok(drain)) => work(&drain),
            // Nothing else, or the cluster is gone.
            Ok(Err(_)) | Err(_) => known.to_vec(),
        }
    }

    fn follow(&self, uid: &str) -> watch::Receiver<Option<Drain>> {
        self.lock().entry(uid.to_owned()).or_default().drain.subscribe()
    }
}

fn work(drain: &Option<Drain>) -> Vec<Work> {
    drain.clone().map(Work::Drain).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    fn drain(ranks: &str) -> Option<Drain> {
        Some(Drain { ranks: ranks.parse().unwrap(), since: String::new() })
    }

    fn reports() -> Reports {
        Reports::new(mpsc::unbounded_channel().0)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lead_that_waits_hears_of_other_work_at_once() {
        let reports = reports();
        reports.set_drain("uid", drain("2"));
        let known = reports.work("uid");
        assert_eq!(known, work(&drain("2")));
        let told = reports.other_work("uid", &[], PATIENCE).await;
        assert_eq!(told, known);
        let change = async {
            reports.set_drain("other", drain("7"));
            reports.set_drain("uid", drain("2"));
            tokio::time::sleep(Duration::from_secs(1)).await;
            reports.set_drain("uid", drain("3"));
        };
        let start = tokio::time::Instant::now();
        let (told, ()) = tokio::join!(reports.other_work("uid", &known, PATIENCE), change);
        assert_eq!(told, work(&drain("3")));
        assert_eq!(start.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_does_not_know_yet_takes_nothing_back() {
        let known = work(&drain("2"));
        assert_eq!(reports().other_work("uid", &known, PATIENCE).await, known);
    }
}
