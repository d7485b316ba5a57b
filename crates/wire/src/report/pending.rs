//! Pending jobs of an instance, listed in pages: there may be more than fit into one request.

use std::collections::BTreeMap;

use flux_operator_flux::IdSet;
use serde::{Deserialize, Serialize};

/// A page of the list of pending jobs, in the order in which the scheduler considers them. The jobs
/// that run meanwhile are on the first pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPage {
    /// The number of the list that this page belongs to. A newer list replaces older ones.
    pub list: u64,
    /// How many pending jobs of the list are on earlier pages.
    pub offset: u32,
    /// How many pending jobs are in the list in total.
    pub total: u32,
    /// The pending jobs.
    pub jobs: Vec<PendingJob>,
    /// How many running jobs of the list are on earlier pages.
    #[serde(default)]
    pub running_offset: u32,
    /// How many running jobs are in the list in total.
    #[serde(default)]
    pub running_total: u32,
    /// Running jobs.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub running: Vec<RunningJob>,
    /// Which ranks are in use; only on the first page. `None` if unknown: older agents do not
    /// report it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ranks: Option<RankUse>,
}

/// A pending job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingJob {
    /// Its ID, as a number.
    pub id: u64,
    /// The ID of the user who submitted it.
    #[serde(default)]
    pub user: u32,
    /// Its queue in Flux; empty if the instance has no named queues.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub queue: String,
    /// How many nodes it requests; `None` if that is left to the scheduler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nodes: Option<u32>,
    /// How many tasks it has.
    pub tasks: u32,
    /// How many cores it requests in total; `None` if it requests whole nodes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cores: Option<u32>,
    /// How many GPUs it requests: on each node if its resources contain nodes, else in total.
    #[serde(default)]
    pub gpus: u32,
    /// When it was submitted, in seconds since the Unix epoch.
    pub submitted: u64,
    /// Its time limit in seconds; 0 if it has none.
    #[serde(default)]
    pub duration: u64,
    /// When the scheduler expects to start it, in seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub estimate: Option<u64>,
    /// It does not start whatever is free: its urgency is 0, or it waits for another job.
    #[serde(default)]
    pub held: bool,
    /// It is held by its urgency alone: it waits for no other job. Older agents do not report it.
    #[serde(default)]
    pub on_hold: bool,
    /// Its attributes below `attributes.system`, such as `burstable`, as JSON.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub attributes: BTreeMap<String, serde_json::Value>,
}

/// A running job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningJob {
    /// Its ID, as a number.
    pub id: u64,
    /// The ranks that it runs on.
    pub ranks: IdSet,
}

/// The ranks of an instance that are in use, or must not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RankUse {
    /// The ranks on which a job runs.
    pub busy: IdSet,
    /// The ranks that are drained; `None` if unknown. That is queried while jobs are pending.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drained: Option<IdSet>,
    /// Whether the scheduler starts jobs strictly in order, as Flux's simple one does. That is queried
    /// while jobs are pending.
    #[serde(default)]
    pub in_order: bool,
}

/// What the jobs of an instance are at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobList {
    /// Pending jobs, in the order in which the scheduler considers them.
    pub pending: Vec<PendingJob>,
    /// Running jobs.
    pub running: Vec<RunningJob>,
    /// Which ranks are in use.
    pub ranks: Option<RankUse>,
}

/// The maximum size of a page: well below the operator's limit for one request.
const MAX_BYTES: usize = 32 * 1024;

/// The maximum size of one job. A larger pending job is listed without its attributes, and a larger
/// running job is not listed: its ranks are still busy.
const MAX_JOB_BYTES: usize = 8 * 1024;

/// The maximum size of a set of ranks on the first page, as text: enough for 2,400 ranks that are not
/// adjacent. A longer set is widened to the range from its first to its last rank.
const MAX_SET_BYTES: usize = 12 * 1024;

impl PendingPage {
    /// Splits a list into pages, each small enough for one request. An empty list is one empty
    /// page.
    pub fn split(list: u64, jobs: JobList) -> Vec<PendingPage> {
        let JobList { pending, mut running, ranks } = jobs;
        running.retain(|job| length(job) <= MAX_JOB_BYTES);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (total, running_total) = (number(pending.len()), number(running.len()));
        let first = PendingPage { list, total, running_total, ..PendingPage::default() };
        let ranks = ranks.map(RankUse::bounded);
        let bytes = ranks.as_ref().map_or(0, length);
        let mut pages = Pages { bytes, current: PendingPage { ranks, ..first }, full: Vec::new() };
        for job in running {
            pages.start_next_if_full(length(&job));
            pages.current.running.push(job);
        }
        for job in pending {
            let job = job.without_oversized_attributes();
            pages.start_next_if_full(length(&job));
            pages.current.jobs.push(job);
        }
        pages.full.push(pages.current);
        pages.full
    }

    fn next(&self) -> PendingPage {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        PendingPage {
            offset: self.offset.saturating_add(number(self.jobs.len())),
            running_offset: self.running_offset.saturating_add(number(self.running.len())),
            jobs: Vec::new(),
            running: Vec::new(),
            ranks: None,
            ..*self
        }
    }
}

/// The pages of a list that is being split.
struct Pages {
    full: Vec<PendingPage>,
    current: PendingPage,
    /// The size of the current page.
    bytes: usize,
}

impl Pages {
    /// Starts the next page if a job of this length does not fit on the current one.
    fn start_next_if_full(&mut self, length: usize) {
        let is_empty = self.current.jobs.is_empty() && self.current.running.is_empty();
        if self.bytes + length > MAX_BYTES && !is_empty {
            let next = self.current.next();
            self.full.push(std::mem::replace(&mut self.current, next));
            self.bytes = 0;
        }
        self.bytes += length;
    }
}

