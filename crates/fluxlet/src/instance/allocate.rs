//! Allocates cores of nodes to a job.
//!
//! As in Flux's simple scheduler, whole nodes are allocated in rank order, and parts of nodes from
//! the node with the most free cores first, so that jobs spread out. A request is unsatisfiable if
//! it would not fit even with every node online and idle; a request that can fit later waits.

use flux_operator_flux::IdSet;

use super::node::Node;
use crate::submission::Shape;

/// A job's allocation on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAllocation {
    pub rank: u32,
    pub host: String,
    pub cores: IdSet,
    pub gpus: IdSet,
    /// How many tasks run here.
    pub tasks: u32,
}

/// Allocates resources for a job of this `shape` from `nodes`, which are ascending by rank. `None`
/// if the job has to wait. The error is Flux's message if it can never run.
pub fn allocate(shape: &Shape, nodes: &[Node]) -> Result<Option<Vec<NodeAllocation>>, String> {
    let allocation = fit(shape, nodes, Node::is_usable);
    if allocation.is_none() {
        let mut all: Vec<Node> = nodes.to_vec();
        for node in &mut all {
            node.used_cores = IdSet::new();
            node.used_gpus = IdSet::new();
        }
        if fit(shape, &all, |node| !node.excluded).is_none() {
            return Err(explain_unsatisfiable(shape, nodes));
        }
    }
    Ok(allocation)
}

fn fit(
    shape: &Shape,
    nodes: &[Node],
    usable: impl Fn(&Node) -> bool,
) -> Option<Vec<NodeAllocation>> {
    let candidates: Vec<&Node> = nodes.iter().filter(|node| usable(node)).collect();
    let mut shares = match shape.nodes {
        Some(count) if shape.exclusive => whole_nodes(count, shape, &candidates)?,
        Some(count) => parts_of_nodes(count, shape, &candidates)?,
        None => slots(shape, candidates)?,
    };
    shares.sort_by_key(|share| share.rank);
    place_tasks(shape, &mut shares);
    Some(shares)
}

fn whole_nodes(count: u32, shape: &Shape, nodes: &[&Node]) -> Option<Vec<NodeAllocation>> {
    let gpus = u64::from(shape.slots) * u64::from(shape.gpus);
    let fits = |node: &&&Node| node.is_idle() && node.gpus.len() >= gpus;
    let chosen = nodes.iter().filter(fits).take(count as usize);
    let shares: Vec<NodeAllocation> = chosen
        .map(|node| node_allocation(node, node.cores.clone(), node.gpus.clone(), shape.slots))
        .collect();
    (shares.len() == count as usize).then_some(shares)
}

fn parts_of_nodes(count: u32, shape: &Shape, nodes: &[&Node]) -> Option<Vec<NodeAllocation>> {
    let mut by_free_cores: Vec<&&Node> =
        nodes.iter().filter(|node| free_slots(node, shape) >= u64::from(shape.slots)).collect();
    by_free_cores.sort_by_key(|node| std::cmp::Reverse(node.free_cores().len()));
    let chosen = by_free_cores.into_iter().take(count as usize);
    let shares: Vec<NodeAllocation> =
        chosen.map(|node| take_slots(node, shape, shape.slots)).collect();
    (shares.len() == count as usize).then_some(shares)
}

/// As many slots as fit on the node with the most free cores, then on the next.
fn slots(shape: &Shape, mut nodes: Vec<&Node>) -> Option<Vec<NodeAllocation>> {
    nodes.sort_by_key(|node| std::cmp::Reverse(node.free_cores().len()));
    let mut left = u64::from(shape.slots);
    let mut shares = Vec::new();
    for node in nodes {
        let here = free_slots(node, shape).min(left);
        if here > 0 {
            shares.push(take_slots(node, shape, here as u32));
            left -= here;
        }
    }
    (left == 0).then_some(shares)
}

/// How many slots fit on a node.
fn free_slots(node: &Node, shape: &Shape) -> u64 {
    let by_cores = node.free_cores().len() / u64::from(shape.cores.max(1));
    match shape.gpus {
        0 => by_cores,
        gpus => by_cores.min(node.free_gpus().len() / u64::from(gpus)),
    }
}

