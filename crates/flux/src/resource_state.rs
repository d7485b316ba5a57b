//! The state of a node, as seen by the scheduler and by the resource module.
//!
//! `flux resource list` prints the scheduler's view in its STATE column, `flux resource status` the
//! resource module's, with a `*` after the name if the node is offline.

use crate::names::{Named, impl_named};

/// The scheduler's view of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceState {
    /// Not allocated to a job.
    Free,
    /// Allocated to a job.
    Allocated,
    /// Offline, drained or excluded.
    Down,
}

/// The resource module's view of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeStatus {
    /// Can be used.
    Available,
    /// Excluded from scheduling by configuration.
    Excluded,
    /// Drained, but a job still runs there.
    Draining,
    /// Drained by an administrator, or by Flux after an error.
    Drained,
    /// Connected, but not responding.
    Torpid,
    /// Allocated to a job.
    Allocated,
    /// Being cleaned up after a job.
    Housekeeping,
}

impl ResourceState {
    /// Flux's name, such as `free`.
    pub fn name(self) -> &'static str {
        self.spellings()[0]
    }
}

impl Named for ResourceState {
    const KIND: &'static str = "resource state";
    const ALL: &'static [Self] = &[Self::Free, Self::Allocated, Self::Down];

    fn spellings(self) -> &'static [&'static str] {
        match self {
            Self::Free => &["free"],
            Self::Allocated => &["allocated"],
            Self::Down => &["down"],
        }
    }
}

impl_named!(ResourceState);

impl NodeStatus {
    /// Flux's name, such as `avail`.
    pub fn name(self) -> &'static str {
        self.spellings()[0]
    }

    /// Parses the STATE column: the status, and whether the node is online.
    pub fn parse_column(text: &str) -> Result<(Self, bool), crate::UnknownName> {
        let (word, online) = match text.strip_suffix('*') {
            Some(word) => (word, false),
            None => (text, true),
        };
        Ok((word.parse()?, online))
    }
}

impl Named for NodeStatus {
    const KIND: &'static str = "node status";
    const ALL: &'static [Self] = &[
        Self::Available,
        Self::Excluded,
        Self::Draining,
        Self::Drained,
        Self::Torpid,
        Self::Allocated,
        Self::Housekeeping,
    ];

    fn spellings(self) -> &'static [&'static str] {
        match self {
            Self::Available => &["avail"],
            Self::Excluded => &["exclude"],
            Self::Draining => &["draining"],
            Self::Drained => &["drained"],
            Self::Torpid => &["torpid"],
            Self::Allocated => &["allocated"],
            Self::Housekeeping => &["housekeeping"],
        }
    }
}

impl_named!(NodeStatus);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_parsed_back() {
        for state in ResourceState::ALL {
            assert_eq!(state.to_string().parse(), Ok(*state));
        }
        for status in NodeStatus::ALL {
            assert_eq!(status.to_string().parse(), Ok(*status));
        }
    }

    #[test]
    fn a_star_means_offline() {
        for (column, status, online) in [
            ("avail", NodeStatus::Available, true),
            ("avail*", NodeStatus::Available, false),
            ("drained*", NodeStatus::Drained, false),
        ] {
            assert_eq!(NodeStatus::parse_column(column), Ok((status, online)));
        }
        assert!(NodeStatus::parse_column("avail**").is_err());
    }
}
