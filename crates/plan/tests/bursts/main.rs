//! The life of a Burst in a small world: a MiniCluster whose operator leases ranks and drains them, and
//! a target. Every step may be the last before the controller is killed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conditions;
mod gke;
mod isolated;
mod isolated_clusters;
mod isolated_home;
mod life;
mod made_clusters;
mod rivals;
mod run;
mod standalone;
mod usage;
mod world;
