//! FluxJobs and FluxSetups: how they are read, what is decided about them, and what is
//! reported. A test's prefix, such as `q4`, is the number of the queue's requirement that it
//! verifies.

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
