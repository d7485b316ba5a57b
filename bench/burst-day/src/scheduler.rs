//! The scheduler at home: first come, first served, with EASY backfill, as Fluxion's queue policy `easy`.
//!
//! Jobs start in order. The first that cannot start gets a reservation: the earliest time at which
//! enough nodes are free if every job runs until its limit. Jobs behind it start if they do not delay
//! that. A job that needs more nodes than are online gets no reservation, and keeps no other from
//! starting, as in Flux.

/// A job that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How many nodes it needs.
    pub nodes: u32,
    /// Its time limit, in seconds.
    pub limit: u64,
}

/// A job that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// How many of its nodes are free when it has finished.
    pub nodes: u32,
    /// When it has finished at the latest.
    pub ends_by: u64,
}

/// What the scheduler does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The jobs that start, by their position.
    pub starts: Vec<usize>,
    /// The job with the reservation, by its position, and when it starts at the latest.
    pub reserved: Option<(usize, u64)>,
}

/// Schedules jobs, in the order of their queue, on `free` nodes.
pub fn easy(now: u64, free: u32, running: &[Running], waiting: &[Waiting]) -> Schedule {
    let mut schedule = Schedule::default();
    let mut running = running.to_vec();
    let mut free = free;
    let online = free + running.iter().map(|job| job.nodes).sum::<u32>();
    // Nodes that are left when the reserved job has started.
    let mut extra = 0;
    for (position, job) in waiting.iter().enumerate() {
        let ends_by = now + job.limit;
        let may_start = job.nodes <= free
            && schedule.reserved.is_none_or(|(_, at)| ends_by <= at || job.nodes <= extra);
        if may_start {
            if schedule.reserved.is_some_and(|(_, at)| ends_by > at) {
                extra -= job.nodes;
            }
            free -= job.nodes;
            running.push(Running { nodes: job.nodes, ends_by });
            schedule.starts.push(position);
        } else if schedule.reserved.is_none() && job.nodes <= online {
            let (at, free_then) = reservation(free, &running, job.nodes);
            schedule.reserved = Some((position, at.max(now)));
            extra = free_then - job.nodes;
        }
    }
    schedule
}

/// When so many nodes are free, and how many there are then.
fn reservation(free: u32, running: &[Running], nodes: u32) -> (u64, u32) {
    let mut ends: Vec<&Running> = running.iter().collect();
    ends.sort_by_key(|job| job.ends_by);
    let (mut free, mut at) = (free, 0);
    for job in ends {
        // Jobs that end at the same time count together.
        if free >= nodes && job.ends_by > at {
            break;
        }
        free += job.nodes;
        at = job.ends_by;
    }
    (at, free)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job(nodes: u32, limit: u64) -> Waiting {
        Waiting { nodes, limit }
    }

    fn until(nodes: u32, ends_by: u64) -> Running {
        Running { nodes, ends_by }
    }

    #[test]
    fn jobs_start_in_order() {
        let schedule = easy(0, 4, &[], &[job(2, 10), job(1, 10), job(1, 10), job(1, 10)]);
        assert_eq!(schedule.starts, [0, 1, 2]);
        assert_eq!(schedule.reserved, Some((3, 10)));
    }

    #[test]
    fn a_job_that_delays_the_first_does_not_start() {
        let running = [until(2, 100)];
        let cases = [
            // It would still run at 100, on a node that the first job needs.
            (job(1, 101), vec![]),
            (job(1, 100), vec![1]),
            (job(3, 10), vec![]),
        ];
        for (second, starts) in cases {
            let schedule = easy(0, 2, &running, &[job(4, 50), second]);
            assert_eq!(
                (schedule.starts, schedule.reserved),
                (starts, Some((0, 100))),
                "{second:?}"
            );
        }
        // Of 4 nodes that are free at 100, the first job leaves one.
        let schedule = easy(0, 2, &running, &[job(3, 50), job(1, 999), job(1, 999)]);
        assert_eq!(schedule.starts, [1], "the node that is left is used once");
    }

    #[test]
    fn a_job_larger_than_what_is_online_blocks_no_other() {
        let schedule = easy(0, 2, &[until(2, 100)], &[job(5, 10), job(3, 10), job(2, 999)]);
        assert_eq!((schedule.starts, schedule.reserved), (vec![], Some((1, 100))));
        let schedule = easy(0, 2, &[], &[job(5, 10), job(2, 999)]);
        assert_eq!((schedule.starts, schedule.reserved), (vec![1], None));
    }

    fn running() -> impl Strategy<Value = Vec<Running>> {
        let job = (1..6_u32, 1..50_u64).prop_map(|(nodes, ends_by)| until(nodes, ends_by));
        proptest::collection::vec(job, 0..6)
    }

    fn waiting() -> impl Strategy<Value = Vec<Waiting>> {
        proptest::collection::vec((1..10_u32, 1..60_u64).prop_map(|(n, l)| job(n, l)), 0..12)
    }

    proptest! {
        #[test]
        fn no_more_nodes_are_used_than_are_free(
            free in 0..12_u32, running in running(), waiting in waiting()
        ) {
            let schedule = easy(0, free, &running, &waiting);
            let used: u32 = schedule.starts.iter().map(|&it| waiting[it].nodes).sum();
            prop_assert!(used <= free);
            // A second time, nothing more starts.
            let (mut after, mut rest) = (running, Vec::new());
            for (position, it) in waiting.iter().enumerate() {
                match schedule.starts.contains(&position) {
                    true => after.push(until(it.nodes, it.limit)),
                    false => rest.push(*it),
                }
            }
            prop_assert_eq!(easy(0, free - used, &after, &rest).starts, Vec::<usize>::new());
        }

        /// Without the jobs behind it, the first that waits would not start earlier.
        #[test]
        fn the_first_job_is_never_delayed_by_backfill(
            free in 0..12_u32, running in running(), waiting in waiting()
        ) {
            let schedule = easy(0, free, &running, &waiting);
            if let Some((first, at)) = schedule.reserved {
                let alone = easy(0, free, &running, &waiting[..=first]);
                prop_assert_eq!(alone.reserved, Some((first, at)));
                // At that time, enough nodes are free if all jobs run until their limits.
                let ended = running.iter().filter(|it| it.ends_by <= at).map(|it| it.nodes);
                let started = schedule.starts.iter().map(|&it| waiting[it]);
                let busy = started.filter(|it| it.limit > at).map(|it| it.nodes);
                let free_then = free + ended.sum::<u32>() - busy.sum::<u32>();
                prop_assert!(free_then >= waiting[first].nodes);
            }
        }
    }
}
