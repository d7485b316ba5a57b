//! Free nodes, and which of them a job would get.
//!
//! Nodes that are alike are a class, so that the time for a job depends on the number of classes, not
//! of nodes. A job that requests nodes gets whole ones. Jobs that request only tasks share nodes: what
//! one leaves of its last node in a class is for the next.

use std::collections::VecDeque;

use crate::Instance;
use crate::constraint::{Constraint, Match};
use crate::job::Need;

/// Free nodes that are alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Class {
    pub(crate) property: String,
    pub(crate) cores: u32,
    pub(crate) gpus: u32,
    /// The position of the pool it belongs to, in the caller's list.
    pub(crate) pool: Option<usize>,
    /// The nodes that no job has got, in the order in which they are used.
    pub(crate) free: VecDeque<FreeNode>,
    /// Cores and GPUs that are left on one node that a job has got.
    pub(crate) left: (u32, u32),
}

/// A free node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeNode {
    /// Its position in [`Instance::nodes`]; `None` if it is not online.
    pub(crate) node: Option<usize>,
    /// The index of its pod in its pool.
    pub(crate) pod: u32,
}

/// What a job would get from one class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) class: usize,
    which: Which,
    /// Cores and GPUs of the node of which something is left.
    shared: (u32, u32),
    /// What is left of the last of the whole nodes.
    left: (u32, u32),
}

/// Which free nodes of a class.
#[derive(Clone, Debug, PartialEq)]
enum Which {
    /// So many, from the first.
    First(usize),
    /// Those at these positions.
    At(Vec<usize>),
}

impl Class {
    /// Whether its nodes are of use for a need. `Unknown`: that depends on each node.
    pub(crate) fn matches(&self, need: &Need, constraint: &Constraint) -> Match {
        if need.accepts(self.cores, self.gpus) {
            constraint.matches(&self.property, None)
        } else {
            Match::No
        }
    }

    /// How many more nodes the class must have to meet a need.
    pub(crate) fn missing(&self, need: Need) -> u32 {
        let rest = self.share(need).1;
        let free = u32::try_from(self.free.len()).unwrap_or(u32::MAX);
        rest.node_count(self.cores, self.gpus).saturating_sub(free)
    }

    /// What of a need is met by the node that is shared, and the rest.
    fn share(&self, need: Need) -> ((u32, u32), Need) {
        match need {
            Need::Tasks { count, cores, gpus } => {
                let fits = need.amount_per_node(self.left.0, self.left.1).min(count);
                let shared = (fits.saturating_mul(cores), fits.saturating_mul(gpus));
                (shared, need.with_amount(count.saturating_sub(fits)))
            }
            Need::Nodes { .. } => ((0, 0), need),
        }
    }
}

/// What a job would get from a class, and what it needs beyond that. `None`: nothing.
pub(crate) fn part(
    instance: &Instance,
    classes: &[Class],
    class: usize,
    need: Need,
    constraint: &Constraint,
) -> Option<(Part, Need)> {
    let of = &classes[class];
    if of.free.is_empty() && of.left == (0, 0) {
        return None;
    }
    let chosen = match of.matches(&need, constraint) {
        Match::No => return None,
        Match::Yes => None,
        Match::Unknown => Some(matching(instance, of, constraint)),
    };
    let (shared, rest) = if chosen.is_some() { ((0, 0), need) } else { of.share(need) };
    let wanted = usize::try_from(rest.node_count(of.cores, of.gpus)).unwrap_or(usize::MAX);
    let which = match chosen {
        None => Which::First(wanted.min(of.free.len())),
        Some(mut positions) => {
            positions.truncate(wanted);
            Which::At(positions)
        }
    };
    let count = match &which {
        Which::First(count) => *count,
        Which::At(positions) => positions.len(),
    };
    if count == 0 && shared == (0, 0) {
        return None;
    }
    let (rest, left) = beyond(rest, u32::try_from(count).unwrap_or(u32::MAX), of);
    Some((Part { class, which, shared, left }, rest))
}

/// What a need is beyond so many whole nodes of a class, and what is left of the last of them.
fn beyond(need: Need, nodes: u32, class: &Class) -> (Need, (u32, u32)) {
    let (wanted, _) = need.amount();
    let per_node = need.amount_per_node(class.cores, class.gpus);
    let capacity = nodes.saturating_mul(per_node);
    let rest = need.with_amount(wanted.saturating_sub(capacity));
    let Need::Tasks { cores, gpus, .. } = need else { return (rest, (0, 0)) };
    // The last node may be partly used.
    let on_last = per_node.saturating_sub(capacity.saturating_sub(wanted));
    let left = (
        class.cores.saturating_sub(on_last.saturating_mul(cores)),
        class.gpus.saturating_sub(on_last.saturating_mul(gpus)),
    );
    (rest, if nodes == 0 || left.0 == 0 { (0, 0) } else { left })
}

