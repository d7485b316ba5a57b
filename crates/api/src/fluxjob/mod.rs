//! FluxJob: a MiniCluster that waits for room in a queue.

mod spec;
mod status;

pub use spec::{FluxJob, FluxJobSpec, Template};
pub use status::{Admission, FluxJobStatus, Requeue};

/// The image of a job that names none, and whose setup names none.
pub const DEFAULT_IMAGE: &str = "fluxrm/flux-sched:focal";
