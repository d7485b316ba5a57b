//! Bursts: nodes elsewhere for jobs that wait, and back. Two testbeds are linked for it, as two
//! clusters of a user may be.

mod cluster_api;
mod crashes;
mod failures;
mod gke;
mod isolated;
mod life;
mod made_clusters;
mod rights;
mod standalone;
mod steps;
