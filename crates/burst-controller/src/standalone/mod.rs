//! Bursts of a Flux instance that is not in Kubernetes, such as that of a laptop.
//!
//! ```text
//! flux job list ──► instance ──► turns ──► records (a file for each Burst)
//!                                (crate burst and plan::bursting decide)
//!                                  └──► target ──► pods elsewhere
//! ```
//!
//! It decides by the same functions as the controller in Kubernetes. Only what the API server and the
//! operator do there is done here: files have the Bursts, a MiniCluster that stands for the instance has
//! its leases ([`flux_operator_plan::bursting::standalone_lender`]), and Flux's commands list jobs and
//! drain ranks. One process does all of it, so that no other writes in between.

mod instance;
mod records;
mod run;
mod targets;
mod turns;
#[cfg(test)]
mod turns_tests;

pub use records::{RecordError, bursts_in};
pub use run::{Finished, StandaloneOptions, StandaloneRunError, run_standalone};
