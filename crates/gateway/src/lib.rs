//! The gateway: admits brokers of other Kubernetes clusters to the leads that invited them.
//!
//! Flux's certificate admits every holder, to everything, and Flux cannot revoke it. So brokers of
//! other Kubernetes clusters do not reach a lead itself. They connect to this TCP proxy, which has
//! one port for each lease of an invitation.
//!
//! ```text
//! API server ──► watch ──► lender ──► route ──► proxy ──► listener, one for each lease
//!                (MiniClusters)       (pure)                  │
//!                                                             ▼
//! broker of another cluster ─────────────────────────► connection ──► lead (a broker)
//! agent of another cluster ──────────────────────────► connection ──► operator (a request)
//! ```
//!
//! A port accepts connections only from the lender's `sourceRanges`, and at most as many brokers as
//! the lease has ranks. When the invitation expires or is revoked, or its ranks are released, the
//! port is closed and its connections are cut. That needs only the API server, not the operator, and
//! an invitation that expires needs neither.
//!
//! Flux does not survive a connection that is cut: its lead marks the rank as lost, jobs on it fail,
//! and the broker exits once it has connected again. So a connection is cut only if it has to be, and
//! a restart of the gateway costs all brokers that are connected through it.
//!
//! | file | what it does | |
//! |---|---|---|
//! | `lender`, `route`, `changes` | which ports there are, and what changed | pure |
//! | `opening`, `handshake` | which protocol a client speaks, whether the lead accepts it | pure |
//! | `places`, `untrusted`, `brokers`, `refusal` | limits, counts | pure, except for locks |
//! | `connection`, `broker`, `request`, `relay`, `listener`, `proxy` | sockets | |
//! | `watch`, `current_routes`, `events`, `metrics`, `run` | API server, clock, reports | |
//!
//! The gateway must never know a key: connections are encrypted from broker to lead, and it reads
//! only names of commands and the head of requests, which are sent in the clear. It never writes a
//! MiniCluster, and never logs bytes of a connection.

mod broker;
mod brokers;
mod changes;
mod connection;
mod current_routes;
mod events;
mod handshake;
mod lender;
mod listener;
mod metrics;
mod opening;
mod places;
mod proxy;
mod refusal;
mod relay;
mod request;
mod route;
mod run;
mod socket;
mod untrusted;
mod watch;

use flux_operator_service::lock;

#[cfg(test)]
mod testing;

pub use run::{GatewayError, Options, run};
