//! Classes of jobs with the same requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::order::SortKey;
use crate::resource_sum::ResourceSum;
use crate::{Millis, Resource, Resources, Setup, Workload};

/// What the jobs of a class have in common: if one of them fits, all of them do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    pub(crate) size: Option<u32>,
    pub(crate) min_size: Option<u32>,
    pub(crate) per_node: Resources,
    pub(crate) per_job: Resources,
    /// Only if the queue takes run times into account.
    pub(crate) max_runtime: Option<Millis>,
    /// Only if the namespace has a ResourceQuota.
    pub(crate) namespace: Option<Arc<str>>,
}

impl Shape {
    /// The shape of a workload.
    pub(crate) fn of(workload: &Workload, by_runtime: bool, by_namespace: bool) -> Shape {
        Shape {
            size: workload.size,
            min_size: workload.min_size,
            per_node: workload.per_node.clone(),
            per_job: workload.per_job.clone(),
            max_runtime: workload.max_runtime.filter(|_| by_runtime),
            namespace: by_namespace.then(|| workload.namespace.clone()),
        }
    }

    /// The smallest and the largest size that a job can start with.
    pub(crate) fn sizes(&self, setup: &Setup) -> (u32, u32) {
        let most = self.size.unwrap_or(setup.default_size).max(1);
        let least = self.min_size.unwrap_or(most).clamp(1, most);
        (least, most)
    }

    /// What a job of this shape uses at a size.
    pub(crate) fn need(&self, size: u32) -> Resources {
        let mut need = self.per_node.times(size);
        need.add(&self.per_job);
        need
    }

    /// The largest size within a range that fits into `quota` beside what is `taken`.
    ///
    /// # Errors
    /// If not even the smallest size fits.
    pub(crate) fn largest_fit(
        &self,
        quota: &Resources,
        taken: &ResourceSum,
        (least, most): (u32, u32),
    ) -> Result<u32, Shortfall> {
        let mut largest = most;
        for (resource, limit) in quota.iter() {
            let (each, once) = (self.per_node.amount(resource), self.per_job.amount(resource));
            let free = limit.saturating_sub(taken.amount(resource));
            let needed = each.saturating_mul(i64::from(least)).saturating_add(once);
            // A job that does not use a resource is not blocked by its overuse.
            if needed > 0 && needed > free {
                return Err(Shortfall { resource: resource.clone(), needed, free });
            }
            if each > 0 {
                let fits = free.saturating_sub(once) / each;
                largest = u32::try_from(fits).unwrap_or(u32::MAX).clamp(least, largest);
            }
        }
        Ok(largest)
    }
}

/// A resource of which too little is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shortfall {
    pub(crate) resource: Resource,
    /// What the smallest size uses.
    pub(crate) needed: i64,
    /// What is free; negative if too much is used.
    pub(crate) free: i64,
}

impl Shortfall {
    pub(crate) fn amount(&self) -> i64 {
        self.needed.saturating_sub(self.free)
    }
}

/// Jobs of one shape. It is empty only during a cycle.
#[derive(Debug, Default)]
pub(crate) struct JobClass {
    pub(crate) jobs: BTreeSet<SortKey>,
    /// What was missing when its first job was last considered. As long as it is missing,
    /// the class need not be considered again.
    pub(crate) blocked: Option<Shortfall>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(amount: i64) -> Resources {
        Resources::of([(Resource::Nodes, amount)])
    }

    fn taken(amount: i64) -> ResourceSum {
        ResourceSum::from(&nodes(amount))
    }

    fn shape(each: Resources, once: Resources) -> Shape {
        Shape {
            size: None,
            min_size: None,
            per_node: each,
            per_job: once,
            max_runtime: None,
            namespace: None,
        }
    }

    #[test]
    fn q23_the_largest_size_that_fits_is_found() {
        let shape = shape(
            Resources::of([(Resource::Nodes, 1), (Resource::Cpu, 1500)]),
            Resources::of([(Resource::Cpu, 1000)]),
        );
        let quota = Resources::of([(Resource::Nodes, 10), (Resource::Cpu, 10_000)]);
        // (10000 - 1000) / 1500 = 6
        assert_eq!(shape.largest_fit(&quota, &ResourceSum::default(), (2, 8)), Ok(6));
        assert_eq!(shape.largest_fit(&quota, &taken(7), (2, 8)), Ok(3));
        assert_eq!(shape.largest_fit(&quota, &taken(8), (2, 8)), Ok(2));
        let missing = shape.largest_fit(&quota, &taken(9), (2, 8)).unwrap_err();
        assert_eq!((missing.resource.clone(), missing.amount()), (Resource::Nodes, 1));
        // All or nothing.
        assert!(shape.largest_fit(&quota, &taken(3), (8, 8)).is_err());
    }

    #[test]
    fn an_overused_resource_blocks_only_jobs_that_use_it() {
        let quota = Resources::of([(Resource::Nodes, 4), (Resource::Gpus, 1)]);
        let taken = ResourceSum::from(&Resources::of([(Resource::Gpus, 3)]));
        let plain = shape(nodes(1), Resources::default());
        assert_eq!(plain.largest_fit(&quota, &taken, (1, 4)), Ok(4));
        let greedy = shape(Resources::of([(Resource::Gpus, 1)]), Resources::default());
        assert_eq!(greedy.largest_fit(&quota, &taken, (1, 4)).unwrap_err().amount(), 3);
    }
}
