//! The queue of waiting jobs whose status is still to be written. A job is reconciled when it is
//! its turn: reconciling thousands of jobs only to find that it is not their turn would cost more
//! than writing them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use flux_operator_queue::Uid;
use tokio::sync::Notify;

use super::pace::{News, Pace};
use super::queues::Queues;
use crate::lock::lock;

/// The waiting jobs whose status is still to be written, in order. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Untold {
    line: Arc<Mutex<Line>>,
    some: Arc<Notify>,
}

#[derive(Default)]
struct Line {
    order: VecDeque<Uid>,
    turns: HashMap<Uid, Turn>,
}

enum Turn {
    Comes,
    Is,
}

impl Untold {
    /// Whether it is this job's turn, which ends its turn. If it is not, the job is added to the
    /// queue and will be reconciled when its turn comes.
    pub(super) fn is_turn_of(&self, uid: &Uid) -> bool {
        let mut line = self.lock();
        match line.turns.get(uid) {
            Some(Turn::Is) => line.turns.remove(uid).is_some(),
            Some(Turn::Comes) => false,
            None => {
                line.turns.insert(uid.clone(), Turn::Comes);
                line.order.push_back(uid.clone());
                self.some.notify_one();
                false
            }
        }
    }

    /// Removes a job from the queue.
    pub(super) fn forget(&self, uid: &Uid) {
        self.lock().turns.remove(uid);
    }

    /// Waits until the queue is not empty, and removes the first job.
    async fn first(&self) -> Uid {
        loop {
            if let Some(first) = self.pop() {
                return first;
            }
            self.some.notified().await;
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

    fn give_turn(&self, uid: &Uid) {
        if let Some(turn) = self.lock().turns.get_mut(uid) {
            *turn = Turn::Is;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }
}

/// Grants turns forever, at the rate of low-priority writes.
pub(super) async fn give_turns(queues: Queues, pace: Arc<Pace>) {
    loop {
        let uid = queues.untold.first().await;
        let waits = queues.ledger().name_of_waiting(&uid);
        let Some((namespace, name)) = waits else {
            queues.untold.forget(&uid);
            continue;
        };
        pace.spare_turn(News::Waiting).await;
        queues.untold.give_turn(&uid);
        queues.look_at_job(&namespace, &name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_gets_one_turn_and_the_first_is_the_first() {
        let untold = Untold::default();
        let uids = ["a", "b"].map(Uid::from);
        for uid in uids.iter().chain(&uids) {
            assert!(!untold.is_turn_of(uid));
        }
        for uid in &uids {
            assert_eq!(untold.first().await, *uid);
            untold.give_turn(uid);
            assert!(untold.is_turn_of(uid));
        }
        assert_eq!(untold.pop(), None);
        assert!(!untold.is_turn_of(&uids[0]), "a turn is used up");
        assert_eq!(untold.first().await, uids[0]);
    }

    #[tokio::test]
    async fn who_is_forgotten_is_not_waited_for() {
        let untold = Untold::default();
        for uid in ["a", "b"].map(Uid::from) {
            untold.is_turn_of(&uid);
        }
        untold.forget(&Uid::from("a"));
        assert_eq!(untold.first().await, Uid::from("b"));
        untold.give_turn(&Uid::from("a"));
        assert!(!untold.is_turn_of(&Uid::from("a")));
    }
}
