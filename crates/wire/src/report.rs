//! What agents report, and the work they get back.

use std::net::IpAddr;

use flux_operator_flux::IdSet;
use serde::{Deserialize, Serialize};

/// What one agent knows now. The lead says all of it, a worker that it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// Rank of the sender.
    pub rank: u32,
    /// The sender waits for the address of the lead.
    pub wants_lead: bool,
    /// The sender waits for other work than this, and says nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wants_work: Option<Vec<Work>>,
    /// Brokers, as the lead sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brokers: Option<BrokerCount>,
    /// The program has been started.
    pub program_started: bool,
    /// Jobs, as the lead sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobSummary>,
    /// What has become of [`Work::Drain`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<Drained>,
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

/// Which ranks no new job should be placed on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// The ranks. Of those that are not online nothing needs to be done.
    pub ranks: IdSet,
    /// When it began that jobs there are waited for; empty if they are not. The same
    /// ranks at another time are another request.
    pub since: String,
}

/// A request to drain that has been carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drained {
    /// What was asked for: no new job can come to these ranks.
    pub asked: Drain,
    /// Where jobs that came before still run.
    pub busy: IdSet,
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
    /// Make it so that these ranks take no new jobs, and all others that were told
    /// not to do again.
    Drain(Drain),
    /// End the cluster.
    Stop,
}
