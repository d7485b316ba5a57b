//! Jobs of instances that are handed over to an instance of their own elsewhere: orders for the
//! lead, and its answers.
//!
//! An order is kept only while a client repeats it, and an answer until it is taken once: both are
//! asked for again by whoever needs them, so that a restart loses nothing.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use flux_operator_wire::{JobGoal, JobOrder, JobspecText, MAX_JOBSPEC, OrderAnswer};
use tokio::time::Instant;

use super::{ClusterReports, Reports};

/// How long an order is kept after a client has asked for it last.
const KEPT: Duration = Duration::from_secs(60);

/// How long a lead may take to answer. Then its agent does not know such orders.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an answer waits for its client, which asks every 5 seconds for as long as it needs one. The
/// job may have become something else since.
const FRESH: Duration = Duration::from_secs(6);

/// How many jobs of one instance, and of all of a namespace, are handed over at the same time: one
/// user does not keep all others from it.
const MAX_OF_CLUSTER: usize = 16;
const MAX_OF_NAMESPACE: usize = 64;

/// The largest size of all answers that wait for their clients, in bytes, and of those of one
/// namespace. If those of others have taken everything, one jobspec is stored all the same.
const MAX_TOTAL_BYTES: usize = 32 * 1024 * 1024;
const MAX_NAMESPACE_BYTES: usize = MAX_TOTAL_BYTES / 4;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOverError {
    /// Too many jobs are handed over.
    TooMany,
    /// The lead does not answer.
    NoAnswer,
}

/// The jobs of one instance that are handed over.
#[derive(Default)]
pub(super) struct HandOvers {
    /// The namespace of the cluster, once a client has asked.
    namespace: String,
    jobs: BTreeMap<u64, HandOver>,
}

/// One job.
struct HandOver {
    goal: JobGoal,
    since: Instant,
    until: Instant,
    /// The parts of the answer that have arrived, as one.
    incoming: Option<OrderAnswer>,
    /// The whole answer, and when it was complete.
    answer: Option<(OrderAnswer, Instant)>,
}

impl HandOvers {
    /// The orders that are not answered yet.
    fn orders(&self) -> Vec<JobOrder> {
        let open = self.jobs.iter().filter(|(_, it)| it.answer.is_none());
        open.map(|(job, it)| JobOrder { job: *job, goal: it.goal.clone() }).collect()
    }

    /// Adds or repeats an order.
    fn ask(&mut self, order: &JobOrder) {
        let now = Instant::now();
        let new = |goal: &JobGoal| HandOver {
            goal: goal.clone(),
            since: now,
            until: now + KEPT,
            incoming: None,
            answer: None,
        };
        let entry = self.jobs.entry(order.job).or_insert_with(|| new(&order.goal));
        if entry.goal != order.goal {
            *entry = new(&order.goal);
        }
        entry.until = now + KEPT;
    }

    /// The whole answer to an order, which is forgotten with it. An old one is only forgotten.
    fn take(&mut self, order: &JobOrder) -> Option<OrderAnswer> {
        let entry = self.jobs.get_mut(&order.job).filter(|it| it.goal == order.goal)?;
        let (answer, since) = entry.answer.take()?;
        self.jobs.remove(&order.job);
        (since.elapsed() < FRESH).then_some(answer)
    }

    /// Adds a part of an answer. Returns whether the answer is complete.
    fn add(&mut self, answer: OrderAnswer) -> bool {
        let Some(entry) = self.jobs.get_mut(&answer.order.job) else { return false };
        if entry.goal != answer.order.goal || entry.answer.is_some() {
            return false;
        }
        let is_last = answer.is_last();
        let known = entry.incoming.take();
        let end = known.as_ref().map_or(0, |known| known.part.len());
        let is_next = usize::try_from(answer.offset).is_ok_and(|offset| offset == end);
        let whole = match known {
            Some(mut known) if is_next && known.total == answer.total && end > 0 => {
                known.part.append(&answer.part);
                known
            }
            _ if answer.offset == 0 || answer.part.is_empty() => answer,
            _ => return false,
        };
        if whole.part.len() > MAX_JOBSPEC {
            return false;
        }
        match is_last {
            true => entry.answer = Some((whole, Instant::now())),
            false => entry.incoming = Some(whole),
        }
        is_last
    }

