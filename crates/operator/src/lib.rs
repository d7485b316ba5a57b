//! The operator: watches MiniClusters and queues, carries plans out, tells the truth.
//!
//! ```text
//! watch ──► observe ──► validate ──► plan ──► apply ──► report
//! ```
//!
//! This is the thin shell around `plan`: clients, clocks and sockets are here,
//! decisions are not. A pass does not ask why it was called, may be cut off
//! after any `await`, and changes nothing when there is nothing to change.

mod apply;
mod backoff;
mod client;
mod connections;
mod controller;
mod delivery;
mod errors;
mod expected;
mod filled;
mod gate;
mod hand_over;
mod health;
mod http;
mod index;
mod keys;
mod lease;
mod listener;
mod look;
mod metrics;
mod publish;
pub mod queue;
mod reconcile;
mod reports;
mod status;
mod stop;
mod stores;
mod tasks;
mod watches;

pub use controller::{Options, RunError, run};
pub use delivery::delivery;
pub use lease::{Election, Identity, Lost};
pub use tasks::TaskEnded;
