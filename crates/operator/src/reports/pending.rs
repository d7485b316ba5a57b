//! The jobs of an instance, assembled from the pages that its lead sends.
//!
//! The lead lists them only while a client asks for them; afterwards they are forgotten. Pending jobs
//! are kept as the text that is shown: parsed, a hostile list would take a hundred times its size.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use flux_operator_api::view::InstanceJobs;
use flux_operator_plan::view::{instance_job_text, running_instance_job};
use flux_operator_wire::{PendingPage, RankUse};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::Reports;

/// How long the lead keeps listing jobs after a client has asked for them.
const LISTING_DURATION: Duration = Duration::from_secs(60);

/// How long a list is shown. The lead sends it again every 30 seconds.
const MAX_AGE: Duration = Duration::from_secs(75);

/// The maximum size of one cluster's stored jobs: the 10,000 that a lead lists at most, with 400 bytes
/// each. Jobs with few attributes take 150.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The maximum size of the stored jobs of all clusters: 16 full lists, or 400,000 jobs in usual ones.
/// The memory limit of the shipped Deployment is chosen for it.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// What a running job takes in memory besides the text of its ranks.
const RUNNING_JOB_BYTES: usize = 64;

/// The longest that a client may wait for other jobs: as long as a lead may wait for work.
pub(crate) const MAX_WAIT: Duration = super::work::WORK_POLL_TIMEOUT;

/// The jobs of an instance as they are shown.
#[derive(Clone, Debug)]
pub(crate) struct ShownJobs {
    /// Everything except for the pending jobs.
    pub(crate) head: InstanceJobs,
    /// The JSON texts of the pending jobs, separated by commas.
    pub(crate) items: Bytes,
}

/// The jobs of an instance.
#[derive(Default)]
pub(super) struct PendingList {
    wanted_until: Option<Instant>,
    /// The last complete list.
    complete: Option<CompleteList>,
    /// The list that is being received.
    incoming: Option<IncomingList>,
}

struct CompleteList {
    /// Everything except for the pending jobs, the version, and the ranks online.
    head: Arc<InstanceJobs>,
    items: Bytes,
    bytes: usize,
    /// A hash of the content.
    hash: u64,
    received: Instant,
}

/// A list of which pages are missing.
struct IncomingList {
    number: u64,
    head: InstanceJobs,
    items: String,
    /// The number of pending jobs.
    count: usize,
    /// The memory that running jobs take.
    running_bytes: usize,
}

impl IncomingList {
    fn new(number: u64, ranks: Option<RankUse>) -> IncomingList {
        let ranks = ranks.map(RankUse::bounded);
        let busy = ranks.as_ref().map(|ranks| ranks.busy.to_string());
        let stops_at_blocked = ranks.as_ref().is_some_and(|ranks| ranks.in_order);
        let drained = ranks.and_then(|ranks| ranks.drained).map(|ranks| ranks.to_string());
        let head = InstanceJobs {
            listed: true,
            busy,
            drained,
            stops_at_blocked,
            ..InstanceJobs::default()
        };
        IncomingList { number, head, items: String::new(), count: 0, running_bytes: 0 }
    }

    fn bytes(&self) -> usize {
        self.items.capacity().saturating_add(self.running_bytes)
    }

    /// Whether the page follows those that were received.
    fn is_followed_by(&self, page: &PendingPage) -> bool {
        self.number == page.list
            && self.count == page.offset as usize
            && self.head.running.len() == page.running_offset as usize
    }

    /// Adds the jobs of a page. Returns false if not all of them fit: the jobs that the scheduler
    /// considers first are enough.
    fn add_jobs(&mut self, page: PendingPage) -> bool {
        for job in &page.running {
            let job = running_instance_job(job);
            let bytes = self.running_bytes + job.ranks.len() + RUNNING_JOB_BYTES;
            if bytes > MAX_BYTES / 2 {
                return false;
            }
            self.running_bytes = bytes;
            self.head.running.push(job);
        }
        for job in page.jobs {
            let text = instance_job_text(job);
            let bytes = self.items.len() + text.len() + 1;
            if bytes + self.running_bytes > MAX_BYTES {
                return false;
            }
            // Not twice as much as before: that may be more than the limit.
            self.items.reserve_exact(if bytes > self.items.capacity() {
                text.len() + (64 << 10)
            } else {
                0
            });
            if self.count > 0 {
                self.items.push(',');
            }
            self.items.push_str(&text);
            self.count += 1;
        }
        true
    }

