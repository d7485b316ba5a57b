//! The queue: how well room is used, how long jobs wait for it, and at what cost.
//!
//! The loads are those of Kueue's scalability test, with one resource and without queues
//! that lend each other room.

mod crowd;
pub(crate) mod load;
mod memory;

use anyhow::Result;
use serde::Serialize;

use crate::summary::Measures;

/// How much is measured.
#[derive(clap::Args)]
#[group(id = "queue")]
pub(crate) struct Options {
    /// Only the scheduler, in memory and with simulated time: no API server
    #[arg(long)]
    in_memory: bool,
}

/// What was measured.
#[derive(Serialize)]
pub(crate) struct Figures {
    memory: Vec<memory::Figures>,
    crowd: crowd::Figures,
}

/// Measures all.
pub(crate) async fn measure(options: &Options) -> Result<Figures> {
    // There is no other part yet.
    let Options { in_memory: _ } = options;
    let loads = [load::BASELINE, load::LARGE_SCALE];
    // What takes seconds of computing would hold up whoever else is waited for.
    let figures = tokio::task::spawn_blocking(move || Figures {
        memory: loads.iter().map(memory::measure).collect(),
        crowd: crowd::measure(),
    });
    Ok(figures.await?)
}

impl Figures {
    /// The same by name, as limits see it.
    pub(crate) fn measures(&self) -> Measures {
        let mut measures = self.crowd.measures();
        measures.extend(self.memory.iter().flat_map(memory::Figures::measures));
        measures
    }

    /// The same for people.
    pub(crate) fn table(&self) -> String {
        let loads: String = self.memory.iter().map(memory::Figures::table).collect();
        loads + &self.crowd.table()
    }
}
