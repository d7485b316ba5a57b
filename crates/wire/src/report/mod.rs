//! What agents report to the operator, and the work they get back.

mod first_build;
mod hand_over;
mod pending;

use std::net::IpAddr;

use flux_operator_flux::IdSet;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{BrokerFacts, InvitedAnswer, InvitedRequest, JoinAnswer, JoinRequest};

pub use hand_over::{
    HomeJobState, JobGoal, JobOrder, JobRefusal, JobspecText, MAX_JOBSPEC, OrderAnswer,
};
pub use pending::{JobList, PendingJob, PendingPage, RankUse, RunningJob};

/// What an agent sends in one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "report")]
pub enum Report {
    /// A worker asks for the address of its lead. The reply is [`Work::Lead`], sent as soon as
    /// the lead has an address.
    LeadWanted,
    /// A worker of another cluster asks whether its broker may start. The reply is
    /// [`Work::Join`].
    JoinWanted(JoinRequest),
    /// A worker in another Kubernetes cluster asks whether its broker may start. The reply is
    /// [`Work::Invited`].
    InvitedJoinWanted(InvitedRequest),
    /// The lead waits for new work. The reply is sent as soon as the work is not `known`.
    WorkWanted {
        /// The work it already knows.
        known: Vec<Work>,
    },
    /// The lead reports the state of its instance.
    Instance(InstanceState),
    /// The lead lists pending jobs.
    Pending(PendingPage),
    /// The lead answers an order of [`Work::Jobs`].
    Job(OrderAnswer),
}

/// The state of an instance, as observed by its lead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceState {
    /// Ranks whose brokers are online; `None` while the lead's broker does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub online: Option<IdSet>,
    /// The program has been started.
    pub program_started: bool,
    /// How many jobs there are; `None` while the lead's broker does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobCounts>,
    /// Flux's ID of the instance's first job; empty before there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub first_job: String,
    /// The result of [`Work::Drain`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<Drained>,
    /// The pending job that keeps all others from starting, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocking_job: Option<BlockingJob>,
    /// What the brokers of other clusters must agree with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead: Option<BrokerFacts>,
    /// The last error. Never contains a secret.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_error: String,
}

/// A job that cannot start with the brokers that are online, and that the scheduler does not skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockingJob {
    /// Its ID, as a number.
    pub job: u64,
    /// How many nodes it needs.
    pub nodes: u32,
}

/// How many jobs an instance has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobCounts {
    /// Pending.
    pub pending: u32,
    /// Running.
    pub running: u32,
    /// Finished.
    pub inactive: u32,
}

/// The ranks on which no new job should be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// The ranks. Those that are not online are ignored.
    pub ranks: IdSet,
    /// Since when the operator has been waiting for jobs on these ranks; empty if it is not.
    /// The same ranks with another time are another request.
    pub since: String,
}

/// A drain request that has been applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drained {
    /// The request: no new job is placed on these ranks.
    pub asked: Drain,
    /// The ranks on which earlier jobs still run.
    pub busy: IdSet,
}

/// The operator's reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reply {
    /// What the agent should do. Work of a kind that the agent does not know is skipped: the operator may be of
    /// another build.
    #[serde(deserialize_with = "known_work")]
    pub work: Vec<Work>,
    /// The nonce for the next report.
    pub nonce: String,
    /// Set if another replica leads: its address, to send reports to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
}

/// Something an agent should do, or know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// The address of the lead's pod.
    Lead(IpAddr),
    /// Whether the broker may join.
    Join(JoinAnswer),
    /// Whether the broker of another Kubernetes cluster may join.
    Invited(InvitedAnswer),
    /// Drain these ranks, and undrain all others that were drained by earlier work.
    Drain(Drain),
    /// List the pending jobs, as [`Report::Pending`].
    ListPending,
    /// Bring these jobs into these states, and answer each order with a [`Report::Job`], again and
    /// again while it is among them.
    Jobs(Vec<JobOrder>),
}

fn known_work<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Work>, D::Error> {
    let work: Vec<Value> = Deserialize::deserialize(from)?;
    Ok(work.into_iter().filter_map(|work| serde_json::from_value(work).ok()).collect())
}

impl Report {
    /// Parses a report, including those of agents of the first build: a cluster may outlive the
    /// operator that created it.
    pub fn parse(text: &[u8]) -> Result<Report, serde_json::Error> {
        match serde_json::from_slice(text) {
            Ok(report) => Ok(report),
            Err(error) => first_build::parse(text).ok_or(error),
        }
    }
}