    fn complete(mut self) -> CompleteList {
        self.items.shrink_to_fit();
        let InstanceJobs { busy, drained, stops_at_blocked, running, .. } = &self.head;
        let mut hasher = DefaultHasher::new();
        (busy, drained, stops_at_blocked, &self.items).hash(&mut hasher);
        for job in running {
            (job.id, &job.ranks).hash(&mut hasher);
        }
        CompleteList {
            bytes: self.bytes(),
            hash: hasher.finish(),
            head: Arc::new(self.head),
            items: self.items.into(),
            received: Instant::now(),
        }
    }
}

impl PendingList {
    fn is_wanted(&self) -> bool {
        self.wanted_until.is_some_and(|until| Instant::now() < until)
    }

    /// The last complete list, unless it is outdated.
    fn current(&self) -> Option<&CompleteList> {
        self.complete.as_ref().filter(|list| list.received.elapsed() < MAX_AGE)
    }

    /// The memory that the jobs take.
    fn bytes(&self) -> usize {
        let complete = self.complete.as_ref().map_or(0, |list| list.bytes);
        complete.saturating_add(self.incoming.as_ref().map_or(0, IncomingList::bytes))
    }

    /// Adds a page. The first page starts a new list; any other page that does not follow the last
    /// one is ignored. Returns whether that changes what is shown.
    fn add_page(&mut self, page: PendingPage) -> bool {
        let mut list = match self.incoming.take() {
            Some(list) if list.is_followed_by(&page) => list,
            _ if page.offset == 0 && page.running_offset == 0 => {
                IncomingList::new(page.list, page.ranks.clone())
            }
            _ => return false,
        };
        let (total, running_total) = (page.total as usize, page.running_total as usize);
        let fits = list.add_jobs(page);
        if fits && (list.count < total || list.head.running.len() < running_total) {
            self.incoming = Some(list);
            return false;
        }
        let list = list.complete();
        let is_changed = self.current().is_none_or(|before| before.hash != list.hash);
        self.complete = Some(list);
        is_changed
    }
}

impl Reports {
    /// The jobs in the instance of the cluster with this uid, as its lead has listed them lately. The
    /// lead is asked to list them for a while from now on. `is_live` says whether the pod with a uid
    /// exists.
    pub(crate) fn jobs(&self, uid: &str, is_live: impl Fn(&str) -> bool) -> ShownJobs {
        let (list, last) = {
            let mut clusters = self.lock();
            let cluster = clusters.entry(uid.to_owned()).or_default();
            cluster.pending.wanted_until = Some(Instant::now() + LISTING_DURATION);
            cluster
                .desired
                .send_if_modified(|wanted| !std::mem::replace(&mut wanted.pending, true));
            let list = cluster.pending.current();
            let list = list.map(|list| (Arc::clone(&list.head), list.items.clone(), list.hash));
            let now = Timestamp::now();
            let fresh = cluster.last.as_ref().filter(|said| !said.report.is_stale(now));
            (list, fresh.map(|said| (said.pod.clone(), said.report.state.online.clone())))
        };
        let online = last.filter(|(pod, _)| is_live(pod)).and_then(|(_, online)| online);
        let online = online.map(|ranks| ranks.to_string());
        let version = version(list.as_ref().map(|(_, _, hash)| *hash), online.as_deref());
        let (head, items) = match list {
            Some((head, items, _)) => ((*head).clone(), items),
            None => Default::default(),
        };
        ShownJobs { head: InstanceJobs { version, online, ..head }, items }
    }

    /// The jobs once their version is not `known`, or as they are after `patience`.
    pub(crate) async fn wait_for_other_jobs(
        &self,
        uid: &str,
        known: u64,
        patience: Duration,
        is_live: impl Fn(&str) -> bool,
    ) -> ShownJobs {
        let mut changes = self.lock().entry(uid.to_owned()).or_default().shown.subscribe();
        let other = async {
            loop {
                let jobs = self.jobs(uid, &is_live);
                // The sender is dropped when the cluster is deleted.
                if jobs.head.version != known || changes.changed().await.is_err() {
                    return jobs;
                }
            }
        };
        match tokio::time::timeout(patience, other).await {
            Ok(jobs) => jobs,
            Err(_) => self.jobs(uid, &is_live),
        }
    }

    /// Adds a page of jobs, if a client asks for them.
    pub(super) fn store_pending(&self, uid: &str, page: PendingPage) {
        let mut clusters = self.lock();
        let stored: usize = clusters.values().map(|cluster| cluster.pending.bytes()).sum();
        let Some(cluster) = clusters.get_mut(uid) else { return };
        let is_stored = cluster.pending.is_wanted() && stored < MAX_TOTAL_BYTES;
        if is_stored && cluster.pending.add_page(page) {
            cluster.shown.send_replace(());
        }
    }

