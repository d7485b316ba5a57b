//! `spec.logging` and `spec.archive`.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::unset::is_unset;

/// What is written to the log.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Logging {
    /// Print only the output of the command.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub quiet: bool,

    /// Stop at the first hook that fails.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub strict: bool,

    /// Print how Flux submits the command.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub debug: bool,

    /// Log the connections of the brokers.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub zeromq: bool,

    /// Print the run times of Flux and of the command, on lines that start with FLUXTIME.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub timed: bool,
}

/// Flux state to restore at the start and save at the end.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Archive {
    /// Path of the archive in the lead pod. If it exists, the state is restored from it.
    /// When the cluster stops, its state is saved there.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub path: String,
}
