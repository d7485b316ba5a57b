//! What an agent is told, and what it says back.
//!
//! Whoever carries a cluster out (the operator in pods, the local runner in
//! processes) gives every agent the same [`BootPlan`]; each finds its own part
//! by its index. Agents answer by an exit code and a [`Ending`], and, where
//! there is an operator, by [`Report`]s that are [`seal`]ed with the cluster's
//! key.
//!
//! This crate is the contract between two programs that are built apart: data
//! and what is true of data. It must never know Kubernetes, processes or
//! sockets, and stays small because the agent is.

mod boot;
mod ending;
mod lead;
pub mod names;
mod report;
pub mod seal;

pub use boot::{
    Batch, BootPlan, BrokerOptions, FluxHome, Hooks, Logging, Program, ReportTarget, Resources,
    Sidecar,
};
pub use ending::{Ending, EndingReason, REPLACE_ME, REPLACED, TERMINATED, exit_code_of_lead};
pub use lead::{LeadAnswer, RunId};
pub use report::{
    Drain, Drained, InstanceState, JobCounts, PendingJob, PendingPage, Reply, Report, Work,
};
