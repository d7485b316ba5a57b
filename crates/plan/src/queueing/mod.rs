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
pub mod job;
mod job_status;
mod leaving;
pub mod ledger;
mod merge_patch;
mod minicluster;
mod namespace_room;
mod news;
mod node_room;
pub mod quantity;
mod queued;
mod requests;
pub mod setup;
pub mod workload;

use back_off::back_off;
pub(crate) use leaving::is_taken_back;
pub(crate) use queued::{admission as admission_of, given, room, waits};

pub use merge_patch::merge_patch;
pub use minicluster::{JOB_LABEL, minicluster_at, minicluster_of};
pub use namespace_room::namespace_room;
use news::news;
pub use node_room::node_room;
pub use requests::{Requests, requests};
