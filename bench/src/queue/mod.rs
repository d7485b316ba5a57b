//! The queue: how well room is used, how long jobs wait for it, and at what cost.
//!
//! The loads are those of Kueue's scalability test, with one resource and without queues
//! that lend each other room.

mod crowd;
mod executor;
pub(crate) mod load;
mod memory;
mod server;

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

    /// Writes a second that our queues may make against the API server, once for each; 0 is
    /// without a limit
    #[arg(long, default_values_t = [0, 50])]
    queue_rate: Vec<u32>,
}

/// What was measured.
#[derive(Serialize)]
pub(crate) struct Figures {
    memory: Vec<memory::Figures>,
    crowd: crowd::Figures,
    server: Vec<server::Figures>,
}

/// Measures all.
pub(crate) async fn measure(options: &Options) -> Result<Figures> {
    let mut server = Vec::new();
    if !options.in_memory {
        server.push(server::measure(&load::STEADY, None).await?);
    }
    for rate in options.queue_rate.iter().filter(|_| !options.in_memory) {
        server.push(server::measure(&load::BASELINE, (*rate > 0).then_some(*rate)).await?);
    }
    let loads = [load::BASELINE, load::LARGE_SCALE];
    // What takes seconds of computing would hold up whoever else is waited for.
    let figures = tokio::task::spawn_blocking(move || Figures {
        memory: loads.iter().map(memory::measure).collect(),
        crowd: crowd::measure(),
        server,
    });
    Ok(figures.await?)
}

impl Figures {
    /// The same by name, as limits see it.
    pub(crate) fn measures(&self) -> Measures {
        let mut measures = self.crowd.measures();
        measures.extend(self.memory.iter().flat_map(memory::Figures::measures));
        measures.extend(self.server.iter().flat_map(server::Figures::measures));
        measures
    }

    /// The same for people.
    pub(crate) fn table(&self) -> String {
        let loads: String = self.memory.iter().map(memory::Figures::table).collect();
        let server: String = self.server.iter().map(server::Figures::table).collect();
        loads + &self.crowd.table() + &server
    }
}
