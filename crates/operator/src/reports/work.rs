//! Work for leads. It describes the desired state and not actions: it can be sent repeatedly, and a
//! restarted operator or agent loses nothing.

use std::time::Duration;

use flux_operator_wire::{Drain, JobOrder, Work};
use tokio::sync::watch;

use super::Reports;

/// How long the request of a lead that waits for work is kept open: long enough that polling costs
/// little, and shorter than the 30 seconds after which some networks drop an idle connection.
pub(super) const WORK_POLL_TIMEOUT: Duration = Duration::from_secs(25);

/// The desired state that the lead of a cluster maintains.
#[derive(Default)]
pub(super) struct DesiredWork {
    /// Which ranks to drain; None before that was decided.
    drain: Option<Drain>,
    /// Whether to list pending jobs.
    pub(super) pending: bool,
    /// The jobs that are handed over.
    jobs: Vec<JobOrder>,
}

impl DesiredWork {
    /// The work for an agent; `lists` is whether the agent can list jobs, which agents of the first
    /// build cannot.
    fn work(&self, can_list: bool) -> Vec<Work> {
        let drain = self.drain.clone().map(Work::Drain);
        let pending = (self.pending && can_list).then_some(Work::ListPending);
        let has_jobs = !self.jobs.is_empty() && can_list;
        let jobs = has_jobs.then(|| Work::Jobs(self.jobs.clone()));
        drain.into_iter().chain(pending).chain(jobs).collect()
    }
}

impl DesiredWork {
    /// Sets the jobs that are handed over. Returns whether they differ.
    pub(super) fn set_jobs(&mut self, jobs: Vec<JobOrder>) -> bool {
        let differs = self.jobs != jobs;
        self.jobs = jobs;
        differs
    }
}

impl Reports {
    /// Sets the drain that the lead of the cluster with this uid maintains from now on.
    pub(crate) fn set_drain(&self, uid: &str, drain: Option<Drain>) {
        let mut clusters = self.lock();
        let cluster = clusters.entry(uid.to_owned()).or_default();
        cluster.desired.send_if_modified(|wanted| {
            let differs = wanted.drain != drain;
            wanted.drain = drain;
            differs
        });
    }

    /// The lead's current work.
    pub(super) fn work(&self, uid: &str, lists: bool) -> Vec<Work> {
        self.subscribe_work(uid).borrow().work(lists)
    }

    /// The lead's work once it differs from `known`, or `known` after `patience`.
    pub(super) async fn wait_for_other_work(
        &self,
        uid: &str,
        known: &[Work],
        lists: bool,
        patience: Duration,
    ) -> Vec<Work> {
        let mut desired = self.subscribe_work(uid);
        let other =
            desired.wait_for(|wanted| wanted.drain.is_some() && wanted.work(lists) != known);
        match tokio::time::timeout(patience, other).await {
            Ok(Ok(wanted)) => wanted.work(lists),
            // No change, or the cluster was deleted.
            Ok(Err(_)) | Err(_) => known.to_vec(),
        }
    }

    fn subscribe_work(&self, uid: &str) -> watch::Receiver<DesiredWork> {
        self.lock().entry(uid.to_owned()).or_default().desired.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Leadership;
    use flux_operator_wire::PendingPage;
    use tokio::sync::mpsc;

    fn drain(ranks: &str) -> Option<Drain> {
        Some(Drain { ranks: ranks.parse().unwrap(), since: String::new() })
    }

    fn work(drain: &Option<Drain>) -> Vec<Work> {
        drain.clone().map(Work::Drain).into_iter().collect()
    }

    fn reports() -> Reports {
        Reports::new(mpsc::unbounded_channel().0, Leadership::always())
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_lead_gets_changed_work_at_once() {
        let reports = reports();
        reports.set_drain("uid", drain("2"));
        let known = reports.work("uid", true);
        assert_eq!(known, work(&drain("2")));
        let answer = reports.wait_for_other_work("uid", &[], true, WORK_POLL_TIMEOUT).await;
        assert_eq!(answer, known);
        let change = async {
            reports.set_drain("other", drain("7"));
            reports.set_drain("uid", drain("2"));
            tokio::time::sleep(Duration::from_secs(1)).await;
            reports.set_drain("uid", drain("3"));
        };
        let start = tokio::time::Instant::now();
        let (reported, ()) = tokio::join!(
            reports.wait_for_other_work("uid", &known, true, WORK_POLL_TIMEOUT),
            change
        );
        assert_eq!(reported, work(&drain("3")));
        assert_eq!(start.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_without_a_decision_does_not_revoke_work() {
        let known = work(&drain("2"));
        assert_eq!(
            reports().wait_for_other_work("uid", &known, true, WORK_POLL_TIMEOUT).await,
            known
        );
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_are_listed_while_a_client_asks_for_them() {
        let reports = reports();
        let is_listed = |uid| reports.jobs(uid, |_| true).head.listed;
        reports.set_drain("uid", drain(""));
        assert!(!is_listed("uid"));
        let both = [work(&drain("")), vec![Work::ListPending]].concat();
        assert_eq!(reports.work("uid", true), both);
        assert_eq!(reports.work("uid", false), work(&drain("")), "an agent of the first build");
        reports.store_pending("hpc", "uid", PendingPage::default());
        assert!(is_listed("uid"));
        tokio::time::advance(Duration::from_secs(61)).await;
        reports.forget_pending();
        assert_eq!(reports.work("uid", true), work(&drain("")));
        reports.store_pending("hpc", "uid", PendingPage::default());
        assert!(!is_listed("uid"), "no client asked for it any more");
        assert!(!is_listed("other"));
    }
}
