//! What agents report, and the work they get back.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// What one agent knows now. The lead says all of it, a worker that it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// Rank of the sender.
    pub rank: u32,
    /// The sender waits for the address of the lead.
    pub wants_lead: bool,
    /// Brokers, as the lead sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brokers: Option<BrokerCount>,
    /// The program has been started.
    pub program_started: bool,
    /// Jobs, as the lead sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobSummary>,
    /// The last thing that went wrong. Never holds a secret.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_error: String,
}

/// How many brokers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrokerCount {
    /// Online.
    pub online: u32,
    /// In the rank table.
    pub total: u32,
}

/// How many jobs there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSummary {
    /// Waiting.
    pub pending: u32,
    /// Running.
    pub running: u32,
    /// Ended.
    pub inactive: u32,
}

/// The operator's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reply {
    /// What to do.
    pub work: Vec<Work>,
    /// What the next report must echo.
    pub nonce: String,
    /// Another replica leads: ask there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
}

/// Something an agent should do, or know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// The lead's pod has this address.
    Lead(IpAddr),
    /// Take these ranks out of use once their jobs have ended.
    Drain(String),
    /// End the cluster.
    Stop,
}
