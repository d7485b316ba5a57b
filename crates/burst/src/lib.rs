//! Bursting: for which jobs nodes are requested, how many and where, and why not for the others.
//!
//! ```text
//! instance, policies, bursts, pending jobs, time ──decide──► actions, an answer for every job
//! ```
//!
//! [`decide()`] places the pending jobs of one MiniCluster's instance on its free nodes, in the order
//! of Flux's queue. What is missing for jobs that a BurstPolicy selects is requested, within the
//! policy's limits. The same arguments give the same decision.
//!
//! This crate must never know a client, a runtime, a clock or randomness, nor how brokers are
//! created at a target.

mod answer;
mod constraint;
mod decide;
mod decision;
mod effort;
mod instance;
mod isolated;
mod job;
mod job_match;
mod limits;
mod pause;
mod placement;
mod pool;
mod request;
mod shrink;
mod situation;
mod stabilization;
mod summary;
mod supply;
#[cfg(test)]
mod testing;
mod time;

pub use answer::{Answer, AnswerReason};
pub use decide::decide;
pub use decision::{Action, Decision, DrainReason, Memory, NthPool, Unproven};
pub use instance::{Instance, Node, PoolMember};
pub use isolated::IsolatedRun;
pub use job::Job;
pub use limits::exhausted;
pub use pool::{PolicyState, Pool, PoolState, Used, is_burst_of};
pub use situation::{IdleRanks, Situation};
pub use summary::Summary;
