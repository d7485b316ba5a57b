//! What the operator knows of MiniClusters and only it knows: their pending and running jobs. There is
//! a long poll for each MiniCluster that exists, and that a policy serves or a Burst names.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flux_operator_api::view::InstanceJobs;
use flux_operator_api::{Burst, MiniCluster};
use flux_operator_flux::IdSet;
use flux_operator_plan::bursting::{HomeAnswer, needs_jobspec, running_ranks};
use flux_operator_service::lock::lock;
use flux_operator_wire::JobGoal;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::errors::chain;
use crate::hand_over::hand_over;
use crate::stores::Change;

/// How long the operator may wait for a change before it answers, in seconds.
const WAIT_SECONDS: u32 = 20;

/// How long an answer is believed. The operator answers at least every [`WAIT_SECONDS`].
const MAX_AGE: Duration = Duration::from_secs(45);

/// How long an answer may take beyond the time for which the operator waits.
const RESPONSE_TIME: Duration = Duration::from_secs(15);

/// The delay after a failed request.
const RETRY: Duration = Duration::from_secs(2);

/// The delay between two answers: a busy queue changes all the time.
const PAUSE: Duration = Duration::from_millis(200);

/// How often the lead holds a job again that is handed over: its user may have released it.
const HOLD_AGAIN: Duration = Duration::from_secs(15);

type Cluster = ObjectRef<MiniCluster>;

/// What is known of all MiniClusters that are of interest.
#[derive(Clone)]
pub(crate) struct Feeds {
    operator: Client,
    changes: mpsc::UnboundedSender<Change>,
    known: Arc<Mutex<HashMap<Cluster, Feed>>>,
    /// When jobs that are handed over were held last, by the uid of the Burst.
    held: Arc<Mutex<HashMap<String, Instant>>>,
}

