//! Jobs of instances that are handed over to an instance of their own elsewhere: orders for the
//! lead, and its answers.
//!
//! An order is kept only while a client repeats it, and an answer until it is taken once: both are
//! asked for again by whoever needs them, so that a restart loses nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use flux_operator_wire::{JobAnswer, JobGoal, JobOrder, JobspecText, MAX_JOBSPEC};
use tokio::time::Instant;

use super::Reports;

/// How long an order is kept after a client has asked for it last.
const KEPT: Duration = Duration::from_secs(60);

/// How long a lead may take to answer. Then its agent does not know such orders.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many jobs of one instance, and of all, are handed over at the same time. An answer takes up
/// to 512 KiB: 32 MiB in total.
const MAX_OF_CLUSTER: usize = 16;
const MAX_OF_ALL: usize = 64;

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
pub(super) struct HandOvers(BTreeMap<u64, HandOver>);

/// One job.
struct HandOver {
    goal: JobGoal,
    since: Instant,
    until: Instant,
    /// The parts of the answer that have arrived, as one.
    incoming: Option<JobAnswer>,
    /// The whole answer.
    answer: Option<JobAnswer>,
}

impl HandOvers {
    /// The orders that are not answered yet.
    fn orders(&self) -> Vec<JobOrder> {
        let open = self.0.iter().filter(|(_, it)| it.answer.is_none());
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
        let entry = self.0.entry(order.job).or_insert_with(|| new(&order.goal));
        if entry.goal != order.goal {
            *entry = new(&order.goal);
        }
        entry.until = now + KEPT;
    }

    /// The whole answer to an order, which is forgotten with it.
    fn take(&mut self, order: &JobOrder) -> Option<JobAnswer> {
        let entry = self.0.get_mut(&order.job).filter(|it| it.goal == order.goal)?;
        let answer = entry.answer.take()?;
        self.0.remove(&order.job);
        Some(answer)
    }

    /// Adds a part of an answer. Returns whether the answer is complete.
    fn add(&mut self, answer: JobAnswer) -> bool {
        let Some(entry) = self.0.get_mut(&answer.order.job) else { return false };
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
            true => entry.answer = Some(whole),
            false => entry.incoming = Some(whole),
        }
        is_last
    }

    fn forget_old(&mut self) {
        let now = Instant::now();
        self.0.retain(|_, it| it.until > now);
    }

    /// Whether the lead has not answered an order for too long.
    fn is_late(&self, order: &JobOrder) -> bool {
        self.0.get(&order.job).is_some_and(|it| it.since.elapsed() >= PATIENCE)
    }
}

impl Reports {
    /// Has the lead of the cluster with this uid execute an order, and returns its answer; `None`
    /// if there is none within `patience`, which is asked for again.
    pub(crate) async fn hand_over(
        &self,
        uid: &str,
        order: &JobOrder,
        patience: Duration,
    ) -> Result<Option<JobAnswer>, HandOverError> {
        let mut answered = self.lock().entry(uid.to_owned()).or_default().answered.subscribe();
        let answer = async {
            loop {
                if let Some(answer) = self.ask_or_take(uid, order)? {
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

    fn ask_or_take(&self, uid: &str, order: &JobOrder) -> Result<Option<JobAnswer>, HandOverError> {
        let mut clusters = self.lock();
        let all: usize = clusters.values().map(|cluster| cluster.hand_overs.0.len()).sum();
        let cluster = clusters.entry(uid.to_owned()).or_default();
        if let Some(answer) = cluster.hand_overs.take(order) {
            return Ok(Some(answer));
        }
        let is_new = !cluster.hand_overs.0.contains_key(&order.job);
        let count = cluster.hand_overs.0.len();
        if is_new && (count >= MAX_OF_CLUSTER || all >= MAX_OF_ALL) {
            return Err(HandOverError::TooMany);
        }
        cluster.hand_overs.ask(order);
        let orders = cluster.hand_overs.orders();
        cluster.desired.send_if_modified(|wanted| wanted.set_jobs(orders));
        match cluster.hand_overs.is_late(order) {
            true => Err(HandOverError::NoAnswer),
            false => Ok(None),
        }
    }

    /// Stores a part of the lead's answer.
    pub(super) fn store_answer(&self, uid: &str, answer: JobAnswer) {
        let mut clusters = self.lock();
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
pub(crate) fn is_too_large(answer: &JobAnswer) -> bool {
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
            let answer = JobAnswer::new(order(7), HomeJobState::Held);
            for part in answer.split(&jobspec) {
                reports.store_answer("uid", part);
            }
        };
        let asked = order(7);
        let (answer, ()) = tokio::join!(reports.hand_over("uid", &asked, SHORT), lead);
        let answer = answer.unwrap().unwrap();
        assert_eq!((answer.state, answer.part), (HomeJobState::Held, jobspec));
        assert_eq!(orders(&reports), []);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_were_not_asked_for_are_not_kept() {
        let reports = reports();
        reports.store_answer("uid", JobAnswer::new(order(7), HomeJobState::Held));
        assert_eq!(reports.hand_over("uid", &order(7), SHORT).await, Ok(None));
        let other = JobOrder { job: 7, goal: JobGoal::Canceled("x".into()) };
        reports.store_answer("uid", JobAnswer::new(other, HomeJobState::Finished));
        assert_eq!(reports.hand_over("uid", &order(7), SHORT).await, Ok(None));
        // A part in the middle.
        let text = JobspecText::new("x".repeat(20_000));
        let parts = JobAnswer::new(order(7), HomeJobState::Held).split(&text);
        reports.store_answer("uid", parts[1].clone());
        reports.store_answer("uid", parts[2].clone());
        assert_eq!(reports.hand_over("uid", &order(7), SHORT).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn orders_that_nobody_repeats_are_forgotten_and_they_are_limited() {
        let reports = reports();
        for job in 0..16 {
            assert_eq!(reports.hand_over("uid", &order(job), SHORT).await, Ok(None));
        }
        let refused = reports.hand_over("uid", &order(16), SHORT).await;
        assert_eq!(refused, Err(HandOverError::TooMany));
        tokio::time::advance(KEPT).await;
        reports.forget_hand_overs();
        assert_eq!(orders(&reports), []);
        assert_eq!(reports.hand_over("uid", &order(16), SHORT).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lead_that_does_not_answer_for_a_minute_is_too_old() {
        let reports = reports();
        for _ in 0..4 {
            let wait = Duration::from_secs(15);
            assert_eq!(reports.hand_over("uid", &order(7), wait).await, Ok(None));
        }
        let late = reports.hand_over("uid", &order(7), SHORT).await;
        assert_eq!(late, Err(HandOverError::NoAnswer));
    }

    #[test]
    fn a_jobspec_that_is_too_large_is_recognized() {
        let total = u32::try_from(MAX_JOBSPEC + 1).unwrap();
        let answer = JobAnswer::new(order(7), HomeJobState::Held);
        assert!(!is_too_large(&answer));
        assert!(is_too_large(&JobAnswer { total, offset: total, ..answer }));
    }
}
