//! The burst controller: gets brokers elsewhere for jobs that wait in a MiniCluster, and gives them
//! back.
//!
//! ```text
//! operator's /v1 ──► feeds ──► policies ──► Burst ──► bursts ──► target ──► pods elsewhere
//! (pending jobs)              (crate burst            (plan::bursting      (same cluster, another
//!                              decides)                decides)             cluster, mock)
//! ```
//!
//! What to do is decided by pure code: crate `burst` says for which jobs a policy requests nodes, and
//! `plan::bursting` what the next step of a Burst is. This crate watches, asks and writes. It may be
//! killed between any two writes: what it must not forget is in objects.
//!
//! It is a program of its own, with an account of its own, because it has what neither the operator
//! nor a broker should have: credentials of other clusters. They are read from Secrets of the policy's
//! namespace when they are needed, and are in no log, Event, status or metric.

mod applied;
mod bursts;
mod errors;
mod feeds;
mod hand_over;
mod home;
mod kept;
mod metrics;
mod output;
mod policies;
mod policy_state;
mod policy_statuses;
mod run;
mod schedule;
mod standalone;
mod stored_policy;
mod stores;
mod target;
mod unparsed;
mod unreadable;
mod views;

pub use policy_state::policy_state;
pub use run::{BurstControllerError, Options, Token, run};
pub use standalone::{
    Finished, RecordError, StandaloneOptions, StandaloneRunError, bursts_in, run_standalone,
};
pub use target::connect as connect_to_target;