struct Feed {
    task: AbortHandle,
    uid: String,
    started: Instant,
    last: Option<(Arc<InstanceJobs>, Instant)>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Feeds {
    /// Feeds from the operator that this client reaches.
    pub(crate) fn new(operator: Client, changes: mpsc::UnboundedSender<Change>) -> Feeds {
        Feeds { operator, changes, known: Arc::default(), held: Arc::default() }
    }

    /// Starts a feed for each of these MiniClusters, by uid, and stops those of all others of the
    /// namespace.
    pub(crate) fn follow(&self, namespace: &str, wanted: &HashMap<Cluster, String>) {
        let mut known = lock(&self.known);
        known.retain(|cluster, feed| {
            let is_other = cluster.namespace.as_deref().unwrap_or_default() != namespace;
            // Another MiniCluster of the same name is another instance.
            is_other || wanted.get(cluster).is_some_and(|uid| *uid == feed.uid)
        });
        for (cluster, uid) in wanted {
            known.entry(cluster.clone()).or_insert_with(|| {
                let task = tokio::spawn(follow_one(self.clone(), cluster.clone(), uid.clone()));
                let (task, uid) = (task.abort_handle(), uid.clone());
                Feed { task, uid, started: Instant::now(), last: None }
            });
        }
    }

    /// The jobs of a MiniCluster, if the operator has listed them lately.
    pub(crate) fn jobs(&self, cluster: &Cluster) -> Option<Arc<InstanceJobs>> {
        let known = lock(&self.known);
        let (jobs, received) = known.get(cluster)?.last.as_ref()?;
        // Without the brokers that are online, all nodes of the cluster would seem to be missing.
        let is_known = jobs.listed && jobs.online.is_some() && received.elapsed() < MAX_AGE;
        is_known.then(|| Arc::clone(jobs))
    }

    /// Whether the jobs of a MiniCluster are not known although the operator has had time to list them.
    pub(crate) fn is_late(&self, cluster: &Cluster) -> bool {
        let is_known = self.jobs(cluster).is_some();
        let known = lock(&self.known);
        !is_known && known.get(cluster).is_some_and(|feed| feed.started.elapsed() >= MAX_AGE)
    }

    /// The ranks of running jobs of a MiniCluster.
    pub(crate) fn running(&self, cluster: &Cluster) -> Option<Vec<IdSet>> {
        running_ranks(&*self.jobs(cluster)?)
    }

    /// Has the lead of the MiniCluster of a Burst do with the job at home what is to be done, and
    /// returns what has become of it. A job that is handed over is held again only now and then.
    pub(crate) async fn hand_over(&self, burst: &Burst, goal: JobGoal) -> HomeAnswer {
        let is_held_again = goal == JobGoal::Held && !needs_jobspec(burst);
        if is_held_again && !self.is_hold_due(&burst.uid().unwrap_or_default()) {
            return HomeAnswer::NotAsked;
        }
        hand_over(&self.operator, burst, goal).await
    }

    /// Whether a job was not held for a while. Then it is held now.
    fn is_hold_due(&self, burst: &str) -> bool {
        let mut held = lock(&self.held);
        held.retain(|_, at| at.elapsed() < HOLD_AGAIN);
        let is_due = !held.contains_key(burst);
        held.entry(burst.to_owned()).or_insert_with(Instant::now);
        is_due
    }

    fn store(&self, cluster: &Cluster, uid: &str, jobs: InstanceJobs) {
        if let Some(feed) = lock(&self.known).get_mut(cluster).filter(|feed| feed.uid == uid) {
            feed.last = Some((Arc::new(jobs), Instant::now()));
        }
        // The receiver ends only with the program.
        drop(self.changes.send(Change::Cluster(cluster.clone())));
    }
}

async fn follow_one(feeds: Feeds, cluster: Cluster, uid: String) {
    let mut version = None;
    let mut was_failing = false;
    loop {
        let asked = Instant::now();
        match ask(&feeds.operator, &cluster, version).await {
            Ok(jobs) => {
                was_failing = false;
                // The operator answers without a change if too many wait.
                let is_early = version == Some(jobs.version) && asked.elapsed() < RETRY;
                version = Some(jobs.version);
                feeds.store(&cluster, &uid, jobs);
                tokio::time::sleep(if is_early { RETRY } else { PAUSE }).await;
            }
            Err(error) => {
                if !std::mem::replace(&mut was_failing, true) {
                    let error = chain(&error);
                    tracing::warn!(%cluster, error, "the operator does not list the jobs");
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Why the operator did not list jobs.
#[derive(Debug, thiserror::Error)]
enum FeedError {
    #[error("failed to ask the operator")]
    Ask(#[source] kube::Error),
    #[error("the operator does not respond")]
    TimedOut,
    #[error("failed to write the request")]
    Request(#[source] http::Error),
}

async fn ask(
    operator: &Client,
    cluster: &Cluster,
    version: Option<u64>,
) -> Result<InstanceJobs, FeedError> {
    let (namespace, name) = (cluster.namespace.as_deref().unwrap_or_default(), &cluster.name);
    let mut path = format!("/v1/namespaces/{namespace}/miniclusters/{name}/jobs");
    if let Some(version) = version {
        path += &format!("?version={version}&wait={WAIT_SECONDS}");
    }
    let request = http::Request::get(path).body(Vec::new()).map_err(FeedError::Request)?;
    let limit = Duration::from_secs(u64::from(WAIT_SECONDS)) + RESPONSE_TIME;
    let response = tokio::time::timeout(limit, operator.request(request)).await;
    response.map_err(|_elapsed| FeedError::TimedOut)?.map_err(FeedError::Ask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feeds() -> Feeds {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let operator = Client::try_from(config).unwrap();
        Feeds::new(operator, mpsc::unbounded_channel().0)
    }

    #[tokio::test]
    async fn a_minicluster_of_the_same_name_has_jobs_of_its_own() {
        let feeds = feeds();
        let cluster = |namespace| Cluster::new("fs").within(namespace);
        let wanted = |namespace, uid: &str| HashMap::from([(cluster(namespace), uid.to_owned())]);
        let listed = || InstanceJobs {
            listed: true,
            online: Some("0".to_owned()),
            ..InstanceJobs::default()
        };
        let has_jobs = |namespace| feeds.jobs(&cluster(namespace)).is_some();
        feeds.follow("a", &wanted("a", "first"));
        feeds.follow("b", &wanted("b", "first"));
        feeds.store(&cluster("a"), "first", listed());
        feeds.store(&cluster("b"), "first", listed());
        feeds.follow("a", &wanted("a", "first"));
        assert!(has_jobs("a") && has_jobs("b"));
        feeds.follow("a", &wanted("a", "second"));
        assert!(!has_jobs("a") && has_jobs("b"), "another instance");
        feeds.store(&cluster("a"), "first", listed());
        assert!(!has_jobs("a"), "an answer about the former one");
        feeds.follow("b", &HashMap::new());
        assert!(!has_jobs("b"), "it no longer exists");
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_is_handed_over_is_held_again_only_now_and_then() {
        let feeds = feeds();
        assert!(feeds.is_hold_due("a"));
        assert!(!feeds.is_hold_due("a"));
        assert!(feeds.is_hold_due("b"), "each has its own time");
        tokio::time::advance(HOLD_AGAIN).await;
        assert!(feeds.is_hold_due("a"));
        assert_eq!(lock(&feeds.held).len(), 1, "the other one is forgotten");
    }
}
