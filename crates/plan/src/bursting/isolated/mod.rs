//! A Burst that runs one job in an instance of its own.
//!
//! `life` decides the next step, `finish` the steps at the end of the run, `rivals` which of several
//! Bursts runs a job, `home` what the job at home should become, `state` the status, and `objects`
//! renders what is created at the target.

mod finish;
mod home;
mod life;
mod objects;
mod rivals;
mod state;

pub use finish::RECORD_SECONDS;
pub use home::{HomeAnswer, HomeJob, home_order, needs_jobspec};
pub(super) use life::decide;
pub use life::{CUT_KEY, OUTPUT_KEY, after_output, keeps_cluster, output_name};
pub use objects::{IsolatedObjects, isolated_objects, isolated_secret_name};
