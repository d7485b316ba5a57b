//! Jobs that ask for the same, in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::order::Key;
use crate::sum::Sum;
use crate::{Millis, Resource, Resources, Setup, Workload};

/// What jobs of one line have in common: whether one fits, all do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    pub(crate) size: Option<u32>,
    pub(crate) min_size: Option<u32>,
    pub(crate) each: Resources,
    pub(crate) once: Resources,
    /// Only where the order asks how long one runs.
    pub(crate) max_runtime: Option<Millis>,
    /// Only where the namespace has a quota of its own.
    pub(crate) namespace: Option<Arc<str>>,
}

impl Shape {
    /// The shape of a workload.
    pub(crate) fn of(workload: &Workload, by_runtime: bool, by_namespace: bool) -> Shape {
        Shape {
            size: workload.size,
            min_size: workload.min_size,
            each: workload.each.clone(),
            once: workload.once.clone(),
            max_runtime: workload.max_runtime.filter(|_| by_runtime),
            namespace: by_namespace.then(|| workload.namespace.clone()),
        }
    }

    /// The least and the most nodes that one can start with.
    pub(crate) fn sizes(&self, setup: &Setup) -> (u32, u32) {
        let most = self.size.unwrap_or(setup.default_size).max(1);
        let least = self.min_size.unwrap_or(most).clamp(1, most);
        (least, most)
    }

    /// What one takes at a size.
    pub(crate) fn need(&self, size: u32) -> Resources {
        let mut need = self.each.times(size);
        need.add(&self.once);
        need
    }

    /// The largest of some sizes that fits what `taken` leaves of `room`.
    ///
    /// # Errors
    /// When not even the least does.
    pub(crate) fn largest(
        &self,
        room: &Resources,
        taken: &Sum,
        (least, most): (u32, u32),
    ) -> Result<u32, Missing> {
        let mut largest = most;
        for (resource, limit) in room.iter() {
            let (each, once) = (self.each.amount(resource), self.once.amount(resource));
            let free = limit.saturating_sub(taken.amount(resource));
            let needed = each.saturating_mul(i64::from(least)).saturating_add(once);
            // One that takes nothing of a resource is not held up by those who took too much.
            if needed > 0 && needed > free {
                return Err(Missing { resource: resource.clone(), needed, free });
            }
            if each > 0 {
                let fits = free.saturating_sub(once) / each;
                largest = u32::try_from(fits).unwrap_or(u32::MAX).clamp(least, largest);
            }
        }
        Ok(largest)
    }
}

/// A resource of which there is too little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) resource: Resource,
    /// What the least size takes.
    pub(crate) needed: i64,
    /// What is there; less than zero where too much is taken already.
    pub(crate) free: i64,
}

impl Missing {
    pub(crate) fn amount(&self) -> i64 {
        self.needed.saturating_sub(self.free)
    }
}

/// Jobs of one shape. It is never empty for longer than one cycle.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) jobs: BTreeSet<Key>,
    /// What was missing when its head was last looked at. As long as it is, looking
    /// again is in vain.
    pub(crate) blocked: Option<Missing>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(amount: i64) -> Resources {
        Resources::of([(Resource::Nodes, amount)])
    }

    fn taken(amount: i64) -> Sum {
        Sum::from(&nodes(amount))
    }

    fn shape(each: Resources, once: Resources) -> Shape {
        Shape { size: None, min_size: None, each, once, max_runtime: None, namespace: None }
    }

    #[test]
    fn q23_the_largest_size_that_fits_is_found() {
        let shape = shape(
            Resources::of([(Resource::Nodes, 1), (Resource::Cpu, 1500)]),
            Resources::of([(Resource::Cpu, 1000)]),
        );
        let room = Resources::of([(Resource::Nodes, 10), (Resource::Cpu, 10_000)]);
        // (10000 - 1000) / 1500 = 6
        assert_eq!(shape.largest(&room, &Sum::default(), (2, 8)), Ok(6));
        assert_eq!(shape.largest(&room, &taken(7), (2, 8)), Ok(3));
        assert_eq!(shape.largest(&room, &taken(8), (2, 8)), Ok(2));
        let missing = shape.largest(&room, &taken(9), (2, 8)).unwrap_err();
        assert_eq!((missing.resource.clone(), missing.amount()), (Resource::Nodes, 1));
        // Whole or not at all.
        assert!(shape.largest(&room, &taken(3), (8, 8)).is_err());
    }

    #[test]
    fn a_resource_that_is_taken_too_much_holds_up_only_those_who_want_it() {
        let room = Resources::of([(Resource::Nodes, 4), (Resource::Gpus, 1)]);
        let taken = Sum::from(&Resources::of([(Resource::Gpus, 3)]));
        let plain = shape(nodes(1), Resources::default());
        assert_eq!(plain.largest(&room, &taken, (1, 4)), Ok(4));
        let greedy = shape(Resources::of([(Resource::Gpus, 1)]), Resources::default());
        assert_eq!(greedy.largest(&room, &taken, (1, 4)).unwrap_err().amount(), 3);
    }
}
