//! What is shown of queues and clusters, computed from what is known of them. The types are in
//! `api::view`; the operator shows them over HTTP, and `kubectl minicluster` computes the same
//! from what its user may list.

mod cluster;
mod queue;
mod why;

pub use cluster::{cluster, instance_jobs};
pub use queue::{AboutToStart, Standing, View};
pub use why::{of_job, of_minicluster};
