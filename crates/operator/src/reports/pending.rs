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

/// The maximum number of pending jobs: as many as a lead lists.
const MAX_JOBS: usize = 10_000;

/// The maximum size of the stored jobs of all clusters: 16 full lists, or 400,000 jobs in usual ones.
/// The memory limit of the shipped Deployment is chosen for it.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// The same of the clusters of one namespace, so that one user does not keep all others from being listed.
const MAX_NAMESPACE_BYTES: usize = MAX_TOTAL_BYTES / 4;

/// A list up to this size, of some 1,700 jobs, is stored even if those of other namespaces have taken
/// everything.
const SMALL_BYTES: usize = 256 * 1024;

/// The maximum size of such lists, beyond that of all: 64 of them.
const MAX_SMALL_TOTAL_BYTES: usize = 16 * 1024 * 1024;

/// The same of the clusters of one namespace.
const MAX_SMALL_NAMESPACE_BYTES: usize = MAX_SMALL_TOTAL_BYTES / 4;

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
    /// The namespace of the cluster, once a page was received.
    namespace: String,
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
    started: Instant,
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
        IncomingList {
            number,
            head,
            items: String::new(),
            count: 0,
            running_bytes: 0,
            started: Instant::now(),
        }
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

    /// Adds the jobs of a page. Returns false if not all of them fit into so many bytes: the jobs that
    /// the scheduler considers first are enough.
    fn add_jobs(&mut self, page: PendingPage, max_bytes: usize) -> bool {
        for job in &page.running {
            let job = running_instance_job(job);
            let bytes = self.running_bytes + job.ranks.len() + RUNNING_JOB_BYTES;
            if bytes > max_bytes / 2 {
                return false;
            }
            self.running_bytes = bytes;
            self.head.running.push(job);
        }
        for job in page.jobs {
            let text = instance_job_text(job);
            let bytes = self.items.len() + text.len() + 1;
            if bytes + self.running_bytes > max_bytes || self.count >= MAX_JOBS {
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

    /// Adds a page to a list of at most so many bytes. The first page starts a new list; any other page
    /// that does not follow the last one is ignored. Returns whether that changes what is shown.
    fn add_page(&mut self, page: PendingPage, max_bytes: usize) -> bool {
        let mut list = match self.incoming.take() {
            Some(list) if list.is_followed_by(&page) => list,
            _ if page.offset == 0 && page.running_offset == 0 => {
                IncomingList::new(page.list, page.ranks.clone())
            }
            _ => return false,
        };
        let (total, running_total) = (page.total as usize, page.running_total as usize);
        let fits = list.add_jobs(page, max_bytes);
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
    pub(super) fn store_pending(&self, namespace: &str, uid: &str, page: PendingPage) {
        let mut clusters = self.lock();
        let lists = clusters.iter().map(|(uid, cluster)| (uid.as_str(), &cluster.pending));
        let max_bytes = max_bytes(lists, namespace, uid);
        let Some(cluster) = clusters.get_mut(uid) else { return };
        // A list that is cut to nothing would say that no job waits.
        if !cluster.pending.is_wanted() || max_bytes < SMALL_BYTES {
            return;
        }
        namespace.clone_into(&mut cluster.pending.namespace);
        if cluster.pending.add_page(page, max_bytes) {
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
            cluster.pending.incoming.take_if(|list| list.started.elapsed() >= MAX_AGE);
            let is_outdated = |list: &mut CompleteList| list.received.elapsed() >= MAX_AGE;
            if cluster.pending.complete.take_if(is_outdated).is_some() {
                cluster.shown.send_replace(());
            }
        }
    }
}

/// How large the list of a cluster may be beside those of the others. Its own former one is replaced.
fn max_bytes<'a>(
    lists: impl Iterator<Item = (&'a str, &'a PendingList)>,
    namespace: &str,
    uid: &str,
) -> usize {
    let (mut total, mut of_namespace, mut small_of_namespace) = (0_usize, 0_usize, 0_usize);
    for (_, list) in lists.filter(|(other, _)| *other != uid) {
        let bytes = list.bytes();
        total = total.saturating_add(bytes);
        if list.namespace == namespace {
            of_namespace = of_namespace.saturating_add(bytes);
            small_of_namespace = small_of_namespace.saturating_add(bytes.min(SMALL_BYTES));
        }
    }
    let may_be_small = total + SMALL_BYTES <= MAX_TOTAL_BYTES + MAX_SMALL_TOTAL_BYTES
        && small_of_namespace + SMALL_BYTES <= MAX_SMALL_NAMESPACE_BYTES;
    let least = if may_be_small { SMALL_BYTES } else { 0 };
    let left = MAX_TOTAL_BYTES.saturating_sub(total).max(least);
    MAX_BYTES.min(left).min(MAX_NAMESPACE_BYTES.saturating_sub(of_namespace))
}

/// A number that changes with the content: a hash, so that it is the same for the same content also
/// after a restart. It has 53 bits, so that every JSON parser can read it.
fn version(list: Option<u64>, online: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (list, online).hash(&mut hasher);
    hasher.finish() >> 11
}

#[cfg(test)]
mod tests;
