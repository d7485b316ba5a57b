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
//! The brokers of a joiner, a cluster that joins another one, are agents of a supervisor of
//! their own: with the lender's certificate and socket, and the ranks that it leases.
//!
//! This crate must not know an API server: Kubernetes' objects are only data here.

mod connected;
mod differences;
mod flux;
mod home;
mod instance;
mod joiner;
mod lender;
mod output;
mod plural;
mod progress;
mod queue;
mod rank_log;
mod request;
mod start;
mod supervisor;

pub use connected::{ConnectedError, ConnectedRequest, run_connected};
pub use flux::{FluxProgram, Programs, UnsupportedFlux};
pub use home::{Home, HomeError};
pub use instance::{Instance, InstanceError, JoinRecord, Record};
pub use joiner::join;
pub use progress::Progress;
pub use queue::{JobBatch, JobBatchError, run_batch};
pub use rank_log::{RankLogError, rank_log};
pub use request::{RunRequest, RunRequestError};
pub use supervisor::{SupervisorError, run, supervise};
