//! Checks that CEL cannot express, or not within the API server's cost limits: the form
//! of map keys, texts with a grammar of their own, and conflicts between volumes.
//!
//! In a cluster their problems are reported by the condition `Accepted=False`, and for a
//! FluxSetup by `Active=False`.

pub(super) mod burst;
mod exposure;
pub(super) mod fluxjob;
pub(super) mod fluxsetup;
mod joining;
mod labels;
pub(super) mod minicluster;
mod remote;

pub(super) use labels::is_part_of_name;
