//! The simulated world: nodes, jobs and bursts, and how they change with time.
//!
//! A burst here follows the rules of the burst controller (`docs/concepts/burst.md`, "The life of a
//! Burst"): its idle time starts when all of its nodes are up, ends when a job starts on one or when it
//! grows, and then it is given back. It costs from the request of its nodes until they are deleted, which
//! is how the controller counts too.

use std::collections::{BTreeMap, VecDeque};

use crate::cloud::{Cloud, RELEASE_SECONDS};
use crate::load::Job;
use crate::scheduler::{self, easy};

/// The state of everything at one time.
#[derive(Clone, Debug)]
pub struct World {
    /// Seconds since midnight of the first day.
    pub now: u64,
    /// Nodes at home: ranks from 0.
    pub home: u32,
    /// Nodes that exist, by rank: those at home, and those of bursts that are up or coming up.
    pub nodes: BTreeMap<u32, Node>,
    /// Bursts, by id, in the order of their creation.
    pub bursts: BTreeMap<u64, Burst>,
    /// Jobs that wait, in the order of submission.
    pub waiting: Vec<Job>,
    /// Jobs that run.
    pub running: Vec<RunningJob>,
    /// The job with a reservation and its time, if there is one.
    pub reserved: Option<(u64, u64)>,
    /// Every node of a burst, since its request.
    pub paid: Vec<PaidNode>,
    submissions: VecDeque<Job>,
    random: fastrand::Rng,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// When it is up.
    pub up_at: u64,
    /// The job that runs on it.
    pub job: Option<u64>,
    /// The burst that it belongs to.
    pub burst: Option<u64>,
}

/// A group of nodes elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    /// Where they are.
    pub cloud: Cloud,
    /// How many there should be: the first of `ranks`.
    pub nodes: u32,
    /// The ranks that are leased for it, in the order of its pods.
    pub ranks: Vec<u32>,
    /// The only job that may run on its nodes. `None`: any.
    pub only_for: Option<u64>,
    /// The jobs that it was requested for.
    pub jobs: Vec<u64>,
    /// After how many seconds without a job it is given back by itself.
    pub idle_seconds: Option<u64>,
    /// When it was created.
    pub created: u64,
    /// Since when nodes that are not up have been requested.
    pub joining_since: u64,
    /// When its first node was up.
    pub joined_at: Option<u64>,
    /// Since when no job has run on its nodes, all of which are up.
    pub idle_since: Option<u64>,
    /// No more jobs start on its nodes, and it is given back when none runs there.
    pub is_draining: bool,
    /// Since when it has been given back: its nodes are not used any more.
    pub given_back_at: Option<u64>,
}

/// A job that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningJob {
    /// The job.
    pub job: Job,
    /// When it was started.
    pub started: u64,
    /// The ranks of its nodes.
    pub ranks: Vec<u32>,
}

/// A node of a burst, for as long as it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaidNode {
    /// The burst.
    pub burst: u64,
    /// Its rank.
    pub rank: u32,
    /// When it was requested.
    pub from: u64,
    /// When it was deleted. `None`: it exists.
    pub until: Option<u64>,
    /// Price of an hour.
    pub price: f64,
}

/// A change of bursts that a strategy makes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Create a burst.
    Create {
        /// Its id, which no other has had.
        id: u64,
        /// Where.
        cloud: Cloud,
        /// How many nodes are requested.
        nodes: u32,
        /// How many ranks are leased, at least as many.
        ranks: u32,
        /// The only job that may run on its nodes. `None`: any.
        only_for: Option<u64>,
        /// The jobs that it is for.
        jobs: Vec<u64>,
        /// After how many seconds without a job it is given back by itself.
        idle_seconds: Option<u64>,
    },
    /// Change the number of nodes of a burst.
    Resize {
        /// Its id.
        id: u64,
        /// How many nodes it should have.
        nodes: u32,
    },
    /// Give a burst back. No job runs on its nodes.
    GiveBack {
        /// Its id.
        id: u64,
    },
    /// Give a burst back when the jobs on its nodes have finished.
    Drain {
        /// Its id.
        id: u64,
    },
}