    fn forget_old(&mut self) {
        let now = Instant::now();
        self.jobs.retain(|_, it| it.until > now);
    }

    /// Forgets orders that the lead has not answered for too long: others may be answered.
    fn forget_late(&mut self) {
        self.jobs.retain(|_, it| !it.is_late());
    }

    /// The size of the answers, whole or not, in bytes.
    fn bytes(&self) -> usize {
        let answers = self
            .jobs
            .values()
            .flat_map(|it| [it.incoming.as_ref(), it.answer.as_ref().map(|(answer, _)| answer)]);
        answers.flatten().map(|answer| answer.part.len()).sum()
    }

    /// Whether the lead has not answered an order for too long.
    fn is_late(&self, order: &JobOrder) -> bool {
        self.jobs.get(&order.job).is_some_and(HandOver::is_late)
    }
}

impl HandOver {
    fn is_late(&self) -> bool {
        self.answer.is_none() && self.since.elapsed() >= PATIENCE
    }
}

type Clusters = HashMap<String, ClusterReports>;

/// The jobs of a namespace that are handed over.
fn of_namespace<'c>(
    clusters: &'c Clusters,
    namespace: &'c str,
) -> impl Iterator<Item = &'c HandOvers> {
    let all = clusters.values().map(|cluster| &cluster.hand_overs);
    all.filter(move |it| it.namespace == namespace)
}

/// Whether one more job of a cluster can be handed over.
fn has_slot(clusters: &Clusters, namespace: &str, uid: &str) -> bool {
    let count = clusters.get(uid).map_or(0, |cluster| cluster.hand_overs.jobs.len());
    let all: usize = of_namespace(clusters, namespace).map(|it| it.jobs.len()).sum();
    count < MAX_OF_CLUSTER && all < MAX_OF_NAMESPACE
}

/// Whether so many bytes more of an answer to a client of a namespace can be stored.
fn has_memory(clusters: &Clusters, namespace: &str, bytes: usize) -> bool {
    let total: usize = clusters.values().map(|cluster| cluster.hand_overs.bytes()).sum();
    let own: usize = of_namespace(clusters, namespace).map(HandOvers::bytes).sum();
    let (total, own) = (total.saturating_add(bytes), own.saturating_add(bytes));
    own <= MAX_NAMESPACE_BYTES && (total <= MAX_TOTAL_BYTES || own <= MAX_JOBSPEC)
}

impl Reports {
    /// Has the lead of the cluster with this uid execute an order, and returns its answer; `None`
    /// if there is none within `patience`, which is asked for again.
    pub(crate) async fn hand_over(
        &self,
        namespace: &str,
        uid: &str,
        order: &JobOrder,
        patience: Duration,
    ) -> Result<Option<OrderAnswer>, HandOverError> {
        let mut answered = self.lock().entry(uid.to_owned()).or_default().answered.subscribe();
        let answer = async {
            loop {
                if let Some(answer) = self.ask_or_take(namespace, uid, order)? {
                    return Ok(answer);
                }
                // The sender is dropped when the cluster is deleted.
                if answered.changed().await.is_err() {
                    return Err(HandOverError::NoAnswer);
                }
            }
        };
        match tokio::time::timeout(patience, answer).await {
            Ok(answer) => answer.map(Some),
            Err(_elapsed) => Ok(None),
        }
    }

    fn ask_or_take(
        &self,
        namespace: &str,
        uid: &str,
        order: &JobOrder,
    ) -> Result<Option<OrderAnswer>, HandOverError> {
        let mut clusters = self.lock();
        let cluster = clusters.entry(uid.to_owned()).or_default();
        namespace.clone_into(&mut cluster.hand_overs.namespace);
        if let Some(answer) = cluster.hand_overs.take(order) {
            return Ok(Some(answer));
        }
        let is_new = !cluster.hand_overs.jobs.contains_key(&order.job);
        if is_new && !has_slot(&clusters, namespace, uid) {
            let all = clusters.values_mut().map(|cluster| &mut cluster.hand_overs);
            all.filter(|it| it.namespace == namespace).for_each(HandOvers::forget_late);
            if !has_slot(&clusters, namespace, uid) {
                return Err(HandOverError::TooMany);
            }
        }
        let cluster = clusters.entry(uid.to_owned()).or_default();
        cluster.hand_overs.ask(order);
        let orders = cluster.hand_overs.orders();
        cluster.desired.send_if_modified(|wanted| wanted.set_jobs(orders));
        match cluster.hand_overs.is_late(order) {
            true => Err(HandOverError::NoAnswer),
            false => Ok(None),
        }
    }

