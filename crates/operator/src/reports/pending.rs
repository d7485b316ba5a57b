//! The pending jobs of an instance, assembled from the pages that its lead sends.
//!
//! The lead lists them only while a client asks for them; afterwards they are forgotten.

use std::time::Duration;

use flux_operator_wire::{PendingJob, PendingPage};
use tokio::time::Instant;

use super::Reports;

/// How long the lead keeps listing jobs after a client has asked for them.
const LISTING_DURATION: Duration = Duration::from_secs(60);

/// The maximum size of one cluster's stored jobs, as JSON.
const MAX_BYTES: usize = 256 * 1024;

/// The pending jobs of an instance.
#[derive(Default)]
pub(super) struct PendingList {
    wanted_until: Option<Instant>,
    /// The last complete list.
    complete: Option<Vec<PendingJob>>,
    /// The list that is being received, and its size in bytes.
    incoming: Option<(PendingPage, usize)>,
}

impl PendingList {
    fn is_wanted(&self) -> bool {
        self.wanted_until.is_some_and(|until| Instant::now() < until)
    }

    /// Adds a page. A page that does not follow the last one is ignored.
    fn add_page(&mut self, page: PendingPage) {
        let follows = |coming: &PendingPage| {
            coming.list == page.list && coming.jobs.len() == page.offset as usize
        };
        let (mut list, mut bytes) = match self.incoming.take() {
            Some((coming, bytes)) if follows(&coming) => (coming, bytes),
            _ if page.offset == 0 => (PendingPage { jobs: Vec::new(), ..page.clone() }, 0),
            _ => return,
        };
        let total = page.total as usize;
        for job in page.jobs {
            bytes += serde_json::to_vec(&job).map_or(MAX_BYTES, |text| text.len());
            if bytes > MAX_BYTES {
                // The jobs that the scheduler considers first are enough.
                self.complete = Some(list.jobs);
                return;
            }
            list.jobs.push(job);
        }
        if list.jobs.len() >= total {
            self.complete = Some(list.jobs);
        } else {
            self.incoming = Some((list, bytes));
        }
    }
}

impl Reports {
    /// The pending jobs in the instance of the cluster with this uid, as its lead has listed them;
    /// None if it has not yet. The lead is asked to list them for a while from now on.
    pub(crate) fn pending(&self, uid: &str) -> Option<Vec<PendingJob>> {
        let mut clusters = self.lock();
        let cluster = clusters.get_mut(uid)?;
        cluster.pending.wanted_until = Some(Instant::now() + LISTING_DURATION);
        cluster.desired.send_if_modified(|wanted| !std::mem::replace(&mut wanted.pending, true));
        cluster.pending.complete.clone()
    }

    /// Adds a page of pending jobs, if a client asks for them.
    pub(super) fn store_pending(&self, uid: &str, page: PendingPage) {
        let mut clusters = self.lock();
        let Some(cluster) = clusters.get_mut(uid) else { return };
        if cluster.pending.is_wanted() {
            cluster.pending.add_page(page);
        }
    }

    /// Forgets the jobs of clusters for which no client asks any more.
    pub(super) fn forget_pending(&self) {
        for cluster in self.lock().values_mut() {
            if cluster.pending.wanted_until.is_some() && !cluster.pending.is_wanted() {
                cluster.pending = PendingList::default();
                cluster.desired.send_if_modified(|wanted| std::mem::take(&mut wanted.pending));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(count: u64) -> Vec<PendingJob> {
        (0..count).map(|id| PendingJob { id, ..PendingJob::default() }).collect()
    }

    fn page(list: u64, offset: u32, total: u32, count: u64) -> PendingPage {
        PendingPage { list, offset, total, jobs: jobs(count) }
    }

    #[test]
    fn a_list_is_complete_once_its_last_page_arrives() {
        let mut pending = PendingList::default();
        pending.add_page(page(1, 0, 0, 0));
        assert_eq!(pending.complete, Some(Vec::new()));
        pending.add_page(page(2, 0, 4, 2));
        assert_eq!(pending.complete, Some(Vec::new()), "the last list is kept until then");
        pending.add_page(page(2, 2, 4, 2));
        assert_eq!(pending.complete.as_ref().unwrap().len(), 4);
        // A page is missing, and then a new list starts.
        pending.add_page(page(3, 0, 6, 2));
        pending.add_page(page(3, 4, 6, 2));
        pending.add_page(page(4, 0, 1, 1));
        assert_eq!(pending.complete.as_ref().unwrap().len(), 1);
        // A list that is longer than it claims is accepted as it is.
        pending.add_page(page(5, 0, 1, 3));
        assert_eq!(pending.complete.as_ref().unwrap().len(), 3);
    }

    #[test]
    fn the_stored_jobs_are_limited_in_size() {
        let mut pending = PendingList::default();
        let attributes = [("a".to_owned(), "x".repeat(4000).into())].into();
        let job = PendingJob { attributes, ..PendingJob::default() };
        for offset in (0..1000).step_by(10) {
            let jobs = vec![job.clone(); 10];
            pending.add_page(PendingPage { list: 1, offset, total: 1000, jobs });
        }
        assert!(pending.incoming.is_none());
        assert!(pending.complete.unwrap().len() < 70);
    }
}