    /// Forgets lists that are outdated, and those for which no client asks any more.
    pub(super) fn forget_pending(&self) {
        for cluster in self.lock().values_mut() {
            if cluster.pending.wanted_until.is_some() && !cluster.pending.is_wanted() {
                cluster.pending = PendingList::default();
                cluster.desired.send_if_modified(|wanted| std::mem::take(&mut wanted.pending));
            }
            let is_outdated = |list: &mut CompleteList| list.received.elapsed() >= MAX_AGE;
            if cluster.pending.complete.take_if(is_outdated).is_some() {
                cluster.shown.send_replace(());
            }
        }
    }
}

/// A number that changes with the content: a hash, so that it is the same for the same content also
/// after a restart. It has 53 bits, so that every JSON parser can read it.
fn version(list: Option<u64>, online: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (list, online).hash(&mut hasher);
    hasher.finish() >> 11
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Leadership;
    use crate::reports::fixture::minicluster;
    use flux_operator_wire::{InstanceState, PendingJob, RunningJob};
    use futures::FutureExt;
    use tokio::sync::mpsc;

    fn jobs(count: u64) -> Vec<PendingJob> {
        (0..count).map(|id| PendingJob { id, ..PendingJob::default() }).collect()
    }

    fn page(list: u64, offset: u32, total: u32, count: u64) -> PendingPage {
        PendingPage { list, offset, total, jobs: jobs(count), ..PendingPage::default() }
    }

    fn shown(pending: &PendingList) -> Option<usize> {
        let text = format!("[{}]", std::str::from_utf8(&pending.current()?.items).unwrap());
        let items: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        Some(items.len())
    }

    fn reports() -> Reports {
        Reports::new(mpsc::unbounded_channel().0, Leadership::always())
    }

    fn version_of(reports: &Reports) -> u64 {
        reports.jobs("uid", |_| true).head.version
    }

    /// Stores a report of the pod `pod` with these ranks online.
    fn report_online(reports: &Reports, online: &str) {
        let online = Some(online.parse().unwrap());
        let state = InstanceState { online, ..InstanceState::default() };
        reports.store_of_pod(&minicluster(), "uid", "pod", state, Timestamp::now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_the_lead_does_not_repeat_is_outdated() {
        let mut pending = PendingList::default();
        assert!(pending.add_page(page(1, 0, 1, 1)));
        tokio::time::advance(MAX_AGE / 2).await;
        assert_eq!(shown(&pending), Some(1));
        assert!(!pending.add_page(page(2, 0, 1, 1)), "it is the same");
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(shown(&pending), None);
    }

    #[test]
    fn a_list_is_complete_once_its_last_page_arrives() {
        let mut pending = PendingList::default();
        pending.add_page(page(1, 0, 0, 0));
        assert_eq!(shown(&pending), Some(0));
        assert!(!pending.add_page(page(2, 0, 4, 2)));
        assert_eq!(shown(&pending), Some(0), "the last list is kept until then");
        assert!(pending.add_page(page(2, 2, 4, 2)));
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
    fn running_jobs_are_on_the_first_pages() {
        let mut pending = PendingList::default();
        let ranks = RankUse {
            busy: "0-1".parse().unwrap(),
            drained: Some("5".parse().unwrap()),
            in_order: true,
        };
        let running = |id| RunningJob { id, ranks: "1".parse().unwrap() };
        let first = PendingPage {
            running_total: 2,
            running: vec![running(1)],
            ranks: Some(ranks),
            ..page(1, 0, 2, 0)
        };
        let second = PendingPage {
            running_offset: 1,
            running_total: 2,
            running: vec![running(2)],
            ..page(1, 0, 2, 2)
        };
        assert!(!pending.add_page(first.clone()));
        assert!(pending.add_page(second));
        let head = Arc::clone(&pending.current().unwrap().head);
        assert_eq!((head.busy.as_deref(), head.drained.as_deref()), (Some("0-1"), Some("5")));
        assert_eq!(head.running.iter().map(|job| job.id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(shown(&pending), Some(2));
        // A list of an older agent.
        assert!(pending.add_page(page(2, 0, 2, 2)));
        assert_eq!(pending.current().unwrap().head.busy, None);
    }

    #[test]
    fn the_stored_jobs_are_limited_in_size() {
        let mut pending = PendingList::default();
        let attributes = [("a".to_owned(), "x".repeat(4000).into())].into();
        let job = PendingJob { attributes, ..PendingJob::default() };
        for offset in (0..2000).step_by(10) {
            let jobs = vec![job.clone(); 10];
            pending.add_page(PendingPage {
                list: 1,
                offset,
                total: 2000,
                jobs,
                ..page(1, 0, 0, 0)
            });
            assert!(pending.bytes() <= MAX_BYTES + (64 << 10));
        }
        assert!(pending.incoming.is_none());
        let count = shown(&pending).unwrap();
        assert!((1000..1050).contains(&count), "{count}");
        assert!(pending.bytes() <= MAX_BYTES);
        let ranks: flux_operator_flux::IdSet = (0..1000).map(|rank| 2 * rank).collect();
        let running = vec![RunningJob { id: 1, ranks }; 1000];
        let hostile = PendingPage { running_total: 9999, running, ..page(2, 0, 1, 1) };
        pending.add_page(hostile);
        assert!(pending.incoming.is_none() && pending.bytes() <= MAX_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn the_stored_jobs_of_all_clusters_are_limited_in_size() {
        let reports = reports();
        let attributes = [("a".to_owned(), "x".repeat(7000).into())].into();
        let job = PendingJob { attributes, ..PendingJob::default() };
        let jobs = vec![job; 550];
        for cluster in 0..40 {
            let uid = cluster.to_string();
            reports.jobs(&uid, |_| true);
            let page = PendingPage { jobs: jobs.clone(), ..page(1, 0, 550, 0) };
            reports.store_pending(&uid, page);
        }
        let stored: usize = reports.lock().values().map(|it| it.pending.bytes()).sum();
        assert!(stored > MAX_TOTAL_BYTES && stored < MAX_TOTAL_BYTES + MAX_BYTES, "{stored}");
        assert!(!reports.jobs("39", |_| true).head.listed);
        // They become outdated, and others get the memory.
        tokio::time::advance(MAX_AGE).await;
        reports.forget_pending();
        reports.jobs("39", |_| true);
        reports.store_pending("39", page(1, 0, 1, 1));
        assert!(reports.jobs("39", |_| true).head.listed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_client_gets_other_jobs_at_once() {
        let reports = reports();
        let wait = |known| reports.wait_for_other_jobs("uid", known, MAX_WAIT, |_| true);
        let start = Instant::now();
        let known = wait(0).await.head.version;
        assert_eq!(start.elapsed(), Duration::ZERO, "version 0 is none");
        let change = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            reports.store_pending("uid", page(1, 0, 1, 1));
        };
        let (jobs, ()) = tokio::join!(wait(known), change);
        assert_eq!(start.elapsed().as_secs(), 3);
        assert!(jobs.head.listed && jobs.head.version != known && !jobs.items.is_empty());
        // The same list again does not end the wait.
        let known = jobs.head.version;
        let repeat = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            reports.store_pending("uid", page(2, 0, 1, 1));
        };
        let (jobs, ()) = tokio::join!(wait(known), repeat);
        assert_eq!(
            (jobs.head.version, start.elapsed()),
            (known, Duration::from_secs(3) + MAX_WAIT)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_client_learns_which_ranks_are_online() {
        let reports = reports();
        reports.store_pending("uid", page(1, 0, 1, 1));
        report_online(&reports, "0");
        let known = version_of(&reports);
        let mut waiting = Box::pin(reports.wait_for_other_jobs("uid", known, MAX_WAIT, |_| true));
        report_online(&reports, "0");
        assert!((&mut waiting).now_or_never().is_none(), "nothing has changed");
        report_online(&reports, "0-1");
        let jobs = waiting.now_or_never().expect("the ranks have changed");
        assert_eq!(jobs.head.online.as_deref(), Some("0-1"));
        let other = reports.jobs("uid", |pod| pod != "pod");
        assert_eq!(other.head.online, None, "its pod was deleted");
        assert_ne!(other.head.version, jobs.head.version);
        // A report that becomes too old is not shown, and that is a change.
        let waiting = reports.wait_for_other_jobs("uid", jobs.head.version, MAX_WAIT, |_| true);
        let mut waiting = Box::pin(waiting);
        assert!((&mut waiting).now_or_never().is_none());
        let long_ago = Timestamp::now() - k8s_openapi::jiff::SignedDuration::from_secs(60);
        if let Some(last) = &mut reports.lock().get_mut("uid").unwrap().last {
            last.report.received = long_ago;
        }
        reports.mark_old(Timestamp::now());
        let jobs = waiting.now_or_never().expect("the report is too old");
        assert_eq!(jobs.head.online, None);
    }

    #[test]
    fn the_same_content_has_the_same_version_after_a_restart() {
        let version_with = |count: u64| {
            let reports = reports();
            version_of(&reports);
            reports.store_pending("uid", page(count, 0, 1, count));
            version_of(&reports)
        };
        assert_eq!(version_with(1), version_with(1));
        assert_ne!(version_with(1), version_with(2));
    }
}
