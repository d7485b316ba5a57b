//! FluxJobs and FluxSetups: from the objects to what the scheduler decides on, and from its
//! decisions back to objects and statuses.
//!
//! ```text
//! FluxSetup ──► setup::read ───────────────────► queue::Setup ─┐
//! FluxJob, MiniCluster ──► workload::of_{job,minicluster} ─────┴► ledger: queue::Scheduler
//!                                              admit: admission::of_{job,minicluster} ◄─┘
//! FluxJob, its MiniCluster, Waiting ──► job::decide ──► steps, status
//! FluxSetup, Usage ───────────────────► setup::decide ► steps, status
//! ```

pub mod admission;
mod back_off;
mod events;
mod eviction;
pub mod job;
mod job_status;
pub mod ledger;
mod merge_patch;
mod minicluster;
mod namespace_quota;
mod node_capacity;
pub mod quantity;
mod queued;
mod requests;
pub mod setup;
pub mod workload;

use back_off::back_off;
pub(crate) use eviction::eviction_message;
pub(crate) use queued::{admission as admission_of, grant_message, granted_nodes, is_waiting};

use events::new_events;
pub use merge_patch::merge_patch;
pub use minicluster::{JOB_LABEL, minicluster_at, minicluster_of};
pub use namespace_quota::namespace_quota;
pub use node_capacity::node_capacity;
pub use requests::{Requests, requests};
