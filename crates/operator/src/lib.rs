//! The operator: watches MiniClusters and queues, applies what `plan` decides, and reports status.
//!
//! ```text
//! watches ──► reconciler (observe, decide, apply, conclude) ──► API server
//! agents ───► reports ──────┘
//! ```
//!
//! This is the thin shell around `plan`: clients, clocks and sockets are here, decisions are in
//! `plan`. All kinds share one [`reconciler`].

mod backoff;
mod cache_sync;
mod client;
mod connections;
mod controller;
mod delivery;
mod gate;
mod gateway;
mod hand_over;
mod health;
mod http;
mod index;
mod joins;
mod keys;
mod lease;
mod listed_policies;
mod listener;
mod metrics;
mod minicluster;
mod partner_relay;
pub mod queue;
pub mod reconciler;
mod replica;
mod reports;
mod stores;
mod watches;

use flux_operator_service::{lock, tasks};

pub use controller::{Options, run};
pub use delivery::detect_delivery;
pub use gateway::GatewayLocation;
pub use lease::{Election, Identity, LeaseLost};
pub use replica::RunError;
pub use tasks::{TaskExited, report_panics_where_caught};
