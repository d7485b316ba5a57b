//! The result of a job, and its status: the state while it is active, the result afterwards.
//!
//! Numbers are those of flux-core's `job.h`; the status is what `flux jobs` prints.

use std::fmt;

use crate::job_state::JobState;
use crate::names::{Named, impl_named};

/// The result of an inactive job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobResult {
    /// Every task exited with 0.
    Completed,
    /// A task failed, or the job could not run.
    Failed,
    /// It was canceled.
    Canceled,
    /// It exceeded its time limit.
    Timeout,
}

/// The status of a job in `flux jobs`: its state or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobStatus {
    /// Not yet inactive.
    Active(JobState),
    /// Inactive.
    Inactive(JobResult),
}

impl JobResult {
    /// Flux's name, such as `COMPLETED`.
    pub fn name(self) -> &'static str {
        self.spellings()[0]
    }

    /// The abbreviation in the ST column of `flux jobs`, such as `CD`.
    pub fn short_name(self) -> &'static str {
        self.spellings()[1]
    }

    /// The bit that represents the result in `flux job list`.
    pub fn number(self) -> u64 {
        match self {
            Self::Completed => 1,
            Self::Failed => 2,
            Self::Canceled => 4,
            Self::Timeout => 8,
        }
    }
}

impl Named for JobResult {
    const KIND: &'static str = "job result";
    const ALL: &'static [Self] = &[Self::Completed, Self::Failed, Self::Canceled, Self::Timeout];

    fn spellings(self) -> &'static [&'static str] {
        match self {
            Self::Completed => &["COMPLETED", "CD"],
            Self::Failed => &["FAILED", "F"],
            Self::Canceled => &["CANCELED", "CA"],
            Self::Timeout => &["TIMEOUT", "TO"],
        }
    }

    fn number(self) -> Option<u64> {
        Some(JobResult::number(self))
    }
}

impl_named!(JobResult);

impl JobStatus {
    /// The status of a job in `state`. Flux reports a result only with INACTIVE; an inactive job
    /// without a result has no status yet.
    pub fn new(state: JobState, result: Option<JobResult>) -> Option<Self> {
        match state {
            JobState::Inactive => result.map(Self::Inactive),
            active => Some(Self::Active(active)),
        }
    }

    /// The abbreviation in the ST column of `flux jobs`, such as `R` or `CD`.
    pub fn short_name(self) -> &'static str {
        match self {
            Self::Active(state) => state.short_name(),
            Self::Inactive(result) => result.short_name(),
        }
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active(state) => state.fmt(formatter),
            Self::Inactive(result) => result.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_flux() {
        for (result, number, name, short_name) in [
            (JobResult::Completed, 1, "COMPLETED", "CD"),
            (JobResult::Failed, 2, "FAILED", "F"),
            (JobResult::Canceled, 4, "CANCELED", "CA"),
            (JobResult::Timeout, 8, "TIMEOUT", "TO"),
        ] {
            assert_eq!(result.number(), number);
            assert_eq!(result.to_string(), name);
            assert_eq!(name.parse(), Ok(result));
            assert_eq!(short_name.to_lowercase().parse(), Ok(result));
            assert_eq!(serde_json::from_str::<JobResult>(&number.to_string()).unwrap(), result);
        }
    }

    #[test]
    fn status_is_the_state_until_the_job_is_inactive() {
        let status =
            |state, result| JobStatus::new(state, result).map(|s| (s.to_string(), s.short_name()));
        let shown = |name: &str, short_name| Some((name.to_owned(), short_name));
        assert_eq!(status(JobState::Sched, None), shown("SCHED", "S"));
        assert_eq!(status(JobState::Cleanup, Some(JobResult::Failed)), shown("CLEANUP", "C"));
        assert_eq!(status(JobState::Inactive, Some(JobResult::Timeout)), shown("TIMEOUT", "TO"));
        assert_eq!(status(JobState::Inactive, None), None);
    }
}
