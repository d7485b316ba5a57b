//! The run of a job in an instance of its own, in the status of its Burst.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::unset::is_unset;

/// The run of one job in an instance of its own.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BurstRun {
    /// How far it is.
    pub state: RunState,

    /// Exit code of the job, if it has run to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,

    /// When it was started at the target. Unset: that was not observed.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub started_at: String,

    /// When it had finished there.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub finished_at: String,

    /// Name of the ConfigMap with the end of its output, which is deleted with the Burst.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub output: String,

    /// What happened, or why it has not run.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub message: String,

    /// Record: the job at home is held for the run, or is about to be. Until it is known to be released,
    /// the Burst does not end.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub hold_ordered: bool,

    /// Record: the job's urgency before it was held for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgency: Option<i32>,

    /// Record: its Job may exist at the target, or the job has run there. Then the job at home is never
    /// given back to the queue.
    #[serde(default)]
    pub may_have_run: bool,

    /// Record: what remained to do with the output was done, even if there is none.
    #[serde(default)]
    pub output_settled: bool,

    /// Record: what remained to do with the job at home was done.
    #[serde(default)]
    pub home_settled: bool,
}

/// How far the run of a job is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunState {
    /// The job is held at home, and its jobspec is read.
    #[default]
    Holding,
    /// It is created at the target. From here on it is never started a second time.
    Starting,
    /// It runs.
    Running,
    /// It has finished: its output is saved, the job at home is canceled, and what exists at the
    /// target is deleted.
    Finishing,
    /// It has finished, with exit code 0.
    Completed,
    /// It has failed, or was lost.
    Failed,
    /// The job cannot run elsewhere. It waits at home.
    Refused,
    /// Another Burst runs the job.
    Yielded,
}

impl RunState {
    /// Whether nothing is left to do.
    pub fn is_over(self) -> bool {
        match self {
            RunState::Holding | RunState::Starting => false,
            RunState::Running | RunState::Finishing => false,
            RunState::Completed | RunState::Failed => true,
            RunState::Refused | RunState::Yielded => true,
        }
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Holding => "Holding",
            RunState::Starting => "Starting",
            RunState::Running => "Running",
            RunState::Finishing => "Finishing",
            RunState::Completed => "Completed",
            RunState::Failed => "Failed",
            RunState::Refused => "Refused",
            RunState::Yielded => "Yielded",
        }
    }
}
