//! The queue: how well quota is used, how long jobs wait for it, and at what cost.
//!
//! The loads are those of Kueue's scalability test, with one resource and without borrowing between
//! queues.

mod executor;
pub(crate) mod load;
mod many_queues;
mod memory;
mod server;

use anyhow::Result;
use serde::Serialize;

use crate::summary::Measures;

pub(crate) use memory::thread_cpu_time;

/// How much to measure.
#[derive(clap::Args)]
#[group(id = "queue")]
pub(crate) struct Options {
    /// Only the scheduler, in memory and with simulated time: no API server
    #[arg(long)]
    in_memory: bool,

    /// Maximum writes per second of our queues to the API server, one run for each value; 0 is
    /// unlimited
    #[arg(long, default_values_t = [0, 50])]
    queue_rate: Vec<u32>,
}

/// Measurements.
#[derive(Serialize)]
pub(crate) struct Figures {
    memory: Vec<memory::Figures>,
    crowd: many_queues::Figures,
    server: Vec<server::Figures>,
}

/// Measures everything.
pub(crate) async fn measure(options: &Options) -> Result<Figures> {
    let mut server = Vec::new();
    if !options.in_memory {
        server.push(server::measure(&load::STEADY, None).await?);
    }
    for rate in options.queue_rate.iter().filter(|_| !options.in_memory) {
        server.push(server::measure(&load::BASELINE, (*rate > 0).then_some(*rate)).await?);
    }
    let loads = [load::BASELINE, load::LARGE_SCALE];
    // Seconds of computing would block other tasks.
    let figures = tokio::task::spawn_blocking(move || Figures {
        memory: loads.iter().map(memory::measure).collect(),
        crowd: many_queues::measure(),
        server,
    });
    Ok(figures.await?)
}

impl Figures {
    /// The same by name, for limits.
    pub(crate) fn measures(&self) -> Measures {
        let mut measures = self.crowd.measures();
        measures.extend(self.memory.iter().flat_map(memory::Figures::measures));
        measures.extend(self.server.iter().flat_map(server::Figures::measures));
        measures
    }

    /// The same as tables.
    pub(crate) fn table(&self) -> String {
        let loads: String = self.memory.iter().map(memory::Figures::table).collect();
        let server: String = self.server.iter().map(server::Figures::table).collect();
        loads + &self.crowd.table() + &server
    }
}
