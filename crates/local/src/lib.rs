//! A MiniCluster as processes on one machine, without Kubernetes.
//!
//! The same cluster, boot plan and agent as in pods: only who starts the agents
//! differs. A front process holds the agents' standard input open; when it
//! ends, in whatever way, they see the end of it and end too. What a front that
//! was killed leaves behind are files, and the next command removes them.
//!
//! Several clusters of one program, FluxJobs, are admitted by the scheduler that the
//! operator uses.
//!
//! This crate must not know Kubernetes' API.

mod differences;
mod flux;
mod front;
mod home;
mod instance;
mod lines;
mod progress;
mod queue;
mod request;
mod start;

pub use flux::{FluxChoice, Programs, UnsupportedFlux};
pub use front::{FrontError, run, supervise};
pub use home::{Home, HomeError};
pub use instance::{Instance, InstanceError, Record};
pub use progress::Progress;
pub use queue::{Batch, BatchError, run_batch};
pub use request::{Request, RequestError};
