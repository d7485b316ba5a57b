//! The rank table of an instance, with the owner and the state of every rank.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rank table of a MiniCluster's Flux instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankTable {
    /// Namespace of the MiniCluster whose instance it is.
    pub namespace: String,
    /// Name of the MiniCluster whose instance it is.
    pub name: String,
    /// The MiniCluster that joins the instance and whose ranks alone are listed; unset if all are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub joiner: Option<String>,
    /// The ranks, in their order.
    pub items: Vec<RankRange>,
}

/// Consecutive ranks with the same owner, state and property.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankRange {
    /// The ranks, such as `4-7`.
    pub ranks: String,
    /// Their hosts, such as `fs-spare-[0-3]`.
    pub hosts: String,
    /// Whose brokers have them: a MiniCluster, as `namespace/name` if it is in another namespace
    /// than the one that was asked about, or a pool whose brokers were started by hand. Unset if
    /// no MiniCluster has them.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub owner: String,
    /// Their state.
    pub state: RankState,
    /// The property of the hosts: `home`, `spare`, or the name of a pool.
    pub property: String,
    /// Since when they are leased, or being given back; unset if neither.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<String>,
}

/// The state of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RankState {
    /// Its broker is online.
    Online,
    /// It is in use, and its broker is not online.
    Offline,
    /// It is in use, and the lead does not report whether its broker is online.
    Unknown,
    /// No new job starts on it, and its broker stops when the running ones have finished.
    Leaving,
    /// It is not in use.
    #[default]
    Free,
}

impl fmt::Display for RankState {
    /// As in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RankState::Online => "online",
            RankState::Offline => "offline",
            RankState::Unknown => "unknown",
            RankState::Leaving => "leaving",
            RankState::Free => "free",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_printed_as_it_is_in_json() {
        for state in [
            RankState::Online,
            RankState::Offline,
            RankState::Unknown,
            RankState::Leaving,
            RankState::Free,
        ] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.to_string());
        }
    }
}
