//! A Burst that runs one job in an instance of its own.
//!
//! `life` decides the next step, `state` the status, and `objects` renders what is created at the
//! target.

mod life;
mod objects;
mod state;

pub(super) use life::decide;
pub use life::{HomeJob, HomeTurn, RECORD_SECONDS, after_output, home_order, output_name};
pub use objects::{IsolatedObjects, IsolatedPods, isolated_objects, isolated_secret_name};
