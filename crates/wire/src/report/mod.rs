//! What agents report, and the work they get back.

mod first_build;
mod pending;

use std::net::IpAddr;

use flux_operator_flux::IdSet;
use serde::{Deserialize, Serialize};

pub use pending::{PendingJob, PendingPage};

/// What an agent says in one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "report")]
pub enum Report {
    /// A worker asks for the address of its lead. The answer is [`Work::Lead`], as soon as the
    /// lead has one.
    LeadWanted,
    /// The lead asks for other work than this. The answer comes as soon as there is some.
    WorkWanted {
        /// What it was told before.
        known: Vec<Work>,
    },
    /// The lead says how its instance is.
    Instance(InstanceState),
    /// The lead lists jobs that wait.
    Pending(PendingPage),
}

/// How an instance is, as its lead sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceState {
    /// Ranks whose brokers are online; none while the lead does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub online: Option<IdSet>,
    /// The program has been started.
    pub program_started: bool,
    /// How many jobs there are; none while the lead does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobCounts>,
    /// Flux's id of the instance's first job; empty before there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub first_job: String,
    /// What has become of [`Work::Drain`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<Drained>,
    /// The last thing that went wrong. Never holds a secret.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_error: String,
}

/// How many jobs an instance has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobCounts {
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
    /// Drain these ranks, and undrain all others that were drained by such work.
    Drain(Drain),
    /// List the jobs that wait, as [`Report::Pending`].
    ListPending,
}

impl Report {
    /// Reads a report, also one of an agent that was built before reports were of several
    /// kinds: its cluster may outlive the operator that made it.
    pub fn parse(text: &[u8]) -> Result<Report, serde_json::Error> {
        match serde_json::from_slice(text) {
            Ok(report) => Ok(report),
            Err(error) => first_build::parse(text).ok_or(error),
        }
    }
}
