//! A namespace: its ResourceQuotas, and which queues its jobs name.

use std::collections::HashMap;

use super::group::Group;
use crate::line::Shape;
use crate::sum::Sum;
use crate::{NamespaceRoom, QueueName, Reason};

/// The state of a namespace.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// What its ResourceQuotas leave.
    pub(super) room: NamespaceRoom,
    /// What admitted jobs use whose pods those ResourceQuotas do not count yet.
    pub(super) starting: Sum,
    /// Jobs that wait, by the queue that they name.
    pub(super) waiting: HashMap<QueueName, Group>,
}

impl Namespace {
    /// Whether it has a ResourceQuota.
    pub(super) fn is_limited(&self) -> bool {
        !self.room.left.is_empty()
    }

    /// Whether it has no state worth keeping.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_limited() && self.starting.is_empty() && self.waiting.is_empty()
    }

    /// The largest size within a range that fits into every ResourceQuota.
    ///
    /// # Errors
    /// The ResourceQuota into which not even the smallest size fits.
    pub(super) fn offer(&self, shape: &Shape, (least, most): (u32, u32)) -> Result<u32, Reason> {
        self.room.left.iter().try_fold(most, |most, (quota, left)| {
            shape.largest(left, &self.starting, (least, most)).map_err(|missing| {
                Reason::NamespaceQuota {
                    quota: quota.clone(),
                    missing: missing.amount(),
                    resource: missing.resource,
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{admitted, job, nodes_of, scheduler, setup_of, why, with_room};
    use crate::{OtherNamespaces, Resource, Setup, Workload};

    fn left(nodes: i64) -> NamespaceRoom {
        NamespaceRoom { left: [("compute".into(), nodes_of(nodes))].into() }
    }

    fn shared(nodes: i64) -> Setup {
        Setup { serves: OtherNamespaces::All, patience: 0, ..setup_of("operator/queue", nodes) }
    }

    #[test]
    fn q20_a_quota_of_the_namespace_holds_up_only_its_own_jobs() {
        let mut scheduler = scheduler([shared(8)], [job("a/limited", 3), job("b/free", 3)]);
        scheduler.put_namespace_room("a", left(2));
        assert_eq!(admitted(&mut scheduler, 1), ["free"]);
        let missing = Reason::NamespaceQuota {
            quota: "compute".into(),
            resource: Resource::Nodes,
            missing: 1,
        };
        assert_eq!(why(&scheduler, "limited", 1), missing);
        scheduler.put_namespace_room("a", left(3));
        assert_eq!(admitted(&mut scheduler, 2), ["limited"]);
    }

    #[test]
    fn q20_what_is_admitted_counts_until_its_pods_are_there() {
        let jobs = [job("a/one", 2), job("a/two", 2)];
        let mut scheduler = scheduler([shared(8)], jobs);
        scheduler.put_namespace_room("a", left(3));
        assert_eq!(admitted(&mut scheduler, 1), ["one"]);
        assert_eq!(admitted(&mut scheduler, 2), [""; 0]);
        // Its pods exist, and the quota leaves as much for others.
        let one = with_room(job("a/one", 2), "operator/queue", 1);
        scheduler.put(Workload { started: true, ..one });
        scheduler.put_namespace_room("a", left(1));
        assert_eq!(admitted(&mut scheduler, 3), [""; 0]);
        scheduler.put_namespace_room("a", left(2));
        assert_eq!(admitted(&mut scheduler, 4), ["two"]);
        scheduler.put(job("a/three", 2));
        assert_eq!(admitted(&mut scheduler, 5), [""; 0]);
        scheduler.put_namespace_room("a", NamespaceRoom::default());
        assert_eq!(admitted(&mut scheduler, 6), ["three"]);
    }

    #[test]
    fn q20_a_write_that_fails_gives_the_room_of_the_namespace_back() {
        let mut scheduler = scheduler([shared(8)], [job("a/one", 2)]);
        scheduler.put_namespace_room("a", left(2));
        assert_eq!(admitted(&mut scheduler, 1), ["one"]);
        scheduler.undo(&"one".into());
        assert_eq!(admitted(&mut scheduler, 2), ["one"]);
        scheduler.put(job("a/two", 2));
        scheduler.put(Workload { finished: true, ..job("a/one", 2) });
        assert_eq!(admitted(&mut scheduler, 3), ["two"]);
    }
}