fn take_slots(node: &Node, shape: &Shape, slots: u32) -> NodeAllocation {
    let cores = take_first(&node.free_cores(), u64::from(slots) * u64::from(shape.cores.max(1)));
    let gpus = take_first(&node.free_gpus(), u64::from(slots) * u64::from(shape.gpus));
    node_allocation(node, cores, gpus, slots)
}

fn node_allocation(node: &Node, cores: IdSet, gpus: IdSet, tasks: u32) -> NodeAllocation {
    NodeAllocation { rank: node.rank, host: node.host.clone(), cores, gpus, tasks }
}

fn take_first(ids: &IdSet, count: u64) -> IdSet {
    ids.iter().take(usize::try_from(count).unwrap_or(usize::MAX)).collect()
}

/// Distributes the tasks in blocks, if their number does not follow from the slots.
fn place_tasks(shape: &Shape, shares: &mut [NodeAllocation]) {
    if shape.per_node {
        shares.iter_mut().for_each(|share| share.tasks = 1);
    } else if let (Some(total), Some(nodes)) = (shape.tasks, shape.nodes) {
        for (share, index) in shares.iter_mut().zip(0..) {
            share.tasks = total / nodes + u32::from(index < total % nodes);
        }
    }
}

/// Why the request can never be satisfied.
fn explain_unsatisfiable(shape: &Shape, nodes: &[Node]) -> String {
    let eligible = nodes.iter().filter(|node| !node.excluded);
    let total = |kind: fn(&Node) -> &IdSet| eligible.clone().map(|node| kind(node).len()).sum();
    let (cores, gpus): (u64, u64) = (total(|node| &node.cores), total(|node| &node.gpus));
    let slots = shape.slot_count();
    let fitting = |each: u32, kind: fn(&Node) -> &IdSet| -> u64 {
        eligible.clone().map(|node| kind(node).len() / u64::from(each.max(1))).sum()
    };
    let gpu_slots = fitting(shape.gpus, |node| &node.gpus);
    let reason = if let Some(count) = shape.nodes {
        let each = |number: u32| u64::from(shape.slots) * u64::from(number);
        let (cores, gpus) = (each(shape.cores.max(1)), each(shape.gpus));
        let kind = match (shape.exclusive, gpus) {
            (true, _) => "exclusive node(s)".to_owned(),
            (false, 0) => format!("node(s) with {cores} cores each"),
            (false, gpus) => format!("node(s) with {cores} cores and {gpus} GPUs each"),
        };
        let fitting = |node: &&Node| {
            node.gpus.len() >= gpus && (shape.exclusive || node.cores.len() >= cores)
        };
        format!("need {count} {kind}, only {} eligible", eligible.clone().filter(fitting).count())
    } else if shape.gpus > 0 && gpu_slots < u64::from(slots) {
        format!(
            "need {slots} slot(s) with {} GPU(s) each, only {gpu_slots} available (total GPUs: {gpus})",
            shape.gpus
        )
    } else {
        format!(
            "need {slots} slot(s) of {} core(s), only {} such slot(s) available (total cores: {cores})",
            shape.cores,
            fitting(shape.cores, |node| &node.cores)
        )
    };
    format!("unsatisfiable request: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::node::BrokerPresence;
    use proptest::prelude::*;

    fn nodes(count: u32, cores: u32) -> Vec<Node> {
        let node = |rank| {
            let mut node = Node::new(rank, format!("fs-{rank}"), IdSet::first_n(cores), 0.0);
            node.presence = BrokerPresence::Online;
            node
        };
        (0..count).map(node).collect()
    }

    fn tasks(slots: u32) -> Shape {
        Shape { slots, cores: 1, ..Shape::default() }
    }

    fn allocations(shape: &Shape, nodes: &[Node]) -> Vec<(u32, String, u32)> {
        let shares = allocate(shape, nodes).unwrap().unwrap();
        shares.iter().map(|share| (share.rank, share.cores.to_string(), share.tasks)).collect()
    }

    #[test]
    fn jobs_spread_over_the_emptiest_nodes() {
        let mut nodes = nodes(3, 2);
        nodes[0].allocate(&IdSet::first_n(2), &IdSet::new());
        assert_eq!(allocations(&tasks(1), &nodes), [(1, "0".to_owned(), 1)]);
        nodes[1].allocate(&IdSet::first_n(1), &IdSet::new());
        assert_eq!(allocations(&tasks(1), &nodes), [(2, "0".to_owned(), 1)]);
        let both = [(1, "1".to_owned(), 1), (2, "0-1".to_owned(), 2)];
        assert_eq!(allocations(&tasks(3), &nodes), both);
    }

    #[test]
    fn whole_nodes_are_idle_ones_in_order() {
        let mut nodes = nodes(3, 2);
        nodes[0].allocate(&IdSet::first_n(1), &IdSet::new());
        let shape = Shape { nodes: Some(2), exclusive: true, ..tasks(1) };
        let expected = [(1, "0-1".to_owned(), 1), (2, "0-1".to_owned(), 1)];
        assert_eq!(allocations(&shape, &nodes), expected);
        assert_eq!(allocate(&Shape { nodes: Some(3), ..shape }, &nodes), Ok(None), "it waits");
        nodes[0].excluded = true;
        assert!(allocate(&Shape { nodes: Some(3), ..shape }, &nodes).is_err());
    }

    #[test]
    fn uneven_tasks_fill_the_first_nodes() {
        let shape = Shape { nodes: Some(2), tasks: Some(3), ..tasks(2) };
        let counts: Vec<u32> =
            allocations(&shape, &nodes(2, 2)).iter().map(|place| place.2).collect();
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn nodes_that_are_down_are_waited_for() {
        let mut nodes = nodes(4, 2);
        nodes[3].presence = BrokerPresence::Offline;
        let shape = Shape { nodes: Some(4), exclusive: true, ..tasks(1) };
        assert_eq!(allocate(&shape, &nodes), Ok(None));
        nodes[3].presence = BrokerPresence::Online;
        nodes[2].drained = Some(crate::message::Drain { timestamp: 0.0, reason: None });
        assert_eq!(allocate(&shape, &nodes), Ok(None));
    }

    #[test]
    fn unsatisfiable_requests_are_explained_as_in_flux() {
        let nodes = nodes(4, 2);
        let exclusive = Shape { nodes: Some(9), exclusive: true, ..tasks(1) };
        for (shape, reason) in [
            (exclusive, "need 9 exclusive node(s), only 4 eligible"),
            (
                Shape { gpus: 1, ..tasks(1) },
                "need 1 slot(s) with 1 GPU(s) each, only 0 available (total GPUs: 0)",
            ),
            (
                tasks(100),
                "need 100 slot(s) of 1 core(s), only 8 such slot(s) available (total cores: 8)",
            ),
        ] {
            let error = allocate(&shape, &nodes).unwrap_err();
            assert_eq!(error, format!("unsatisfiable request: {reason}"));
        }
    }

    proptest! {
        #[test]
        fn no_core_is_allocated_twice(
            shapes in prop::collection::vec((0u32..4, 1u32..4, 1u32..3, any::<bool>()), 1..20)
        ) {
            let mut nodes = nodes(4, 4);
            for (count, slots, cores, exclusive) in shapes {
                let shape = Shape {
                    nodes: (count > 0).then_some(count),
                    exclusive: exclusive && count > 0,
                    slots,
                    cores,
                    ..Shape::default()
                };
                let Ok(Some(shares)) = allocate(&shape, &nodes) else { continue };
                let tasks: u32 = shares.iter().map(|share| share.tasks).sum();
                prop_assert_eq!(tasks, shape.task_count());
                for share in shares {
                    let node = &mut nodes[share.rank as usize];
                    prop_assert!(share.cores.is_subset(&node.free_cores()));
                    prop_assert!(!share.cores.is_empty());
                    node.allocate(&share.cores, &share.gpus);
                }
            }
        }
    }
}
