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

/// What the lead of a cluster should make so.
#[derive(Default)]
pub(super) struct Wanted {
    /// Which ranks take no jobs; none before that was decided.
    drain: Option<Drain>,
    /// It lists the jobs that wait.
    pub(super) pending: bool,
}

impl Wanted {
    /// As work for an agent, which may be one of the first build: that knows no lists.
    fn work(&self, lists: bool) -> Vec<Work> {
        let drain = self.drain.clone().map(Work::Drain);
        let pending = (self.pending && lists).then_some(Work::ListPending);
        drain.into_iter().chain(pending).collect()
    }
}

impl Reports {
    /// What the lead of the cluster with this uid should make so from now on.
    pub(crate) fn set_drain(&self, uid: &str, drain: Option<Drain>) {
        let mut clusters = self.lock();
        let cluster = clusters.entry(uid.to_owned()).or_default();
        cluster.wanted.send_if_modified(|wanted| {
            let differs = wanted.drain != drain;
            wanted.drain = drain;
            differs
        });
    }

    /// The lead's work now.
    pub(super) fn work(&self, uid: &str, lists: bool) -> Vec<Work> {
        self.follow(uid).borrow().work(lists)
    }

    /// The lead's work when it is other than `known`, waited for this long.
    pub(super) async fn other_work(
        &self,
        uid: &str,
        known: &[Work],
        lists: bool,
        patience: Duration,
    ) -> Vec<Work> {
        let mut wanted = self.follow(uid);
        let other = wanted.wait_for(|wanted| wanted.drain.is_some() && wanted.work(lists) != known);
        match tokio::time::timeout(patience, other).await {
            Ok(Ok(wanted)) => wanted.work(lists),
            // Nothing else, or the cluster is gone.
            Ok(Err(_)) | Err(_) => known.to_vec(),
        }
    }

    fn follow(&self, uid: &str) -> watch::Receiver<Wanted> {
        self.lock().entry(uid.to_owned()).or_default().wanted.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_wire::PendingPage;
    use tokio::sync::mpsc;

    fn drain(ranks: &str) -> Option<Drain> {
        Some(Drain { ranks: ranks.parse().unwrap(), since: String::new() })
    }

    fn work(drain: &Option<Drain>) -> Vec<Work> {
        drain.clone().map(Work::Drain).into_iter().collect()
    }

    fn reports() -> Reports {
        Reports::new(mpsc::unbounded_channel().0)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lead_that_waits_hears_of_other_work_at_once() {
        let reports = reports();
        reports.set_drain("uid", drain("2"));
        let known = reports.work("uid", true);
        assert_eq!(known, work(&drain("2")));
        let told = reports.other_work("uid", &[], true, PATIENCE).await;
        assert_eq!(told, known);
        let change = async {
            reports.set_drain("other", drain("7"));
            reports.set_drain("uid", drain("2"));
            tokio::time::sleep(Duration::from_secs(1)).await;
            reports.set_drain("uid", drain("3"));
        };
        let start = tokio::time::Instant::now();
        let (told, ()) = tokio::join!(reports.other_work("uid", &known, true, PATIENCE), change);
        assert_eq!(told, work(&drain("3")));
        assert_eq!(start.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_does_not_know_yet_takes_nothing_back() {
        let known = work(&drain("2"));
        assert_eq!(reports().other_work("uid", &known, true, PATIENCE).await, known);
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_are_listed_while_somebody_asks_for_them() {
        let reports = reports();
        reports.set_drain("uid", drain(""));
        assert_eq!(reports.pending("uid"), None);
        let both = [work(&drain("")), vec![Work::ListPending]].concat();
        assert_eq!(reports.work("uid", true), both);
        assert_eq!(reports.work("uid", false), work(&drain("")), "an agent of the first build");
        reports.keep_pending("uid", PendingPage::default());
        assert_eq!(reports.pending("uid"), Some(Vec::new()));
        tokio::time::advance(Duration::from_secs(61)).await;
        reports.forget_pending();
        assert_eq!(reports.work("uid", true), work(&drain("")));
        reports.keep_pending("uid", PendingPage::default());
        assert_eq!(reports.pending("uid"), None, "nobody asked for it any more");
        assert_eq!(reports.pending("other"), None);
    }
}
