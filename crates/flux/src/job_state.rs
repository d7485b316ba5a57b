//! The states of a job, and groups of them. Follows Flux RFC 21; numbers are those of flux-core's
//! `job.h`.
//!
//! A job passes through NEW, DEPEND, PRIORITY, SCHED, RUN, CLEANUP and INACTIVE in this order, and
//! can change from any of them to CLEANUP. RFC 21 calls the groups virtual states.

use crate::names::{Named, impl_named};

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// Submitted, not yet validated.
    New,
    /// Waits for its dependencies.
    Depend,
    /// Waits for its priority.
    Priority,
    /// Waits for resources, or is held.
    Sched,
    /// Has resources.
    Run,
    /// Has finished; its resources are being released.
    Cleanup,
    /// Has finished, with a [`JobResult`](crate::JobResult).
    Inactive,
}

/// Several job states under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobStateGroup {
    /// DEPEND, PRIORITY or SCHED.
    Pending,
    /// RUN or CLEANUP.
    Running,
    /// Pending or running.
    Active,
}

impl JobState {
    /// Flux's name, such as `SCHED`.
    pub fn name(self) -> &'static str {
        self.spellings()[0]
    }

    /// The abbreviation in the ST column of `flux jobs`, such as `S`.
    pub fn short_name(self) -> &'static str {
        self.spellings()[1]
    }

    /// The bit that represents the state in `flux job list`.
    pub fn number(self) -> u64 {
        match self {
            Self::New => 1,
            Self::Depend => 2,
            Self::Priority => 4,
            Self::Sched => 8,
            Self::Run => 16,
            Self::Cleanup => 32,
            Self::Inactive => 64,
        }
    }
}

impl Named for JobState {
    const KIND: &'static str = "job state";
    const ALL: &'static [Self] = &[
        Self::New,
        Self::Depend,
        Self::Priority,
        Self::Sched,
        Self::Run,
        Self::Cleanup,
        Self::Inactive,
    ];

    fn spellings(self) -> &'static [&'static str] {
        match self {
            Self::New => &["NEW", "N"],
            Self::Depend => &["DEPEND", "D"],
            Self::Priority => &["PRIORITY", "P"],
            Self::Sched => &["SCHED", "S"],
            Self::Run => &["RUN", "R"],
            Self::Cleanup => &["CLEANUP", "C"],
            Self::Inactive => &["INACTIVE", "I"],
        }
    }

    fn number(self) -> Option<u64> {
        Some(JobState::number(self))
    }
}

impl_named!(JobState);

impl JobStateGroup {
    /// Whether `state` is in the group.
    pub fn contains(self, state: JobState) -> bool {
        self.number() & state.number() != 0
    }

    /// Flux's name, such as `PENDING`.
    pub fn name(self) -> &'static str {
        self.spellings()[0]
    }

    /// Flux's abbreviation, such as `PD`.
    pub fn short_name(self) -> &'static str {
        self.spellings()[1]
    }

    /// The bits of all states of the group.
    pub fn number(self) -> u64 {
        match self {
            Self::Pending => 14,
            Self::Running => 48,
            Self::Active => 62,
        }
    }
}

impl Named for JobStateGroup {
    const KIND: &'static str = "group of job states";
    const ALL: &'static [Self] = &[Self::Pending, Self::Running, Self::Active];

    fn spellings(self) -> &'static [&'static str] {
        match self {
            Self::Pending => &["PENDING", "PD"],
            Self::Running => &["RUNNING", "RU"],
            Self::Active => &["ACTIVE", "A"],
        }
    }

    fn number(self) -> Option<u64> {
        Some(JobStateGroup::number(self))
    }
}

impl_named!(JobStateGroup);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_flux() {
        for (state, number, name, short_name) in [
            (JobState::New, 1, "NEW", "N"),
            (JobState::Depend, 2, "DEPEND", "D"),
            (JobState::Priority, 4, "PRIORITY", "P"),
            (JobState::Sched, 8, "SCHED", "S"),
            (JobState::Run, 16, "RUN", "R"),
            (JobState::Cleanup, 32, "CLEANUP", "C"),
            (JobState::Inactive, 64, "INACTIVE", "I"),
        ] {
            assert_eq!(state.number(), number);
            assert_eq!(state.to_string(), name);
            for text in [name, short_name, &name.to_lowercase(), &short_name.to_lowercase()] {
                assert_eq!(text.parse(), Ok(state), "{text}");
            }
            let json = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<JobState>(&json).unwrap(), state);
            assert_eq!(serde_json::from_str::<JobState>(&number.to_string()).unwrap(), state);
        }
    }

    #[test]
    fn groups_contain_the_states_of_rfc_21() {
        use JobStateGroup::*;
        for (group, names) in [
            (Pending, &["DEPEND", "PRIORITY", "SCHED"][..]),
            (Running, &["RUN", "CLEANUP"]),
            (Active, &["DEPEND", "PRIORITY", "SCHED", "RUN", "CLEANUP"]),
        ] {
            let all = JobState::ALL.iter().filter(|state| group.contains(**state));
            assert_eq!(all.map(|state| state.name()).collect::<Vec<_>>(), names);
            assert_eq!(group.name().parse(), Ok(group));
            assert_eq!(group.short_name().parse(), Ok(group));
        }
    }

    #[test]
    fn states_are_in_the_order_of_a_jobs_lifecycle() {
        assert!(JobState::ALL.is_sorted());
    }
}
