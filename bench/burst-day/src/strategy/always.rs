//! Nodes of its own for every job that cannot start at once, given back when it has finished.
//!
//! The job starts where it can first. If that is at home, its nodes are given back, whether they are up or
//! not. It gets the cheapest nodes that the quotas of the clouds leave, and waits for some if there are none.

use super::Strategy;
use crate::cloud::CLOUDS;
use crate::world::{Change, World};

/// Requests nodes for every job that waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Always {
    created: u64,
}

impl Strategy for Always {
    fn name(&self) -> &'static str {
        "always"
    }

    fn changes(&mut self, world: &World) -> Vec<Change> {
        let mut changes = Vec::new();
        let live = || world.bursts.iter().filter(|(_, burst)| burst.given_back_at.is_none());
        for (&id, burst) in live() {
            let waits = world.waiting.iter().any(|job| Some(job.id) == burst.only_for);
            let is_used = burst.ranks.iter().any(|rank| world.nodes[rank].job.is_some());
            if !waits && !is_used {
                changes.push(Change::GiveBack { id });
            }
        }
        let mut left = CLOUDS.map(|cloud| {
            let used = live().filter(|(_, burst)| burst.cloud == cloud).map(|(_, it)| it.nodes);
            cloud.quota - used.sum::<u32>()
        });
        for job in &world.waiting {
            if live().any(|(_, burst)| burst.only_for == Some(job.id)) {
                continue;
            }
            let Some(index) = left.iter().position(|left| *left >= job.nodes) else { continue };
            left[index] -= job.nodes;
            self.created += 1;
            changes.push(Change::Create {
                id: self.created,
                cloud: CLOUDS[index],
                nodes: job.nodes,
                ranks: job.nodes,
                only_for: Some(job.id),
                jobs: vec![job.id],
                idle_seconds: None,
            });
        }
        changes
    }
}
