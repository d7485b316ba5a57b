//! The custom resources of flux-operator: their types, schemas and rules.
//!
//! What a user may write is defined here once, as Rust types. From them come the
//! CRD that the API server enforces ([`crd`]), the offline check that gives
//! the same answers without a cluster ([`validate`]), and the values every
//! other crate works with.
//!
//! This crate contains data and the rules about that data. It must never know a client,
//! a clock, or what a field makes Kubernetes do: `plan` decides that.

pub mod burst;
pub mod condition;
pub mod crd;
mod embedded;
pub mod fluxjob;
pub mod fluxsetup;
pub mod manifest;
pub mod minicluster;
pub mod reason;
pub mod shell;
mod unset;
pub mod validate;
pub mod view;

pub use burst::{Burst, BurstPolicy, BurstPolicySpec, BurstPolicyStatus, BurstSpec, BurstStatus};
pub use fluxjob::{FluxJob, FluxJobSpec, FluxJobStatus};
pub use fluxsetup::{FluxSetup, FluxSetupSpec, FluxSetupStatus};
pub use minicluster::{MiniCluster, MiniClusterSpec, MiniClusterStatus};
pub use reason::Reason;

/// The API group of every kind.
pub const GROUP: &str = "flux-framework.org";
/// The only served and stored version.
pub const VERSION: &str = "v1alpha2";
