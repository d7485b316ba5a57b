//! A job that is handed over to an instance of its own elsewhere.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a job of an instance should become.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HandOverRequest {
    /// What the job should become.
    pub goal: HandOverGoal,
    /// Of a job that is canceled: the message.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub message: String,
    /// Of a job that is released: its urgency before it was held; unset if it was held already.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub urgency: Option<u32>,
    /// For how many seconds the response may be delayed; at most 25.
    #[serde(default)]
    pub wait: u64,
}

/// What a job should become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HandOverGoal {
    /// Held. The response has its jobspec.
    #[default]
    Held,
    /// Canceled, with a message.
    Canceled,
    /// As it was before it was held.
    Released,
}

/// What has become of a job. `Debug` does not print the jobspec.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HandedOverJob {
    /// What it is; unset if the lead has not answered yet: ask again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub state: Option<HandOverState>,
    /// Its urgency before it was held; unset if it was held already.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub urgency: Option<u32>,
    /// Why it cannot be handed over, of a job that waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refusal: Option<HandOverRefusal>,
    /// Its jobspec as it was submitted, with what was changed since, of a job that is held. Its environment may be secret.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub jobspec: String,
    /// Whether the jobspec is too large to be handed over.
    #[serde(default)]
    pub too_large: bool,
}

/// Why a job cannot be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HandOverRefusal {
    /// It belongs to another user than the owner of the instance.
    OtherUser,
    /// Its jobspec was changed in a way that cannot be repeated.
    NotUpdatable,
}

/// What a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HandOverState {
    /// It waits, and may start.
    Pending,
    /// It waits, and does not start.
    Held,
    /// It has resources.
    Started,
    /// It has finished, or was canceled.
    Finished,
    /// There is no such job.
    Missing,
}

impl fmt::Debug for HandedOverJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedOverJob")
            .field("state", &self.state)
            .field("urgency", &self.urgency)
            .field("refusal", &self.refusal)
            .field("too_large", &self.too_large)
            .finish_non_exhaustive()
    }
}
