//! A namespace: its ResourceQuotas, and which queues its jobs name.

use std::collections::HashMap;

use super::group::Group;
use crate::job_class::Shape;
use crate::resource_sum::ResourceSum;
use crate::{NamespaceQuota, QueueName, WaitReason};

/// The state of a namespace.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// What its ResourceQuotas leave.
    pub(super) quota: NamespaceQuota,
    /// What admitted jobs use whose pods those ResourceQuotas do not count yet.
    pub(super) starting: ResourceSum,
    /// Jobs that wait, by the queue that they name.
    pub(super) waiting: HashMap<QueueName, Group>,
}

impl Namespace {
    /// Whether it has a ResourceQuota.
    pub(super) fn is_limited(&self) -> bool {
        !self.quota.remaining.is_empty()
    }

    /// Whether it has no state worth keeping.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_limited() && self.starting.is_empty() && self.waiting.is_empty()
    }

    /// The largest size within a range that fits into every ResourceQuota.
    ///
    /// # Errors
    /// The ResourceQuota into which not even the smallest size fits.
    pub(super) fn admissible_size(
        &self,
        shape: &Shape,
        (least, most): (u32, u32),
    ) -> Result<u32, WaitReason> {
        self.quota.remaining.iter().try_fold(most, |most, (quota, left)| {
            shape.largest_fit(left, &self.starting, (least, most)).map_err(|missing| {
                WaitReason::NamespaceQuota {
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
    use crate::testing::{admitted, job, nodes_of, scheduler, setup_of, wait_reason, with_quota};
    use crate::{Resource, ServedNamespaces, Setup, Workload};

    fn left(nodes: i64) -> NamespaceQuota {
        NamespaceQuota { remaining: [("compute".into(), nodes_of(nodes))].into() }
    }

    fn shared(nodes: i64) -> Setup {
        Setup { serves: ServedNamespaces::All, patience: 0, ..setup_of("operator/queue", nodes) }
    }

    #[test]
    fn q20_a_resource_quota_blocks_only_jobs_of_its_namespace() {
        let mut scheduler = scheduler([shared(8)], [job("a/limited", 3), job("b/free", 3)]);
        scheduler.put_namespace_quota("a", left(2));
        assert_eq!(admitted(&mut scheduler, 1), ["free"]);
        let missing = WaitReason::NamespaceQuota {
            quota: "compute".into(),
            resource: Resource::Nodes,
            missing: 1,
        };
        assert_eq!(wait_reason(&scheduler, "limited", 1), missing);
        scheduler.put_namespace_quota("a", left(3));
        assert_eq!(admitted(&mut scheduler, 2), ["limited"]);
    }

    #[test]
    fn q20_an_admission_counts_until_its_pods_exist() {
        let jobs = [job("a/one", 2), job("a/two", 2)];
        let mut scheduler = scheduler([shared(8)], jobs);
        scheduler.put_namespace_quota("a", left(3));
        assert_eq!(admitted(&mut scheduler, 1), ["one"]);
        assert_eq!(admitted(&mut scheduler, 2), [""; 0]);
        // Its pods exist now, and the ResourceQuota itself counts them.
        let one = with_quota(job("a/one", 2), "operator/queue", 1);
        scheduler.put(Workload { pods_exist: true, ..one });
        scheduler.put_namespace_quota("a", left(1));
        assert_eq!(admitted(&mut scheduler, 3), [""; 0]);
        scheduler.put_namespace_quota("a", left(2));
        assert_eq!(admitted(&mut scheduler, 4), ["two"]);
        scheduler.put(job("a/three", 2));
        assert_eq!(admitted(&mut scheduler, 5), [""; 0]);
        scheduler.put_namespace_quota("a", NamespaceQuota::default());
        assert_eq!(admitted(&mut scheduler, 6), ["three"]);
    }

    #[test]
    fn q20_a_failed_write_releases_the_quota_of_the_namespace() {
        let mut scheduler = scheduler([shared(8)], [job("a/one", 2)]);
        scheduler.put_namespace_quota("a", left(2));
        assert_eq!(admitted(&mut scheduler, 1), ["one"]);
        scheduler.undo(&"one".into());
        assert_eq!(admitted(&mut scheduler, 2), ["one"]);
        scheduler.put(job("a/two", 2));
        scheduler.put(Workload { finished: true, ..job("a/one", 2) });
        assert_eq!(admitted(&mut scheduler, 3), ["two"]);
    }
}