impl World {
    /// Home, with the jobs that will be submitted.
    pub fn new(home: u32, jobs: Vec<Job>, seed: u64) -> World {
        let node = Node { up_at: 0, job: None, burst: None };
        World {
            now: 0,
            home,
            nodes: (0..home).map(|rank| (rank, node)).collect(),
            bursts: BTreeMap::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            reserved: None,
            paid: Vec::new(),
            submissions: jobs.into(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// When something happens next, if anything does without a strategy.
    pub fn next_event(&self) -> Option<u64> {
        let submitted = self.submissions.front().map(|job| job.submitted);
        let finished = self.running.iter().map(|it| it.started + it.job.duration);
        let up = self.nodes.values().map(|node| node.up_at).filter(|at| *at > self.now);
        let bursts = self.bursts.values().filter_map(|burst| match burst.given_back_at {
            Some(since) => Some(since + RELEASE_SECONDS),
            None => Some(burst.idle_since? + burst.idle_seconds?),
        });
        submitted.into_iter().chain(finished).chain(up).chain(bursts).min()
    }

    /// Whether all jobs have been submitted and none waits or runs.
    pub fn is_done(&self) -> bool {
        self.submissions.is_empty() && self.waiting.is_empty() && self.running.is_empty()
    }

    /// Goes to a time, not beyond the next event. Returns the jobs that have finished.
    pub fn advance(&mut self, to: u64) -> Vec<RunningJob> {
        self.now = to;
        let finished: Vec<RunningJob> =
            self.running.extract_if(.., |it| it.started + it.job.duration <= to).collect();
        for rank in finished.iter().flat_map(|it| &it.ranks) {
            if let Some(node) = self.nodes.get_mut(rank) {
                node.job = None;
            }
        }
        while let Some(job) = self.submissions.pop_front_if(|job| job.submitted <= to) {
            self.waiting.push(job);
        }
        self.bursts.retain(|_, it| it.given_back_at.is_none_or(|at| at + RELEASE_SECONDS > to));
        self.start_jobs();
        self.note_idle_bursts();
        finished
    }

    /// Makes a change that a strategy wants.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Create { id, cloud, nodes, ranks, only_for, jobs, idle_seconds } => {
                let ranks = self.free_ranks(ranks);
                let burst = Burst {
                    cloud,
                    nodes,
                    ranks: ranks.clone(),
                    only_for,
                    jobs,
                    idle_seconds,
                    created: self.now,
                    joining_since: self.now,
                    joined_at: None,
                    idle_since: None,
                    is_draining: false,
                    given_back_at: None,
                };
                self.bursts.insert(id, burst);
                self.request_nodes(id, cloud, &ranks[..nodes as usize]);
            }
            Change::Resize { id, nodes } => self.resize(id, nodes),
            Change::GiveBack { id } => self.give_back(id),
            Change::Drain { id } => {
                if let Some(burst) = self.bursts.get_mut(&id) {
                    burst.is_draining = true;
                }
                self.note_idle_bursts();
            }
        }
    }

    /// Whether the broker on a rank is online.
    pub fn is_online(&self, rank: u32) -> bool {
        self.nodes.get(&rank).is_some_and(|node| node.up_at <= self.now)
    }

    /// How many nodes of a burst are online.
    pub fn online_nodes(&self, burst: &Burst) -> u32 {
        let online = burst.ranks.iter().filter(|rank| self.is_online(**rank));
        u32::try_from(online.count()).unwrap_or(u32::MAX)
    }

    /// Node-hours and cost of bursts since a time.
    pub fn used_since(&self, since: u64) -> (f64, f64) {
        self.paid.iter().fold((0.0, 0.0), |(hours, cost), node| {
            let until = node.until.unwrap_or(self.now).min(self.now);
            let used = until.saturating_sub(node.from.max(since)) as f64 / crate::HOUR as f64;
            (hours + used, cost + used * node.price)
        })
    }

