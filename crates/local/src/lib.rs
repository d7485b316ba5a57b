//! A MiniCluster as processes on one machine, without Kubernetes.
//!
//! The cluster, boot plan and agent are the same as in pods; only what starts the agents
//! differs. A supervisor process keeps the agents' standard input open; when it exits, for
//! whatever reason, they read end of file and exit too. A supervisor that is killed
//! leaves only files behind, and the next command removes them.
//!
//! FluxJobs run as several clusters in one program, admitted by the operator's own
//! scheduler.
//!
//! This crate must not know an API server: Kubernetes' objects are only data here.

mod differences;
mod flux;
mod home;
mod instance;
mod output;
mod progress;
mod queue;
mod request;
mod start;
mod supervisor;

pub use flux::{FluxProgram, Programs, UnsupportedFlux};
pub use home::{Home, HomeError};
pub use instance::{Instance, InstanceError, Record};
pub use progress::Progress;
pub use queue::{JobBatch, JobBatchError, run_batch};
pub use request::{RunRequest, RunRequestError};
pub use supervisor::{SupervisorError, run, supervise};
