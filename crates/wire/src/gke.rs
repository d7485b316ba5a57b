//! What the burst controller and the program `flux-operator-gke` both spell, besides the contract of any
//! program that makes a cluster: its settings, and the exit codes by which it says why a cluster cannot be
//! made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The program, in its image.
pub const GKE_PROGRAM: &str = "/flux-operator-gke";

/// The variable with [`GkeSettings`] as JSON.
pub const GKE_SETTINGS: &str = "GKE_SETTINGS";

/// The variable with the key of a Google service account, as JSON. Without it the program asks the
/// metadata server, as with Workload Identity.
pub const GKE_CREDENTIALS: &str = "GKE_CREDENTIALS";

/// Which cluster to make. What differs from one run to the next has variables of its own.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct GkeSettings {
    /// The project.
    pub project: String,
    /// The zone.
    pub location: String,
    /// The machine type of its nodes.
    pub machine_type: String,
    /// The Google service account of its nodes; empty for that of Compute Engine.
    pub node_service_account: String,
    /// The size of a node's disk, in GB; 0 for Google's default.
    pub disk_size_gb: i32,
    /// Whether nodes are Spot VMs.
    pub spot: bool,
    /// The network; empty for `default`.
    pub network: String,
    /// The subnetwork; empty for that of the network in the region.
    pub subnetwork: String,
    /// The version of Kubernetes; empty for that of the channel.
    pub version: String,
    /// The release channel; empty for Google's default.
    pub release_channel: String,
    /// More labels of the cluster and its nodes, for bills.
    pub labels: BTreeMap<String, String>,
    /// The namespace for brokers; empty for `default`.
    pub namespace: String,
    /// Between which sizes Google's autoscaler keeps the node pool; without it the size is fixed.
    pub autoscaling: Option<(i32, i32)>,
}

/// Why the program gave up: another run would fail as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GkeFailure {
    /// Its environment is not as expected, or Google refuses a setting.
    Settings,
    /// Google does not accept the credentials.
    Credentials,
    /// The account may not do something.
    Permission,
    /// A quota of the project is too small, or the zone has no such machines.
    Quota,
    /// A cluster of this name belongs to another owner.
    OtherOwner,
    /// The cluster could not be made, cannot be used, or was deleted meanwhile.
    Broken,
}

impl GkeFailure {
    /// All of them.
    pub const ALL: [GkeFailure; 6] = [
        GkeFailure::Settings,
        GkeFailure::Credentials,
        GkeFailure::Permission,
        GkeFailure::Quota,
        GkeFailure::OtherOwner,
        GkeFailure::Broken,
    ];

    /// The exit code. The codes begin after those that shells and Rust use.
    pub fn exit_code(self) -> u8 {
        match self {
            GkeFailure::Settings => 81,
            GkeFailure::Credentials => 82,
            GkeFailure::Permission => 83,
            GkeFailure::Quota => 84,
            GkeFailure::OtherOwner => 85,
            GkeFailure::Broken => 86,
        }
    }

    /// The failure with this exit code.
    pub fn from_exit_code(code: i32) -> Option<GkeFailure> {
        GkeFailure::ALL.into_iter().find(|it| i32::from(it.exit_code()) == code)
    }

    /// What happened, and what to do. What Google said is in the program's log.
    pub fn text(self) -> &'static str {
        match self {
            GkeFailure::Settings => "Google refuses the settings: change the target",
            GkeFailure::Credentials => {
                "Google does not accept the credentials: check the ServiceAccount's binding, or \
                 replace the key"
            }
            GkeFailure::Permission => {
                "the Google service account lacks a permission, or the API is not enabled: grant the \
                 role of the guide"
            }
            GkeFailure::Quota => {
                "Google has no quota or no machines for it: ask Google for more, or use another zone \
                 or machine type"
            }
            GkeFailure::OtherOwner => {
                "a cluster of this name belongs to another owner: delete it, or restore its label if it \
                 was made for the Burst"
            }
            GkeFailure::Broken => {
                "Google has made no cluster that can be used: read its reason in the log of the Job; \
                 what was made is deleted with the Burst"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_an_exit_code_of_its_own() {
        for failure in GkeFailure::ALL {
            assert_eq!(GkeFailure::from_exit_code(failure.exit_code().into()), Some(failure));
        }
        for other in [0, 1, 2, 80, 87, 137] {
            assert_eq!(GkeFailure::from_exit_code(other), None);
        }
    }
}