/// The length of an element of a page, and of the comma behind it.
fn length(element: &impl Serialize) -> usize {
    serde_json::to_vec(element).map_or(0, |text| text.len() + 1)
}

impl RankUse {
    /// The same ranks, with more added to a set whose text is too long. It is safe not to use an idle
    /// rank, unlike to use a busy or a drained one.
    #[must_use]
    pub fn bounded(self) -> RankUse {
        let RankUse { busy, drained, in_order } = self;
        RankUse { busy: bounded_set(busy), drained: drained.map(bounded_set), in_order }
    }
}

fn bounded_set(ranks: IdSet) -> IdSet {
    if ranks.to_string().len() <= MAX_SET_BYTES {
        return ranks;
    }
    let (first, last) = (ranks.first().unwrap_or_default(), ranks.last().unwrap_or_default());
    IdSet::first_n(last.saturating_add(1)).difference(&IdSet::first_n(first))
}

impl PendingJob {
    /// The job, without its attributes if they make it too large for a page.
    fn without_oversized_attributes(mut self) -> PendingJob {
        if length(&self) > MAX_JOB_BYTES {
            self.attributes.clear();
            self.queue.truncate(self.queue.floor_char_boundary(MAX_QUEUE_BYTES));
        }
        self
    }
}

/// As long as the name of a queue can sensibly be.
const MAX_QUEUE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, attribute: &str) -> PendingJob {
        let attributes = BTreeMap::from([("burstable".into(), attribute.into())]);
        PendingJob {
            id,
            nodes: Some(4),
            tasks: 4,
            submitted: 7,
            attributes,
            ..PendingJob::default()
        }
    }

    fn running(id: u64, ranks: &str) -> RunningJob {
        RunningJob { id, ranks: ranks.parse().unwrap() }
    }

    fn split(pending: Vec<PendingJob>) -> Vec<PendingPage> {
        PendingPage::split(1, JobList { pending, ..JobList::default() })
    }

    /// Every second rank: a set with a long text.
    fn sparse(count: u32) -> IdSet {
        (0..count).map(|rank| 2 * rank + 1).collect()
    }

    #[test]
    fn an_empty_list_is_one_empty_page() {
        let pages = PendingPage::split(3, JobList::default());
        assert_eq!(pages, [PendingPage { list: 3, ..PendingPage::default() }]);
    }

    #[test]
    fn every_job_is_on_one_page_and_every_page_fits_a_request() {
        let list = JobList {
            pending: (0..1000).map(|id| job(id, &"x".repeat(id as usize))).collect(),
            running: (0..1000).map(|id| running(1 << 60 | id, "0-3,700,702")).collect(),
            ranks: Some(RankUse { busy: "0-702".parse().unwrap(), ..RankUse::default() }),
        };
        let pages = PendingPage::split(1, list.clone());
        let (mut offset, mut running_offset) = (0, 0);
        for page in &pages {
            assert!(serde_json::to_vec(page).unwrap().len() <= MAX_BYTES + 200);
            assert_eq!((page.total, page.running_total), (1000, 1000));
            assert_eq!((page.offset, page.running_offset), (offset, running_offset));
            offset += page.jobs.len() as u32;
            running_offset += page.running.len() as u32;
        }
        assert_eq!(pages[0].ranks, list.ranks);
        assert!(pages[1..].iter().all(|page| page.ranks.is_none()));
        let jobs: Vec<_> = pages.iter().flat_map(|page| page.jobs.clone()).collect();
        let running: Vec<_> = pages.into_iter().flat_map(|page| page.running).collect();
        assert_eq!((jobs, running), (list.pending, list.running));
    }

    #[test]
    fn a_job_too_large_for_a_page_loses_its_attributes() {
        let pages = split(vec![job(1, &"x".repeat(MAX_BYTES)), job(2, "1")]);
        assert_eq!(pages.len(), 1);
        assert!(pages[0].jobs[0].attributes.is_empty());
        assert_eq!(pages[0].jobs[1], job(2, "1"));
    }

    #[test]
    fn sets_that_are_too_long_are_widened_and_fit_a_request() {
        let ranks = RankUse { busy: sparse(5000), drained: Some(sparse(2000)), in_order: true };
        let large = RunningJob { id: 1, ranks: sparse(5000) };
        let list = JobList {
            pending: vec![job(1, &"x".repeat(7000)); 9],
            running: vec![large, running(2, "7")],
            ranks: Some(ranks.clone()),
        };
        let pages = PendingPage::split(1, list);
        let bounded = pages[0].ranks.clone().unwrap();
        assert_eq!(bounded.busy.to_string(), "1-9999");
        assert_eq!(bounded.drained, ranks.drained);
        assert_eq!((pages[0].running_total, &pages[0].running), (1, &vec![running(2, "7")]));
        for page in pages {
            assert!(serde_json::to_vec(&page).unwrap().len() < 50 * 1024);
        }
    }

    #[test]
    fn a_page_of_an_older_agent_is_parsed() {
        let text = r#"{"list":1,"offset":0,"total":1,"jobs":[{"id":7,"tasks":4,"submitted":9}]}"#;
        let page: PendingPage = serde_json::from_str(text).unwrap();
        let job = PendingJob { id: 7, tasks: 4, submitted: 9, ..PendingJob::default() };
        let jobs = vec![job];
        assert_eq!(page, PendingPage { list: 1, total: 1, jobs, ..PendingPage::default() });
    }
}
