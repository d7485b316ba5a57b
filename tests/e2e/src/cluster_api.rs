//! Cluster API: its own core manager, which `testbed build --with cluster-api` has compiled, and a provider
//! that the test plays, because real ones need a cloud.
//!
//! The manager turns a Cluster into objects of the provider, waits for these in the order of Cluster API,
//! and deletes them in its order. The provider says that what they stand for exists, and writes the
//! kubeconfig of a cluster that it was given.

mod core;
mod kinds;
mod provider;

pub use core::{CoreManager, start_core};
pub use kinds::{CLASS, WORKERS, create_class, install_provider};
pub use provider::{Provider, Provisioned};