/// Positions of the free nodes of a class that match a constraint about ranks or names.
fn matching(instance: &Instance, class: &Class, constraint: &Constraint) -> Vec<usize> {
    let matches = |free: &FreeNode| {
        free.node.and_then(|node| instance.nodes.get(node)).is_some_and(|node| {
            let place = Some((node.rank, node.host.as_str()));
            constraint.matches(&class.property, place) == Match::Yes
        })
    };
    (0..class.free.len()).filter(|&position| matches(&class.free[position])).collect()
}

/// Gives a job its part. Returns the highest pod index of the nodes, if there are whole ones.
pub(crate) fn take(classes: &mut [Class], part: Part) -> Option<u32> {
    let class = &mut classes[part.class];
    let taken: Vec<FreeNode> = match part.which {
        Which::First(count) => class.free.drain(..count).collect(),
        Which::At(positions) => {
            // From the last, so that the others keep their positions.
            positions.iter().rev().filter_map(|&position| class.free.remove(position)).collect()
        }
    };
    class.left = (class.left.0 - part.shared.0, class.left.1 - part.shared.1);
    if part.left.0 > class.left.0 {
        class.left = part.left;
    }
    taken.iter().map(|free| free.pod).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::instance;

    fn class(free: u32) -> Class {
        let free = (0..free).map(|pod| FreeNode { node: Some(pod as usize), pod }).collect();
        Class { property: "home".into(), cores: 4, gpus: 1, free, ..Class::default() }
    }

    /// The rest of each need, in order, on a class of so many nodes.
    fn rests(free: u32, needs: &[Need]) -> Vec<Need> {
        let (mut classes, instance) = ([class(free)], instance(free, free));
        let mut rests = Vec::new();
        for &need in needs {
            match part(&instance, &classes, 0, need, &Constraint::Any) {
                None => rests.push(need),
                Some((part, rest)) => {
                    take(&mut classes, part);
                    rests.push(rest);
                }
            }
        }
        rests
    }

    #[test]
    fn jobs_that_request_tasks_share_a_node() {
        let cores = |count| Need::Tasks { count, cores: 1, gpus: 0 };
        assert_eq!(
            rests(2, &[cores(3), cores(1), cores(4), cores(1)]),
            [cores(0), cores(0), cores(0), cores(1)]
        );
        assert_eq!(rests(2, &[cores(5), cores(4)]), [cores(0), cores(1)]);
    }

    #[test]
    fn jobs_that_request_nodes_get_whole_ones() {
        let nodes = |count| Need::Nodes { count, cores: 1, gpus: 0 };
        let cores = |count| Need::Tasks { count, cores: 1, gpus: 0 };
        assert_eq!(rests(3, &[nodes(1), cores(1), nodes(2)]), [nodes(0), cores(0), nodes(1)]);
        let wide = Need::Nodes { count: 1, cores: 5, gpus: 0 };
        assert_eq!(rests(3, &[wide]), [wide]);
    }

    #[test]
    fn gpus_are_counted_beside_cores() {
        let need = |count| Need::Tasks { count, cores: 1, gpus: 1 };
        assert_eq!(rests(3, &[need(2), need(2)]), [need(0), need(1)]);
        let wide = |count| Need::Tasks { count, cores: 3, gpus: 0 };
        let one = Need::Tasks { count: 1, cores: 1, gpus: 0 };
        assert_eq!(rests(2, &[wide(1), wide(2), one]), [wide(0), wide(1), one.with_amount(0)]);
    }

    #[test]
    fn a_constraint_chooses_nodes_by_rank() {
        let (mut classes, instance) = ([class(4)], instance(4, 4));
        let constraint = Constraint::parse(r#"{"ranks": ["1,3"]}"#).unwrap();
        let need = Need::Nodes { count: 3, cores: 1, gpus: 0 };
        let (part, rest) = part(&instance, &classes, 0, need, &constraint).unwrap();
        assert_eq!(rest, Need::Nodes { count: 1, cores: 1, gpus: 0 });
        assert_eq!(take(&mut classes, part), Some(3));
        let pods: Vec<_> = classes[0].free.iter().map(|free| free.pod).collect();
        assert_eq!(pods, [0, 2]);
    }

    #[test]
    fn missing_nodes_are_those_beyond_free_ones() {
        let need = |count| Need::Nodes { count, cores: 1, gpus: 0 };
        assert_eq!(class(2).missing(need(5)), 3);
        assert_eq!(class(2).missing(need(1)), 0);
        assert_eq!(class(1).missing(Need::Tasks { count: 9, cores: 1, gpus: 0 }), 2);
    }
}
