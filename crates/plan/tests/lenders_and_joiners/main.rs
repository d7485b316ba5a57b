//! Decisions about joiners and lenders, one situation each. Histories are in `leases`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/clusters.rs"]
mod clusters;
mod fixture;
mod joiners;
mod lenders;
mod reported;
mod tables;