    /// Starts jobs that have nodes of their own, and those that the scheduler starts.
    fn start_jobs(&mut self) {
        let own: Vec<(u64, Vec<u32>)> = (self.bursts.values())
            .filter(|burst| burst.given_back_at.is_none())
            .filter(|burst| self.online_nodes(burst) == burst.nodes)
            .filter_map(|burst| Some((burst.only_for?, burst.ranks.clone())))
            .collect();
        for (id, ranks) in own {
            if let Some(position) = self.waiting.iter().position(|job| job.id == id) {
                let job = self.waiting.remove(position);
                self.start(job, ranks);
            }
        }
        let mut free: VecDeque<u32> = self.shared_ranks(|node| node.job.is_none()).collect();
        let running: Vec<scheduler::Running> = (self.running.iter())
            .map(|it| {
                let shared = it.ranks.iter().filter(|rank| self.is_shared(**rank));
                let nodes = u32::try_from(shared.count()).unwrap_or(u32::MAX);
                scheduler::Running { nodes, ends_by: it.started + it.job.limit }
            })
            .collect();
        let waiting: Vec<scheduler::Waiting> = (self.waiting.iter())
            .map(|job| scheduler::Waiting { nodes: job.nodes, limit: job.limit })
            .collect();
        let count = u32::try_from(free.len()).unwrap_or(u32::MAX);
        let schedule = easy(self.now, count, &running, &waiting);
        self.reserved = schedule.reserved.map(|(job, at)| (self.waiting[job].id, at));
        let waiting = std::mem::take(&mut self.waiting);
        for (position, job) in waiting.into_iter().enumerate() {
            if schedule.starts.contains(&position) {
                // From the lowest rank, as Fluxion does: those at home first.
                let ranks = free.drain(..job.nodes as usize).collect();
                self.start(job, ranks);
            } else {
                self.waiting.push(job);
            }
        }
    }

    fn start(&mut self, job: Job, ranks: Vec<u32>) {
        for rank in &ranks {
            if let Some(node) = self.nodes.get_mut(rank) {
                node.job = Some(job.id);
            }
        }
        self.running.push(RunningJob { job, started: self.now, ranks });
    }

    /// Ranks that are online and that any job may use.
    fn shared_ranks(&self, is_wanted: impl Fn(&Node) -> bool) -> impl Iterator<Item = u32> {
        let nodes = self.nodes.iter();
        nodes
            .filter(move |(rank, node)| is_wanted(node) && self.is_shared(**rank))
            .map(|(rank, _)| *rank)
    }

    fn is_shared(&self, rank: u32) -> bool {
        let burst = self.nodes.get(&rank).and_then(|node| node.burst);
        let burst = burst.and_then(|burst| self.bursts.get(&burst));
        let admits_any = |burst: &Burst| burst.only_for.is_none() && !burst.is_draining;
        self.is_online(rank) && burst.is_none_or(admits_any)
    }

    /// Records since when bursts are idle, and gives those back whose time is over.
    fn note_idle_bursts(&mut self) {
        let busy: Vec<u64> =
            self.nodes.values().filter(|it| it.job.is_some()).filter_map(|it| it.burst).collect();
        let now = self.now;
        let mut over = Vec::new();
        let online: Vec<u32> = self.bursts.values().map(|burst| self.online_nodes(burst)).collect();
        for ((id, burst), online) in self.bursts.iter_mut().zip(online) {
            if online > 0 {
                burst.joined_at.get_or_insert(now);
            }
            if busy.contains(id) {
                burst.idle_since = None;
            } else if online == burst.nodes {
                burst.idle_since.get_or_insert(now);
            }
            let until = burst.idle_since.zip(burst.idle_seconds);
            let is_idle = until.is_some_and(|(at, idle)| at + idle <= now);
            let is_drained = burst.is_draining && !busy.contains(id);
            if burst.given_back_at.is_none() && (is_idle || is_drained) {
                over.push(*id);
            }
        }
        for id in over {
            self.give_back(id);
        }
    }

    /// Ranks beyond home that no burst has.
    fn free_ranks(&self, count: u32) -> Vec<u32> {
        let leased: Vec<u32> = self.bursts.values().flat_map(|it| it.ranks.clone()).collect();
        (self.home..).filter(|rank| !leased.contains(rank)).take(count as usize).collect()
    }

    fn request_nodes(&mut self, id: u64, cloud: Cloud, ranks: &[u32]) {
        let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let times = cloud.startup_times(count, &mut self.random);
        let price = cloud.price;
        for (&rank, time) in ranks.iter().zip(times) {
            let node = Node { up_at: self.now + time, job: None, burst: Some(id) };
            self.nodes.insert(rank, node);
            self.paid.push(PaidNode { burst: id, rank, from: self.now, until: None, price });
        }
    }

    fn resize(&mut self, id: u64, nodes: u32) {
        let Some(burst) = self.bursts.get_mut(&id) else { return };
        let before = std::mem::replace(&mut burst.nodes, nodes);
        let (cloud, ranks) = (burst.cloud, burst.ranks.clone());
        if nodes > before {
            burst.joining_since = self.now;
            // More nodes are for a job.
            burst.idle_since = None;
            self.request_nodes(id, cloud, &ranks[before as usize..nodes as usize]);
        } else {
            self.delete_nodes(&ranks[nodes as usize..before as usize], self.now);
        }
    }

