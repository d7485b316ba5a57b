//! Views of queues and clusters, computed from what is known of them. The types are in
//! `api::view`; the operator serves them over HTTP, and `kubectl minicluster` computes the same
//! from the objects that its user may list.

mod cluster;
mod explanation;
mod queue;
mod ranks;

pub(crate) use cluster::slots;
pub use cluster::{
    add_nodes, cluster, instance_job, instance_job_text, instance_jobs_text, instance_slots,
    running_instance_job,
};
pub use explanation::{of_job, of_minicluster};
pub use queue::{AdmissionStatus, QueueView, TentativeAdmissions};
pub use ranks::{NoRankTable, rank_table};
