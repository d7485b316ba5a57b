//! FluxJob: a command that runs on its own MiniCluster once a queue has granted quota.

mod spec;
mod status;

pub use spec::{FluxJob, FluxJobSpec, Template};
pub use status::{Admission, FluxJobStatus, Requeue};

/// The image of a job if neither the job nor its setup names one.
pub const DEFAULT_IMAGE: &str = "fluxrm/flux-sched:focal";
