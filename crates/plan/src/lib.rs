//! From a MiniCluster to what carries it out. All decisions are here.
//!
//! ```text
//! MiniCluster ──► Valid ──► Cluster ──► boot plan for every agent
//!                                  └──► kubernetes: Secret, ConfigMap, Service, Job
//! Observed ──► status: conditions, phase, exit code
//! ```
//!
//! [`Cluster`] is neutral: the operator renders it to Kubernetes objects, the
//! local runner to processes, and both show the same ranks and programs.
//!
//! Same arguments, same results: no client, no clock, no randomness. Time, keys
//! and settings arrive as arguments.

mod boot;
mod cluster;
pub mod kubernetes;
mod program;
mod rank_table;
pub mod status;
mod valid;

pub use boot::{Place, boot_plan};
pub use cluster::{Cluster, Mode};
pub use rank_table::{RankTable, RankTableError};
pub use valid::{Refusal, RefusalReason, Valid};
