//! The queue of waiting jobs whose status is still to be written. A job is reconciled when it is
//! its turn: reconciling thousands of jobs only to find that it is not their turn would cost more
//! than writing them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use flux_operator_queue::Uid;
use tokio::sync::Notify;

use super::queues::Queues;
use super::rate_limit::{LowPriorityWrite, RateLimiter};
use crate::lock::lock;

/// The waiting jobs whose status is still to be written, in order. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct StatusTurns {
    queue: Arc<Mutex<TurnQueue>>,
    notify: Arc<Notify>,
}

#[derive(Default)]
struct TurnQueue {
    order: VecDeque<Uid>,
    turns: HashMap<Uid, TurnState>,
}

enum TurnState {
    Waiting,
    Granted,
}

impl StatusTurns {
    /// Whether it is this job's turn; if so, the turn is used up. Otherwise the job is added to the
    /// queue, and is reconciled when its turn comes.
    pub(super) fn take_turn(&self, uid: &Uid) -> bool {
        let mut queue = self.lock();
        match queue.turns.get(uid) {
            Some(TurnState::Granted) => queue.turns.remove(uid).is_some(),
            Some(TurnState::Waiting) => false,
            None => {
                queue.turns.insert(uid.clone(), TurnState::Waiting);
                queue.order.push_back(uid.clone());
                self.notify.notify_one();
                false
            }
        }
    }

    /// Removes a job from the queue.
    pub(super) fn forget(&self, uid: &Uid) {
        self.lock().turns.remove(uid);
    }

    /// Waits until the queue is not empty, and removes the first job.
    async fn pop_first(&self) -> Uid {
        loop {
            if let Some(first) = self.pop() {
                return first;
            }
            self.notify.notified().await;
        }
    }

    fn pop(&self) -> Option<Uid> {
        let mut line = self.lock();
        while let Some(first) = line.order.pop_front() {
            if line.turns.contains_key(&first) {
                return Some(first);
            }
        }
        None
    }

    fn grant_turn(&self, uid: &Uid) {
        if let Some(turn) = self.lock().turns.get_mut(uid) {
            *turn = TurnState::Granted;
        }
    }

    fn lock(&self) -> MutexGuard<'_, TurnQueue> {
        lock(&self.queue)
    }
}

/// Grants turns forever, at the rate of low-priority writes.
pub(super) async fn grant_turns(queues: Queues, rate_limiter: Arc<RateLimiter>) {
    loop {
        let uid = queues.status_turns.pop_first().await;
        let job = queues.ledger().waiting_job_name(&uid);
        let Some((namespace, name)) = job else {
            queues.status_turns.forget(&uid);
            continue;
        };
        rate_limiter.acquire_low_priority(LowPriorityWrite::WaitingJob).await;
        queues.status_turns.grant_turn(&uid);
        queues.request_job(&namespace, &name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_job_gets_one_turn_in_order() {
        let turns = StatusTurns::default();
        let uids = ["a", "b"].map(Uid::from);
        for uid in uids.iter().chain(&uids) {
            assert!(!turns.take_turn(uid));
        }
        for uid in &uids {
            assert_eq!(turns.pop_first().await, *uid);
            turns.grant_turn(uid);
            assert!(turns.take_turn(uid));
        }
        assert_eq!(turns.pop(), None);
        assert!(!turns.take_turn(&uids[0]), "a turn is used up");
        assert_eq!(turns.pop_first().await, uids[0]);
    }

    #[tokio::test]
    async fn a_forgotten_job_gets_no_turn() {
        let pending = StatusTurns::default();
        for uid in ["a", "b"].map(Uid::from) {
            pending.take_turn(&uid);
        }
        pending.forget(&Uid::from("a"));
        assert_eq!(pending.pop_first().await, Uid::from("b"));
        pending.grant_turn(&Uid::from("a"));
        assert!(!pending.take_turn(&Uid::from("a")));
    }
}
