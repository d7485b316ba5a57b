//! A day of a cluster that bursts, simulated: how long jobs wait, and what that costs, if nodes are
//! requested never, for every job, or by a BurstPolicy.
//!
//! ```text
//! load, seed ──► jobs ──► world: home nodes, scheduler, bursts ──► run ──► figures, pictures
//!                              ▲
//!                    strategy: never, always, policy
//! ```
//!
//! The policy's decisions are those of `flux_operator_burst::decide`; nothing of them is written here
//! again. Time is a number of seconds since midnight, and all randomness comes from one seed, so the
//! same seed gives the same bytes. This crate must never know a clock, a client or a runtime.

pub mod cloud;
pub mod docs;
pub mod figures;
pub mod load;
pub mod picture;
pub mod run;
pub mod scheduler;
pub mod strategy;
pub mod world;

pub use cloud::Cloud;
pub use figures::Figures;
pub use load::{Job, Load};
pub use run::{Run, simulate};

/// Nodes at home.
pub const HOME_NODES: u32 = 32;

/// Seconds of an hour.
pub const HOUR: u64 = 3600;
/// Seconds of a day.
pub const DAY: u64 = 24 * HOUR;

/// The seed of the figures in the documentation. Others give other days; see `--seed`.
pub const SEED: u64 = 1;
