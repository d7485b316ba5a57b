//! How a broker of another cluster gets permission to start.
//!
//! Flux itself does not protect a rank: a second broker with the name of a live one replaces it,
//! before even its version is checked. So an agent asks the operator first.

use serde::{Deserialize, Serialize};

/// What must agree between the brokers of an instance, as an agent finds it on its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerFacts {
    /// The version of Flux; empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The user that the broker runs as.
    pub uid: u32,
    /// The number of cores that jobs may use.
    pub cores: u32,
}

/// An agent asks whether its broker may join the instance of another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinRequest {
    /// The agent's index in its own cluster.
    pub index: u32,
    /// The rank that its broker would have.
    pub rank: u32,
    /// Hash of the rank table in its boot plan.
    pub table: String,
    /// What it found on its machine.
    pub facts: BrokerFacts,
    /// The last error of the broker that exited before, if one did. Never contains a secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_error: String,
    /// Why the lender in another Kubernetes cluster has not given permission, if it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<JoinRefusal>,
}

/// Why a broker may not start yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinRefusal {
    /// Short, as the reason of a condition.
    pub reason: String,
    /// For users.
    pub message: String,
}

/// An agent in another Kubernetes cluster asks whether its broker may start. It is sealed with the
/// key of its invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InvitedRequest {
    /// UID of the agent's cluster there, the joiner: an invitation is used by one.
    pub joiner: String,
    /// Its namespace and name.
    pub joiner_name: String,
    /// What it asks.
    pub request: JoinRequest,
}

/// The answer to an [`InvitedRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InvitedAnswer {
    /// The broker may start.
    Start,
    /// Not now: ask again.
    Wait(JoinRefusal),
}

/// The operator's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JoinAnswer {
    /// The broker may start.
    Start,
    /// Not now: ask again. The text says why.
    Wait(String),
    /// The pod was created for another rank or another table: it should be replaced.
    Replace(String),
}
