//! The loads of Kueue's scalability test: when jobs arrive, and how long they run.
//!
//! Every queue gets the same classes of jobs, each at a constant rate from the start. As in Kueue's
//! generator, a class also waits for its interval before the first job. Unlike there, queues do not
//! borrow from each other: a queue has only its own quota.

use std::time::Duration;

/// The jobs of one class, in every queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    pub(crate) name: &'static str,
    /// The number in each queue.
    pub(crate) count: u32,
    /// The time between two jobs.
    pub(crate) interval: Duration,
    /// How long each runs once it has quota.
    pub(crate) runtime: Duration,
    /// The cores that each uses.
    pub(crate) cpu: i64,
    pub(crate) priority: i32,
}

/// Queues and their jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) queues: usize,
    /// The cores that the jobs of a queue share.
    pub(crate) quota: i64,
    pub(crate) classes: &'static [Class],
}

/// The arrival of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    /// The time since the start.
    pub(crate) at: Duration,
    /// The number of its queue.
    pub(crate) queue: usize,
    /// The number of its class.
    pub(crate) class: usize,
    /// Its number within queue and class.
    pub(crate) number: u32,
}

/// 15,000 jobs in 30 queues.
pub(crate) const BASELINE: Load = Load {
    name: "baseline",
    queues: 30,
    quota: 20,
    classes: &[
        class("small", (350, 100, 200), (1, 50)),
        class("medium", (100, 500, 500), (5, 100)),
        class("large", (50, 1200, 1000), (20, 200)),
    ],
};

/// 50,000 jobs in 1,000 queues.
pub(crate) const LARGE_SCALE: Load = Load {
    name: "large-scale",
    queues: 1000,
    quota: 20,
    classes: &[
        class("small", (35, 60, 150), (1, 50)),
        class("medium", (11, 300, 350), (5, 100)),
        class("large", (4, 700, 700), (20, 200)),
    ],
};

/// Ten queues that always have waiting jobs, at a third of the baseline load's writes per second:
/// the time from a finished job to the next admission is then ours, and not the API server's.
pub(crate) const STEADY: Load = Load {
    name: "steady",
    queues: 10,
    quota: 2,
    classes: &[class("small", (100, 150, 500), (1, 50))],
};

const fn class(
    name: &'static str,
    (count, interval, runtime): (u32, u64, u64),
    (cpu, priority): (i64, i32),
) -> Class {
    let interval = Duration::from_millis(interval);
    let runtime = Duration::from_millis(runtime);
    Class { name, count, interval, runtime, cpu, priority }
}

impl Load {
    /// All jobs, in the order of their arrival.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        let mut all: Vec<Arrival> = Vec::with_capacity(self.jobs());
        for queue in 0..self.queues {
            for (class, Class { count, interval, .. }) in self.classes.iter().enumerate() {
                all.extend((1..=*count).map(|number| Arrival {
                    at: *interval * number,
                    queue,
                    class,
                    number,
                }));
            }
        }
        all.sort();
        all
    }

    /// The number of jobs.
    pub(crate) fn jobs(&self) -> usize {
        self.queues * self.classes.iter().map(|class| class.count as usize).sum::<usize>()
    }

    /// The core-seconds of all jobs.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let each = self
            .classes
            .iter()
            .map(|class| f64::from(class.count) * class.cpu as f64 * class.runtime.as_secs_f64());
        self.queues as f64 * each.sum::<f64>()
    }

    /// The seconds that the work takes if no core is ever idle.
    pub(crate) fn ideal_seconds(&self) -> f64 {
        self.cpu_seconds() / (self.queues as i64 * self.quota) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loads_are_those_of_the_specification() {
        assert_eq!((BASELINE.jobs(), LARGE_SCALE.jobs()), (15_000, 50_000));
        assert_eq!((BASELINE.ideal_seconds() * 10.0).round(), 660.0);
        assert_eq!((LARGE_SCALE.ideal_seconds() * 10.0).round(), 40.0);
    }

    #[test]
    fn jobs_arrive_in_order_and_after_their_interval() {
        let all = BASELINE.arrivals();
        assert_eq!(all.len(), 15_000);
        assert!(all.is_sorted_by_key(|arrival| arrival.at));
        assert_eq!(all[0].at, Duration::from_millis(100));
        assert_eq!(all[14_999].at, Duration::from_secs(60));
    }
}
