//! From a MiniCluster to what carries it out. All decisions are here.
//!
//! ```text
//! MiniCluster ──► Valid ──► Cluster ──► boot plan for every agent
//!                                  └──► kubernetes: Secret, ConfigMap, Service, Job
//! Rendering, Seen ──► steps: what to change now, and when to look again
//! Seen            ──► question: what only the API server can answer
//! Seen, Outcome   ──► status: conditions, phase, exit code; what is news
//! ```
//!
//! [`Cluster`] is neutral: the operator renders it to Kubernetes objects, the
//! local runner to processes, and both show the same ranks and programs.
//!
//! Same arguments, same results: no client, no clock, no randomness. Time, keys
//! and settings arrive as arguments.
//!
//! Objects are written by users, so arithmetic on their values must not overflow and no index
//! may be out of bounds.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

mod batch;
mod boot;
mod cluster;
mod drift;
mod fingerprint;
mod gpus;
mod grace;
mod job_change;
pub mod kubernetes;
mod program;
mod question;
pub mod queueing;
mod rank_table;
mod ready_timeout;
pub mod reason;
mod resize;
mod seen;
mod stamp;
pub mod status;
mod steps;
mod time;
mod valid;
mod verdict;

pub use boot::{Place, boot_plan};
pub use cluster::{Cluster, Mode};
pub use question::{About, Question, keys_lost, obstacle, questions, refusal};
pub use rank_table::{RankTable, RankTableError};
pub use resize::Shrinking;
pub use seen::{Seen, lead_address};
pub use steps::{Hold, MANAGER, Plan, Step, as_booted, plan};
pub use valid::{Refusal, RefusalReason, Valid};
