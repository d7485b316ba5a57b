//! Who gets room next: queues with quota, and a reason for every "no".
//!
//! ```text
//! setups, workloads, namespaces ──put──► Scheduler ──cycle(now)──► admit, evict, wake at
//!                                            └──────why(job)─────► reason, resource, missing
//! ```
//!
//! The scheduler is a value: it is told what there is ([`Scheduler::put`] and its
//! neighbours), and says what to do about it ([`Scheduler::cycle`]). What it decides it
//! counts at once, so that nothing is given twice while the decision is written down;
//! a write that fails is taken back ([`Scheduler::undo`]). Told the same things in any
//! order, it knows the same, so a restart is nothing but telling it everything again.
//!
//! Jobs of one queue that ask for the same stand in one line, in order. A cycle looks
//! at the heads of the lines of those queues to which something has happened, and at a
//! line that does not fit once: nothing is asked twice, nobody is woken in vain.
//!
//! This crate must never know Kubernetes, a clock or chance: times arrive as
//! arguments, in milliseconds since 1970.

mod line;
mod names;
mod order;
mod resources;
mod scheduler;
mod setup;
mod sum;
#[cfg(test)]
mod testing;
mod waiting;
mod workload;

pub use names::{NotASetup, QueueName, SetupName, Uid};
pub use resources::{NotAResource, Resource, Resources};
pub use scheduler::{Admit, Cycle, Evict, EvictReason, Scheduler};
pub use setup::{
    Inactive, InactiveReason, NamespaceRoom, OtherNamespaces, OverQuota, Setup, SetupMistake, Stop,
    Strategy, Usage,
};
pub use waiting::{Reason, Waiting};
pub use workload::{Admission, Kind, Workload};

/// Milliseconds since 1970, or a duration of so many.
pub type Millis = i64;
