//! FluxJobs and FluxSetups: from the objects to what the queue decides on, and from its
//! decisions back to objects and statuses.
//!
//! ```text
//! FluxSetup ──► setup::read ──────────────► queue::Setup ─┐
//! FluxJob, MiniCluster ──► workload::read ► Workload ─────┴► queue::Scheduler
//!                                                              │ admit: admission::record
//! FluxJob, its MiniCluster, Waiting ──► job::plan ──► steps, status
//! FluxSetup, Usage ───────────────────► setup::plan ► steps, status
//! ```

pub mod admission;
pub mod job;
mod minicluster;
mod queued;
mod requests;
pub mod setup;
pub mod workload;

pub(crate) use queued::{admission as admission_of, given, room, waits};

pub use minicluster::minicluster_of;
pub use requests::{Requests, requests};
