//! From a MiniCluster to the objects that run it. All decisions are here.
//!
//! ```text
//! MiniCluster ──► Valid ──► Cluster ──► boot plan for every agent
//!                                  └──► kubernetes: Secret, ConfigMap, Service, Job
//! queries: what only the API server can answer
//! decide:  object, what was observed, settings ──► Decision { steps, lead_work }
//! Decision::conclude: outcome of the steps ──► status, Events, when to reconcile again
//! ```
//!
//! There is one `decide` for each kind: [`decide()`] for MiniClusters,
//! [`queueing::job::decide`] for FluxJobs, [`queueing::setup::decide`] for FluxSetups.
//!
//! [`Cluster`] is neutral: the operator renders it to Kubernetes objects, the
//! local runner to processes, and both have the same ranks and programs.
//!
//! Same arguments, same results: no client, no clock, no randomness. Time, keys
//! and settings arrive as arguments.
//!
//! Objects are written by users, so arithmetic on their values must not overflow and no index
//! may be out of bounds.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

mod batch;
mod boot;
pub mod bursting;
mod cluster;
mod decide;
mod decision;
mod drift;
mod exposing;
mod fingerprint;
mod gpus;
mod grace;
mod job_change;
mod joining;
pub mod kubernetes;
mod last_report;
mod observed;
mod program;
mod query;
pub mod queueing;
mod rank_table;
mod ready_timeout;
pub mod reason;
mod resize;
mod stamp;
pub mod status;
mod step;
mod steps;
mod time;
pub mod unreconcilable;
mod valid;
mod verdict;
pub mod view;

pub use boot::{RunLocation, boot_plan};
pub use cluster::{Cluster, Joining, Mode};
pub use decide::{MiniClusterFacts, decide};
pub use decision::{Conclude, Conclusion, Decision, Failure, FailureKind, Outcome};
pub use exposing::{GatewayEndpoint, GatewayView, PortHolder, new_exposed_service};
pub use joining::{
    FINALIZER, InvitationFile, InvitationFileError, InvitationSecrets, InvitedCluster, JoinerView,
    KnownBroker, LenderKeysError, LenderView, OfflineJoinError, OfflineLease, OfflineLender,
    Permission, PermittedPods, SecretData, SecretNames, invitation_file, invitation_holder,
    invited_permission, is_expired, joined_after, lendable_ranks, lender_of, may_join,
    must_consider, permission, remote_permission, shown_expiry,
};
pub use last_report::{LastReport, needs_reconciliation};
pub use observed::{Observed, completion_index, lead_address};
pub use query::{ExistingPod, Query, QueryAnswer, ServerReply, Subject, queries};
pub use rank_table::{RankTable, RankTableError};
pub use resize::Shrinking;
pub use step::{FIELD_MANAGER, Object, Step, Target, TargetKind};
pub use steps::Blocker;
pub use valid::{Refusal, RefusalReason, Valid};
