//! What an agent receives, and what it sends back.
//!
//! The operator (in pods) or the local runner (in processes) gives every agent
//! of a cluster the same [`BootPlan`]; each agent finds its own part by its
//! index. An agent returns an exit code and a [`Termination`], and, where there is
//! an operator, sends it [`Report`]s that are [`seal`]ed with the cluster's key.
//!
//! This crate is the contract between two programs that are built separately:
//! data and the invariants of data. It must never know Kubernetes, processes or
//! sockets, and it stays small because the agent must be small.

mod boot;
mod cluster_program;
mod gke;
mod join;
mod lead;
pub mod names;
mod report;
pub mod seal;
mod termination;

pub use boot::{
    Batch, BootPlan, BrokerOptions, FluxHome, Hooks, HostGroup, JoinPlan, Logging, Program,
    RemoteLead, ReportTarget, Resources, Sidecar,
};
pub use cluster_program::{BURST_LABEL, KUBECONFIG_KEY, burst_variable};
pub use gke::{GKE_CREDENTIALS, GKE_PROGRAM, GKE_SETTINGS, GkeFailure, GkeSettings};
pub use join::{
    BrokerFacts, BrokerMismatch, InvitedAnswer, InvitedRequest, JoinAnswer, JoinRefusal,
    JoinRequest,
};
pub use lead::{LeadAnswer, RunId};
pub use report::{
    BlockingJob, Drain, Drained, HomeJobState, InstanceState, JobCounts, JobGoal, JobList,
    JobOrder, JobRefusal, JobspecText, MAX_JOBSPEC, OrderAnswer, PendingJob, PendingPage, RankUse,
    Reply, Report, RunningJob, Work,
};
pub use termination::{
    EXIT_REPLACE_POD, EXIT_SIGTERM, REPLACED_EXIT_CODES, Termination, TerminationReason,
    lead_exit_code,
};
