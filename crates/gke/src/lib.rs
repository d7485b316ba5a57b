//! Makes a cluster of Google Kubernetes Engine for a Burst, and deletes it.
//!
//! `flux-operator-gke up` runs as a Job, as the program of a target `command` does. It may be killed at
//! any time and run again: whatever it does next follows from what Google and both API servers answer.
//!
//! ```text
//! up    cluster? ─► create ─► wait until it runs ─► account and token inside ─► Secret at home
//! down  cluster? ─► delete ─► wait until there is none
//! ```
//!
//! Every failure that may pass, such as a lost answer, leads back to the question at the start of its
//! loop, with a pause that grows. The deadline of the Job ends it.
//!
//! This crate must never know Bursts, policies or MiniClusters. Google's client and its dependencies are
//! in no other program.

mod cluster;
mod down;
mod google;
mod home;
mod inside;
mod list;
mod pace;
mod settings;
#[cfg(feature = "testing")]
pub mod testing;
mod token;
mod trouble;
mod up;

pub use down::down;
pub use google::Google;
pub use list::list;
pub use pace::Pace;
pub use settings::{Places, Settings, SettingsError};
pub use trouble::Failure;
pub use up::up;

/// Makes ring the cryptography of all connections. Calls after the first do nothing.
pub fn use_ring() {
    // It fails if there is one already, which is as good.
    let _is_first = rustls::crypto::ring::default_provider().install_default();
}
