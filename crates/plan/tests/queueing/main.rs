//! FluxJobs and FluxSetups: how they are read, what is done about them, and what is
//! reported. Tests are named after the requirements of the queue that they verify.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admission;
mod life;
mod minicluster;
mod objects;
#[path = "../common/record.rs"]
mod record;
mod recorded;
mod scheduled;
mod settles;
mod setup;
mod transitions;
mod waiting;
mod workload;
mod world;
