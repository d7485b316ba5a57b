//! Queues with quota: which job is admitted next, and why the others wait.
//!
//! ```text
//! setups, workloads, namespaces ──put──► Scheduler ──cycle(now)──► admit, evict, wake at
//!                                            └───explain(job)────► reason, resource, missing
//! ```
//!
//! The scheduler is a value: the caller puts the objects into it ([`Scheduler::put`] and the
//! other `put_` methods) and asks for decisions ([`Scheduler::cycle`]). A decision counts at
//! once, so that no quota is granted twice while it is being written; if the write fails, the
//! caller reverts it ([`Scheduler::undo`]). The order of the calls does not matter: with the
//! same objects the scheduler is in the same state, so a restart only has to put them again.
//!
//! Jobs of one queue with the same requests are a class, in order. A cycle considers the first
//! job of each class, in the queues in which something has changed. If that job does not fit,
//! no other job of its class does, so none of them is considered.
//!
//! This crate must never know Kubernetes, a clock or randomness: times are
//! arguments, in milliseconds since 1970.

mod job_class;
mod names;
mod order;
mod resource_sum;
mod resources;
mod scheduler;
mod setup;
#[cfg(test)]
mod testing;
mod wait;
mod workload;

pub use names::{ParseSetupNameError, QueueName, SetupName, Uid};
pub use resources::{ParseResourceError, Resource, Resources};
pub use scheduler::{Cycle, Eviction, EvictionReason, NewAdmission, Scheduler};
pub use setup::{
    Inactive, InactiveReason, NamespaceQuota, OverQuota, ServedNamespaces, Setup, SetupProblem,
    Stop, Strategy, Usage,
};
pub use wait::{WaitReason, WaitStatus};
pub use workload::{Admission, Kind, Workload};

/// Milliseconds since 1970, or a duration in milliseconds.
pub type Millis = i64;