    fn give_back(&mut self, id: u64) {
        let Some(burst) = self.bursts.get_mut(&id) else { return };
        burst.given_back_at = Some(self.now);
        let ranks = burst.ranks[..burst.nodes as usize].to_vec();
        self.delete_nodes(&ranks, self.now + RELEASE_SECONDS);
    }

    fn delete_nodes(&mut self, ranks: &[u32], until: u64) {
        for rank in ranks {
            let node = self.nodes.remove(rank);
            debug_assert!(node.is_some_and(|node| node.job.is_none()), "no job runs on it");
            let paid = self.paid.iter_mut().find(|it| it.rank == *rank && it.until.is_none());
            if let Some(paid) = paid {
                paid.until = Some(until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::GKE;

    fn job(id: u64, submitted: u64, nodes: u32, duration: u64) -> Job {
        Job { id, submitted, nodes, duration, limit: 2 * duration }
    }

    /// Two nodes at home, and a burst of this many that is given back after 100 seconds.
    fn world(nodes: u32, jobs: Vec<Job>) -> World {
        let mut world = World::new(2, jobs, 1);
        world.apply(Change::Create {
            id: 1,
            cloud: GKE,
            nodes,
            ranks: 4,
            only_for: None,
            jobs: Vec::new(),
            idle_seconds: Some(100),
        });
        world
    }

    /// Goes on until a time, event by event.
    fn run(world: &mut World, until: u64) {
        while let Some(next) = world.next_event().filter(|next| *next <= until) {
            world.advance(next);
        }
    }

    fn last_up(world: &World) -> u64 {
        world.nodes.values().map(|node| node.up_at).max().unwrap()
    }

    #[test]
    fn an_idle_burst_is_given_back_and_costs_until_it_is_deleted() {
        let mut world = world(2, Vec::new());
        let up = last_up(&world);
        run(&mut world, up + 99);
        assert_eq!(world.bursts[&1].idle_since, Some(up));
        assert_eq!(world.nodes.len(), 4);
        run(&mut world, u64::MAX);
        assert_eq!((world.now, world.bursts.len(), world.nodes.len()), (up + 110, 0, 2));
        assert!(world.paid.iter().all(|it| (it.from, it.until) == (0, Some(up + 110))));
        let hours = 2.0 * (up + 110) as f64 / 3600.0;
        let (used, cost) = world.used_since(0);
        assert!((used - hours).abs() < 1e-9 && (cost - hours * GKE.price).abs() < 1e-9);
    }

    #[test]
    fn a_burst_with_a_job_is_not_idle() {
        let mut world = world(2, vec![job(1, 0, 3, 1000)]);
        let up = last_up(&world);
        run(&mut world, up + 500);
        let started = world.running[0].started;
        assert!(started <= up, "one node of the burst is enough");
        assert_eq!(world.running[0].ranks[..2], [0, 1], "those at home come first");
        run(&mut world, u64::MAX);
        assert_eq!(world.now, started + 1000 + 110);
    }

    #[test]
    fn a_burst_that_grows_is_idle_when_all_nodes_are_up() {
        let mut world = world(1, Vec::new());
        let up = last_up(&world);
        run(&mut world, up + 50);
        world.apply(Change::Resize { id: 1, nodes: 3 });
        assert_eq!(world.bursts[&1].idle_since, None);
        let up = last_up(&world);
        run(&mut world, up);
        assert_eq!(world.bursts[&1].idle_since, Some(up));
        world.apply(Change::Resize { id: 1, nodes: 2 });
        assert_eq!(world.bursts[&1].idle_since, Some(up), "smaller, it is as idle as before");
        assert_eq!(world.nodes.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn only_its_job_runs_on_nodes_of_its_own() {
        let mut world = World::new(1, vec![job(1, 0, 1, 900), job(2, 0, 1, 900)], 1);
        world.advance(0);
        let own = |id, only_for| Change::Create {
            id,
            cloud: GKE,
            nodes: 1,
            ranks: 1,
            only_for: Some(only_for),
            jobs: vec![only_for],
            idle_seconds: None,
        };
        world.apply(own(1, 7));
        run(&mut world, 600);
        assert_eq!(world.waiting[0].id, 2, "the nodes are for another job");
        world.apply(own(2, 2));
        run(&mut world, 910);
        let it = world.running.iter().find(|it| it.job.id == 2).unwrap();
        assert!(it.started <= 900 && (it.ranks == [2] || it.ranks == [0]));
    }
}
