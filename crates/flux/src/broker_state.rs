//! The states of one broker and of the tree of brokers below it, as Flux prints them.
//!
//! A broker's own state is the second word of `flux uptime`. The overlay status is what
//! `flux overlay status` shows for each broker: how much of its subtree is there.

use crate::names::{Named, impl_named};

/// Where a broker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BrokerState {
    /// Loads the modules that every broker has.
    LoadBuiltins,
    /// Connects to its parent.
    Join,
    /// Waits for the configuration of rank 0.
    ConfigSync,
    /// Runs rc1.
    Init,
    /// Waits for enough brokers.
    Quorum,
    /// Works; rank 0 runs the initial program.
    Run,
    /// Cancels what is left.
    Cleanup,
    /// Waits for its children to leave.
    Shutdown,
    /// Runs rc3.
    Finalize,
    /// Takes leave of its parent.
    Goodbye,
    /// Unloads the modules that every broker has.
    UnloadBuiltins,
    /// Is about to end.
    Exit,
}

/// How much of the subtree that starts at a broker is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OverlayStatus {
    /// All of it.
    Full,
    /// Some brokers have not come yet.
    Partial,
    /// Some brokers were lost.
    Degraded,
    /// The broker itself was there and is lost.
    Lost,
    /// The broker itself has not come yet, or left in order.
    Offline,
    /// Flux cannot tell yet.
    Unknown,
}

impl BrokerState {
    /// Flux's word, such as `quorum`.
    pub fn name(self) -> &'static str {
        self.spellings()[0]
    }
}

impl Named for BrokerState {
    const KIND: &'static str = "broker state";
    const ALL: &'static [Self] = &[
        Self::LoadBuiltins,
        Self::Join,
        Self::ConfigSync,
        Self::Init,
        Self::Quorum,
        Self::Run,
        Self::Cleanup,
        Self::Shutdown,
        Self::Finalize,
        Self::Goodbye,
        Self::UnloadBuiltins,
        Self::Exit,
    ];

    fn spellings(self) -> &'static [&'static str] {
        match self {
            Self::LoadBuiltins => &["load-builtins"],
            Self::Join => &["join"],
            Self::ConfigSync => &["config-sync"],
            Self::Init => &["init"],
            Self::Quorum => &["quorum"],
            Self::Run => &["run"],
            Self::Cleanup => &["cleanup"],
            Self::Shutdown => &["shutdown"],
            Self::Finalize => &["finalize"],
            Self::Goodbye => &["goodbye"],
            Self::UnloadBuiltins => &["unload-builtins"],
            Self::Exit => &["exit"],
        }
    }
}

impl_named!(BrokerState);

impl OverlayStatus {
    /// Flux's word, such as `partial`.
    pub fn name(self) -> &'static str {
        self.spellings()[0]
    }

    /// Whether the broker itself is connected.
    pub fn is_online(self) -> bool {
        match self {
            Self::Full | Self::Partial | Self::Degraded => true,
            Self::Lost | Self::Offline | Self::Unknown => false,
        }
    }
}

impl Named for OverlayStatus {
    const KIND: &'static str = "overlay status";
    const ALL: &'static [Self] =
        &[Self::Full, Self::Partial, Self::Degraded, Self::Lost, Self::Offline, Self::Unknown];

    fn spellings(self) -> &'static [&'static str] {
        match self {
            Self::Full => &["full"],
            Self::Partial => &["partial"],
            Self::Degraded => &["degraded"],
            Self::Lost => &["lost"],
            Self::Offline => &["offline"],
            Self::Unknown => &["unknown"],
        }
    }
}

impl_named!(OverlayStatus);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back() {
        for state in BrokerState::ALL {
            assert_eq!(state.to_string().parse(), Ok(*state));
        }
        for status in OverlayStatus::ALL {
            assert_eq!(status.to_string().parse(), Ok(*status));
        }
        assert!(BrokerState::ALL.is_sorted());
    }

    #[test]
    fn reads_what_flux_overlay_status_shows() {
        for (word, online) in [
            ("full", true),
            ("partial", true),
            ("degraded", true),
            ("lost", false),
            ("offline", false),
        ] {
            let status: OverlayStatus = word.parse().unwrap();
            assert_eq!(status.is_online(), online, "{word}");
        }
    }
}
