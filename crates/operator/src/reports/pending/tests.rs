//! Tests of stored lists.

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
    assert!(pending.add_page(page(1, 0, 1, 1), MAX_BYTES));
    tokio::time::advance(MAX_AGE / 2).await;
    assert_eq!(shown(&pending), Some(1));
    assert!(!pending.add_page(page(2, 0, 1, 1), MAX_BYTES), "it is the same");
    tokio::time::advance(MAX_AGE).await;
    assert_eq!(shown(&pending), None);
}

#[test]
fn a_list_is_complete_once_its_last_page_arrives() {
    let mut pending = PendingList::default();
    pending.add_page(page(1, 0, 0, 0), MAX_BYTES);
    assert_eq!(shown(&pending), Some(0));
    assert!(!pending.add_page(page(2, 0, 4, 2), MAX_BYTES));
    assert_eq!(shown(&pending), Some(0), "the last list is kept until then");
    assert!(pending.add_page(page(2, 2, 4, 2), MAX_BYTES));
    assert_eq!(shown(&pending), Some(4));
    // A page is missing, and then a new list starts.
    pending.add_page(page(3, 0, 6, 2), MAX_BYTES);
    pending.add_page(page(3, 4, 6, 2), MAX_BYTES);
    pending.add_page(page(4, 0, 1, 1), MAX_BYTES);
    assert_eq!(shown(&pending), Some(1));
    // A list that is longer than it claims is accepted as it is.
    pending.add_page(page(5, 0, 1, 3), MAX_BYTES);
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
    assert!(!pending.add_page(first.clone(), MAX_BYTES));
    assert!(pending.add_page(second, MAX_BYTES));
    let head = Arc::clone(&pending.current().unwrap().head);
    assert_eq!((head.busy.as_deref(), head.drained.as_deref()), (Some("0-1"), Some("5")));
    assert_eq!(head.running.iter().map(|job| job.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(shown(&pending), Some(2));
    // A list of an older agent.
    assert!(pending.add_page(page(2, 0, 2, 2), MAX_BYTES));
    assert_eq!(pending.current().unwrap().head.busy, None);
}

#[test]
fn the_stored_jobs_are_limited_in_size() {
    let mut pending = PendingList::default();
    let attributes = [("a".to_owned(), "x".repeat(4000).into())].into();
    let job = PendingJob { attributes, ..PendingJob::default() };
    for offset in (0..2000).step_by(10) {
        let jobs = vec![job.clone(); 10];
        let page = PendingPage { list: 1, offset, total: 2000, jobs, ..page(1, 0, 0, 0) };
        pending.add_page(page, MAX_BYTES);
        assert!(pending.bytes() <= MAX_BYTES + (64 << 10));
    }
    assert!(pending.incoming.is_none());
    let count = shown(&pending).unwrap();
    assert!((1000..1050).contains(&count), "{count}");
    assert!(pending.bytes() <= MAX_BYTES);
    let ranks: flux_operator_flux::IdSet = (0..1000).map(|rank| 2 * rank).collect();
    let running = vec![RunningJob { id: 1, ranks }; 1000];
    let hostile = PendingPage { running_total: 9999, running, ..page(2, 0, 1, 1) };
    pending.add_page(hostile, MAX_BYTES);
    assert!(pending.incoming.is_none() && pending.bytes() <= MAX_BYTES);
}

#[tokio::test(start_paused = true)]
async fn the_stored_jobs_of_all_clusters_are_limited_in_size() {
    let reports = reports();
    let attributes = [("a".to_owned(), "x".repeat(7000).into())].into();
    let job = PendingJob { attributes, ..PendingJob::default() };
    let jobs = vec![job; 550];
    let stored = || -> usize { reports.lock().values().map(|it| it.pending.bytes()).sum() };
    let store = |namespace: &str, uid: &str, page| {
        reports.jobs(uid, |_| true);
        reports.store_pending(namespace, uid, page);
        let shown = reports.jobs(uid, |_| true);
        shown.head.listed.then_some(shown.items.len())
    };
    let full = || PendingPage { jobs: jobs.clone(), ..page(1, 0, 550, 0) };
    // One namespace gets a quarter: four lists and a part of the fifth.
    for cluster in 0..40 {
        let is_listed = store("greedy", &format!("greedy-{cluster}"), full()).is_some();
        assert_eq!(is_listed, cluster < 5, "{cluster}");
    }
    assert!(stored() <= MAX_NAMESPACE_BYTES, "{}", stored());
    assert!(store("greedy", "greedy-0", full()).unwrap() > 7000 * 550, "it replaces its own");
    // If all is taken, a list that is small is stored, and of a large one the first jobs.
    for cluster in 0..36 {
        let namespace = (cluster / 4).to_string();
        let listed = store(&namespace, &format!("{cluster}"), full());
        assert!(listed.is_some_and(|bytes| bytes > SMALL_BYTES - 8000), "{cluster}");
    }
    let most = MAX_TOTAL_BYTES + MAX_SMALL_TOTAL_BYTES;
    assert!(stored() > MAX_TOTAL_BYTES - MAX_BYTES && stored() < most, "{}", stored());
    assert!(store("other", "small", page(1, 0, 1000, 1000)).is_some());
    let count = shown(&reports.lock()["small"].pending);
    assert_eq!(count, Some(1000));
    // They become outdated, also those that are never complete, and others get the memory.
    let part = page(1, 0, 9999, 10);
    assert_eq!(store("other", "incomplete", part), None);
    tokio::time::advance(MAX_AGE).await;
    reports.lock().values_mut().for_each(|it| {
        it.pending.wanted_until = Some(Instant::now() + LISTING_DURATION);
    });
    reports.forget_pending();
    assert_eq!(stored(), 0);
    assert!(store("greedy", "greedy-39", full()).is_some());
}

#[tokio::test(start_paused = true)]
async fn small_lists_are_limited_in_total_as_well() {
    let reports = reports();
    let attributes = [("a".to_owned(), "x".repeat(60_000).into())].into();
    let job = PendingJob { attributes, ..PendingJob::default() };
    let page = |count: u32| PendingPage {
        jobs: vec![job.clone(); count as usize],
        ..page(1, 0, count, 0)
    };
    let stored = || -> usize { reports.lock().values().map(|it| it.pending.bytes()).sum() };
    let store = |namespace: &str, cluster: usize, count| {
        let uid = format!("{namespace}-{cluster}");
        reports.jobs(&uid, |_| true);
        reports.store_pending(namespace, &uid, page(count));
        reports.jobs(&uid, |_| true).head.listed
    };
    for namespace in ["a", "b", "c", "d"] {
        for cluster in 0..5 {
            store(namespace, cluster, 69);
        }
    }
    let large = stored();
    assert!(large > MAX_TOTAL_BYTES - MAX_BYTES, "{large}");
    let store_small =
        |namespace: &str| (0..100).filter(|cluster| store(namespace, 100 + cluster, 4)).count();
    let of_namespaces = ["e", "f", "g", "h", "i", "j"].map(store_small);
    assert!(of_namespaces[0] >= 16 && of_namespaces[5] == 0, "{of_namespaces:?}");
    assert!(stored() <= MAX_TOTAL_BYTES + MAX_SMALL_TOTAL_BYTES, "{}", stored());
    assert!(stored() > MAX_TOTAL_BYTES + MAX_SMALL_TOTAL_BYTES - MAX_BYTES, "{}", stored());
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
        reports.store_pending("hpc", "uid", page(1, 0, 1, 1));
    };
    let (jobs, ()) = tokio::join!(wait(known), change);
    assert_eq!(start.elapsed().as_secs(), 3);
    assert!(jobs.head.listed && jobs.head.version != known && !jobs.items.is_empty());
    // The same list again does not end the wait.
    let known = jobs.head.version;
    let repeat = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        reports.store_pending("hpc", "uid", page(2, 0, 1, 1));
    };
    let (jobs, ()) = tokio::join!(wait(known), repeat);
    assert_eq!((jobs.head.version, start.elapsed()), (known, Duration::from_secs(3) + MAX_WAIT));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_client_learns_which_ranks_are_online() {
    let reports = reports();
    reports.store_pending("hpc", "uid", page(1, 0, 1, 1));
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
        reports.store_pending("hpc", "uid", page(count, 0, 1, count));
        version_of(&reports)
    };
    assert_eq!(version_with(1), version_with(1));
    assert_ne!(version_with(1), version_with(2));
}
