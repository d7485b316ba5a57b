//! The pending jobs of an instance, assembled from the pages that its lead sends.
//!
//! The lead lists them only while a client asks for them; afterwards they are forgotten. They are
//! kept as the text that is shown: parsed, a hostile list would take a hundred times its size.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_plan::view::instance_job_text;
use flux_operator_wire::PendingPage;
use tokio::time::Instant;

use super::Reports;

/// How long the lead keeps listing jobs after a client has asked for them.
const LISTING_DURATION: Duration = Duration::from_secs(60);

/// How long a list is shown. The lead sends it again every 30 seconds.
const MAX_AGE: Duration = Duration::from_secs(75);

/// The maximum size of one cluster's stored jobs.
const MAX_BYTES: usize = 256 * 1024;

/// The maximum size of the stored jobs of all clusters.
const MAX_TOTAL_BYTES: usize = 16 * 1024 * 1024;

/// Jobs, each as the JSON text that is shown.
pub(crate) type JobTexts = Arc<[Box<str>]>;

/// The pending jobs of an instance.
#[derive(Default)]
pub(super) struct PendingList {
    wanted_until: Option<Instant>,
    /// The last complete list, and when it was received.
    complete: Option<(JobTexts, Instant)>,
    /// The list that is being received.
    incoming: Option<IncomingList>,
}

/// A list of which pages are missing.
struct IncomingList {
    number: u64,
    jobs: Vec<Box<str>>,
    bytes: usize,
}

impl PendingList {
    fn is_wanted(&self) -> bool {
        self.wanted_until.is_some_and(|until| Instant::now() < until)
    }

    /// The last complete list, unless it is outdated.
    fn current(&self) -> Option<JobTexts> {
        let (jobs, received) = self.complete.as_ref()?;
        (received.elapsed() < MAX_AGE).then(|| Arc::clone(jobs))
    }

    /// The memory that the jobs take.
    fn bytes(&self) -> usize {
        let complete = self.complete.iter().flat_map(|(jobs, _)| jobs.iter());
        let incoming = self.incoming.as_ref().map_or(0, |list| list.bytes);
        complete.fold(incoming, |sum, job| sum.saturating_add(job.len()))
    }

    /// Adds a page. A page with offset 0 starts a new list; any other page that does not follow the
    /// last one is ignored.
    fn add_page(&mut self, page: PendingPage) {
        let PendingPage { list: number, offset, total, jobs } = page;
        let follows =
            |list: &IncomingList| list.number == number && list.jobs.len() == offset as usize;
        let mut list = match self.incoming.take() {
            Some(list) if follows(&list) => list,
            _ if offset == 0 => IncomingList { number, jobs: Vec::new(), bytes: 0 },
            _ => return,
        };
        for job in jobs {
            let text = instance_job_text(job);
            list.bytes = list.bytes.saturating_add(text.len());
            if list.bytes > MAX_BYTES {
                // The jobs that the scheduler considers first are enough.
                return self.complete(list.jobs);
            }
            list.jobs.push(text);
        }
        if list.jobs.len() >= total as usize {
            self.complete(list.jobs);
        } else {
            self.incoming = Some(list);
        }
    }

    fn complete(&mut self, jobs: Vec<Box<str>>) {
        self.complete = Some((jobs.into(), Instant::now()));
    }
}

impl Reports {
    /// The pending jobs in the instance of the cluster with this uid, as its lead has listed them
    /// lately; None if it has not. The lead is asked to list them for a while from now on.
    pub(crate) fn pending(&self, uid: &str) -> Option<JobTexts> {
        let mut clusters = self.lock();
        let cluster = clusters.get_mut(uid)?;
        cluster.pending.wanted_until = Some(Instant::now() + LISTING_DURATION);
        cluster.desired.send_if_modified(|wanted| !std::mem::replace(&mut wanted.pending, true));
        cluster.pending.current()
    }

    /// Adds a page of pending jobs, if a client asks for them.
    pub(super) fn store_pending(&self, uid: &str, page: PendingPage) {
        let mut clusters = self.lock();
        let stored: usize = clusters.values().map(|cluster| cluster.pending.bytes()).sum();
        let Some(cluster) = clusters.get_mut(uid) else { return };
        if cluster.pending.is_wanted() && stored < MAX_TOTAL_BYTES {
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
    use flux_operator_wire::PendingJob;

    fn jobs(count: u64) -> Vec<PendingJob> {
        (0..count).map(|id| PendingJob { id, ..PendingJob::default() }).collect()
    }

    fn page(list: u64, offset: u32, total: u32, count: u64) -> PendingPage {
        PendingPage { list, offset, total, jobs: jobs(count) }
    }

    fn shown(pending: &PendingList) -> Option<usize> {
        pending.current().map(|jobs| jobs.len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_the_lead_does_not_repeat_is_outdated() {
        let mut pending = PendingList::default();
        pending.add_page(page(1, 0, 1, 1));
        tokio::time::advance(MAX_AGE / 2).await;
        assert_eq!(shown(&pending), Some(1));
        tokio::time::advance(MAX_AGE / 2).await;
        assert_eq!(shown(&pending), None);
    }

    #[test]
    fn a_list_is_complete_once_its_last_page_arrives() {
        let mut pending = PendingList::default();
        pending.add_page(page(1, 0, 0, 0));
        assert_eq!(shown(&pending), Some(0));
        pending.add_page(page(2, 0, 4, 2));
        assert_eq!(shown(&pending), Some(0), "the last list is kept until then");
        pending.add_page(page(2, 2, 4, 2));
        assert_eq!(shown(&pending), Some(4));
        // A page is missing, and then a new list starts.
        pending.add_page(page(3, 0, 6, 2));
        pending.add_page(page(3, 4, 6, 2));
        pending.add_page(page(4, 0, 1, 1));
        assert_eq!(shown(&pending), Some(1));
        // A list that is longer than it claims is accepted as it is.
        pending.add_page(page(5, 0, 1, 3));
        assert_eq!(shown(&pending), Some(3));
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
        assert!(shown(&pending).unwrap() < 70);
        assert!(pending.bytes() <= MAX_BYTES);
    }
}
