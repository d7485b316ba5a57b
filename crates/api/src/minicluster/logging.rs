//! `spec.logging` and `spec.archive`.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::unset::unset;

/// What is written to the log.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Logging {
    /// Show only what the command prints.
    #[serde(default, skip_serializing_if = "unset")]
    pub quiet: bool,

    /// Stop at the first hook that fails.
    #[serde(default, skip_serializing_if = "unset")]
    pub strict: bool,

    /// Let Flux describe how it submits the command.
    #[serde(default, skip_serializing_if = "unset")]
    pub debug: bool,

    /// Log what the brokers' connections do.
    #[serde(default, skip_serializing_if = "unset")]
    pub zeromq: bool,

    /// Print how long Flux and the command took, on lines that start with FLUXTIME.
    #[serde(default, skip_serializing_if = "unset")]
    pub timed: bool,
}

/// Flux state to start from and to leave.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Archive {
    /// Path of the archive in the lead pod. If it exists the cluster starts from
    /// it, and at its end the cluster's state is written there.
    #[serde(default, skip_serializing_if = "unset")]
    #[schemars(length(max = 4096))]
    pub path: String,
}
