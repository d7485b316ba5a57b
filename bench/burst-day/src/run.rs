//! One simulated day, and a record of it.

use crate::HOUR;
use crate::load::Load;
use crate::strategy::Strategy;
use crate::world::{Burst, PaidNode, RunningJob, World};

/// The simulation ends when all jobs have finished, and at this time at the latest: what waits then will
/// never run.
pub const HORIZON: u64 = 48 * HOUR;

/// What has happened on a day.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The load's name.
    pub load: &'static str,
    /// The strategy's name.
    pub strategy: &'static str,
    /// Jobs that have finished.
    pub finished: Vec<RunningJob>,
    /// Ids and sizes of jobs that have never run.
    pub never_ran: Vec<(u64, u32)>,
    /// Nodes of bursts.
    pub paid: Vec<PaidNode>,
    /// The state after each event.
    pub samples: Vec<Sample>,
}

/// The state after an event, until the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When, in seconds since midnight.
    pub at: u64,
    /// Jobs that wait.
    pub waiting: u32,
    /// Nodes at home on which jobs run.
    pub busy_home: u32,
    /// Nodes of bursts on which jobs run.
    pub busy_burst: u32,
    /// Nodes of bursts that cost, busy or not.
    pub burst: u32,
    /// Of these, those that are not up yet.
    pub coming: u32,
    /// Of these, those that are idle and cannot be given back, because a job runs on a node of the same
    /// burst with a higher index. A burst shrinks from its last node.
    pub enclosed: u32,
}

/// Simulates a day. The same arguments give the same run.
pub fn simulate(load: &Load, home: u32, strategy: &mut dyn Strategy, seed: u64) -> Run {
    let mut world = World::new(home, load.jobs(seed), seed);
    let mut finished = Vec::new();
    let mut samples = Vec::new();
    loop {
        let wake = strategy.wake().filter(|_| !world.is_done()).map(|at| at.max(world.now + 1));
        let next = world.next_event().into_iter().chain(wake).min();
        let Some(next) = next.filter(|at| *at <= HORIZON) else { break };
        finished.extend(world.advance(next));
        for change in strategy.changes(&world) {
            world.apply(change);
        }
        samples.push(sample(&world));
    }
    Run {
        load: load.name,
        strategy: strategy.name(),
        finished,
        never_ran: world.waiting.iter().map(|job| (job.id, job.nodes)).collect(),
        paid: world.paid,
        samples,
    }
}

fn sample(world: &World) -> Sample {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let busy = |is_burst| {
        let nodes = world.nodes.values().filter(|node| node.burst.is_some() == is_burst);
        count(nodes.filter(|node| node.job.is_some()).count())
    };
    let paid = world.paid.iter().filter(|node| node.until.is_none_or(|until| until > world.now));
    Sample {
        at: world.now,
        waiting: count(world.waiting.len()),
        busy_home: busy(false),
        busy_burst: busy(true),
        burst: count(paid.count()),
        coming: count(world.nodes.values().filter(|node| node.up_at > world.now).count()),
        enclosed: world.bursts.values().map(|burst| enclosed(world, burst)).sum(),
    }
}

fn enclosed(world: &World, burst: &Burst) -> u32 {
    let is_busy = |rank: &&u32| world.nodes.get(rank).is_some_and(|node| node.job.is_some());
    let is_idle = |rank: &&u32| world.is_online(**rank) && !is_busy(rank);
    let last = burst.ranks.iter().rfind(is_busy);
    let before = burst.ranks.iter().filter(|rank| last.is_some_and(|last| *rank < last));
    u32::try_from(before.filter(is_idle).count()).unwrap_or(u32::MAX)
}