    /// Stores a part of the lead's answer.
    pub(super) fn store_answer(&self, uid: &str, answer: OrderAnswer) {
        let mut clusters = self.lock();
        let namespace = clusters.get(uid).map(|cluster| cluster.hand_overs.namespace.clone());
        // The lead sends it again.
        if !has_memory(&clusters, &namespace.unwrap_or_default(), answer.part.len()) {
            return;
        }
        let Some(cluster) = clusters.get_mut(uid) else { return };
        if cluster.hand_overs.add(answer) {
            let orders = cluster.hand_overs.orders();
            cluster.desired.send_if_modified(|wanted| wanted.set_jobs(orders));
            cluster.answered.send_replace(());
        }
    }

    /// Forgets orders that no client repeats.
    pub(super) fn forget_hand_overs(&self) {
        for cluster in self.lock().values_mut() {
            cluster.hand_overs.forget_old();
            let orders = cluster.hand_overs.orders();
            cluster.desired.send_if_modified(|wanted| wanted.set_jobs(orders));
        }
    }
}

/// Whether an answer says that the jobspec is too large.
pub(crate) fn is_too_large(answer: &OrderAnswer) -> bool {
    answer.part == JobspecText::default()
        && usize::try_from(answer.total).is_ok_and(|total| total > MAX_JOBSPEC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Leadership;
    use flux_operator_wire::{HomeJobState, Work};
    use tokio::sync::mpsc;

    const SHORT: Duration = Duration::from_secs(1);

    fn reports() -> Reports {
        Reports::new(mpsc::unbounded_channel().0, Leadership::always())
    }

    fn order(job: u64) -> JobOrder {
        JobOrder { job, goal: JobGoal::Held }
    }

    fn orders(reports: &Reports) -> Vec<JobOrder> {
        let work = reports.work("uid", true);
        let found = work.into_iter().find_map(|work| match work {
            Work::Jobs(orders) => Some(orders),
            _ => None,
        });
        found.unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_gets_the_answer_once_and_its_order_is_gone() {
        let reports = reports();
        let jobspec = JobspecText::new("x".repeat(20_000));
        let lead = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(orders(&reports), [order(7)]);
            let answer = OrderAnswer::new(order(7), HomeJobState::Held);
            for part in answer.split(&jobspec) {
                reports.store_answer("uid", part);
            }
        };
        let asked = order(7);
        let (answer, ()) = tokio::join!(reports.hand_over("ns", "uid", &asked, SHORT), lead);
        let answer = answer.unwrap().unwrap();
        assert_eq!((answer.state, answer.part), (HomeJobState::Held, jobspec));
        assert_eq!(orders(&reports), []);
    }

    /// The job may have been released and started since.
    #[tokio::test(start_paused = true)]
    async fn an_old_answer_is_asked_for_again() {
        let reports = reports();
        let ask = async || reports.hand_over("ns", "uid", &order(7), SHORT).await;
        let held = OrderAnswer::new(order(7), HomeJobState::Held);
        assert_eq!(ask().await, Ok(None));
        reports.store_answer("uid", held.clone());
        assert_eq!(orders(&reports), [], "it is answered");
        tokio::time::advance(FRESH).await;
        assert_eq!(ask().await, Ok(None));
        assert_eq!(orders(&reports), [order(7)]);
        reports.store_answer("uid", held.clone());
        tokio::time::advance(FRESH - Duration::from_millis(1)).await;
        assert_eq!(ask().await, Ok(Some(held)));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_were_not_asked_for_are_not_kept() {
        let reports = reports();
        reports.store_answer("uid", OrderAnswer::new(order(7), HomeJobState::Held));
        assert_eq!(reports.hand_over("ns", "uid", &order(7), SHORT).await, Ok(None));
        let other = JobOrder { job: 7, goal: JobGoal::Canceled("x".into()) };
        reports.store_answer("uid", OrderAnswer::new(other, HomeJobState::Finished));
        assert_eq!(reports.hand_over("ns", "uid", &order(7), SHORT).await, Ok(None));
        // A part in the middle.
        let text = JobspecText::new("x".repeat(20_000));
        let parts = OrderAnswer::new(order(7), HomeJobState::Held).split(&text);
        reports.store_answer("uid", parts[1].clone());
        reports.store_answer("uid", parts[2].clone());
        assert_eq!(reports.hand_over("ns", "uid", &order(7), SHORT).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn orders_that_nobody_repeats_are_forgotten_and_they_are_limited() {
        let reports = reports();
        for job in 0..16 {
            assert_eq!(reports.hand_over("ns", "uid", &order(job), SHORT).await, Ok(None));
        }
        let refused = reports.hand_over("ns", "uid", &order(16), SHORT).await;
        assert_eq!(refused, Err(HandOverError::TooMany));
        tokio::time::advance(KEPT).await;
        reports.forget_hand_overs();
        assert_eq!(orders(&reports), []);
        assert_eq!(reports.hand_over("ns", "uid", &order(16), SHORT).await, Ok(None));
    }

    /// Asks about this many jobs of each of so many clusters of a namespace.
    async fn fill(reports: &Reports, namespace: &str, clusters: u64) {
        for cluster in 0..clusters {
            for job in 0..16 {
                let uid = format!("{namespace}-{cluster}");
                // Not longer than needed: the orders must not get old meanwhile.
                let wait = Duration::from_millis(1);
                let asked = reports.hand_over(namespace, &uid, &order(job), wait).await;
                assert_eq!(asked, Ok(None), "{uid} {job}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_namespace_does_not_keep_others_from_handing_over_jobs() {
        let reports = reports();
        fill(&reports, "greedy", 4).await;
        let ask = async |namespace| reports.hand_over(namespace, "uid", &order(1), SHORT).await;
        assert_eq!(ask("greedy").await, Err(HandOverError::TooMany));
        for namespace in 0..8 {
            fill(&reports, &format!("ns{namespace}"), 4).await;
        }
        tokio::time::advance(PATIENCE).await;
        assert_eq!(ask("greedy").await, Ok(None), "those that are never answered are forgotten");
    }

    /// The leads of a user may answer with anything, and nobody has to take it.
    #[tokio::test(start_paused = true)]
    async fn answers_of_one_namespace_do_not_take_the_memory_of_all() {
        let reports = reports();
        let text = JobspecText::new("x".repeat(MAX_JOBSPEC));
        for namespace in 0..5 {
            let namespace = format!("greedy{namespace}");
            fill(&reports, &namespace, 4).await;
            for (cluster, job) in (0..4).flat_map(|cluster| (0..16).map(move |job| (cluster, job)))
            {
                for part in OrderAnswer::new(order(job), HomeJobState::Held).split(&text) {
                    reports.store_answer(&format!("{namespace}-{cluster}"), part);
                }
            }
            let own: usize = of_namespace(&reports.lock(), &namespace).map(HandOvers::bytes).sum();
            assert!((MAX_JOBSPEC..=MAX_NAMESPACE_BYTES).contains(&own), "{own}");
        }
        let total: usize = reports.lock().values().map(|it| it.hand_overs.bytes()).sum();
        assert!(total <= MAX_TOTAL_BYTES + MAX_JOBSPEC, "{total}");
        let asked = reports.hand_over("ns", "uid", &order(7), SHORT).await;
        assert_eq!(asked, Ok(None));
        for part in OrderAnswer::new(order(7), HomeJobState::Held).split(&text) {
            reports.store_answer("uid", part);
        }
        let answer = reports.hand_over("ns", "uid", &order(7), SHORT).await.unwrap().unwrap();
        assert_eq!(answer.part, text);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lead_that_does_not_answer_for_a_minute_is_too_old() {
        let reports = reports();
        for _ in 0..4 {
            let wait = Duration::from_secs(15);
            assert_eq!(reports.hand_over("ns", "uid", &order(7), wait).await, Ok(None));
        }
        let late = reports.hand_over("ns", "uid", &order(7), SHORT).await;
        assert_eq!(late, Err(HandOverError::NoAnswer));
    }

    #[test]
    fn a_jobspec_that_is_too_large_is_recognized() {
        let total = u32::try_from(MAX_JOBSPEC + 1).unwrap();
        let answer = OrderAnswer::new(order(7), HomeJobState::Held);
        assert!(!is_too_large(&answer));
        assert!(is_too_large(&OrderAnswer { total, offset: total, ..answer }));
    }
}
