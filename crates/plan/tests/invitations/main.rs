//! Brokers of other Kubernetes clusters: what a lender grants them and how they reach it, and what a
//! joiner makes of an invitation. Histories are in `leases`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/clusters.rs"]
mod clusters;
mod deletion;
mod ends;
mod exposed;
mod file;
mod fixture;
mod go_way;
mod joiner;
mod keep;
mod leases;
mod lost_status;
mod permission;
mod policy_ranks;
mod pool;
mod ports;
mod ranks;
mod service;
mod users;
