//! The states of one broker and of its subtree, as Flux prints them.
//!
//! A broker's own state is the second word of `flux uptime`. The overlay status is printed by
//! `flux overlay status` for each broker: how much of its subtree is online.

use crate::names::{Named, impl_named};

/// The state of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BrokerState {
    /// Loads the built-in modules.
    LoadBuiltins,
    /// Connects to its parent.
    Join,
    /// Waits for the configuration of rank 0.
    ConfigSync,
    /// Runs rc1.
    Init,
    /// Waits for enough brokers.
    Quorum,
    /// Is running; rank 0 runs the initial program.
    Run,
    /// Cancels remaining jobs.
    Cleanup,
    /// Waits for its children to disconnect.
    Shutdown,
    /// Runs rc3.
    Finalize,
    /// Disconnects from its parent.
    Goodbye,
    /// Unloads the built-in modules.
    UnloadBuiltins,
    /// Is about to exit.
    Exit,
}

/// How much of a broker's subtree is online.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OverlayStatus {
    /// All of it.
    Full,
    /// Some brokers have not joined yet.
    Partial,
    /// Some brokers were lost.
    Degraded,
    /// The broker itself was online and is lost.
    Lost,
    /// The broker itself has not joined yet, or has disconnected normally.
    Offline,
    /// Flux does not know yet.
    Unknown,
}

impl BrokerState {
    /// Flux's name, such as `quorum`.
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
    /// Flux's name, such as `partial`.
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
    fn every_name_is_parsed_back() {
        for state in BrokerState::ALL {
            assert_eq!(state.to_string().parse(), Ok(*state));
        }
        for status in OverlayStatus::ALL {
            assert_eq!(status.to_string().parse(), Ok(*status));
        }
        assert!(BrokerState::ALL.is_sorted());
    }

    #[test]
    fn parses_the_output_of_flux_overlay_status() {
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
