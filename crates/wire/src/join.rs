//! How a broker of another cluster gets permission to start.
//!
//! Flux itself does not protect a rank: a second broker with the name of a live one replaces it,
//! before even its version is checked. So an agent asks the operator first.

use flux_operator_flux::{Version, VersionTooOld};
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

/// In what a broker differs from the lead, so that it cannot join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerMismatch {
    /// Only one of the versions is known.
    #[error("its pods have Flux {own:?} and the lender has {leads:?}, which cannot be compared")]
    UnknownVersion {
        /// The broker's version.
        own: String,
        /// The lead's.
        leads: String,
    },
    /// Its Flux is not supported.
    #[error(transparent)]
    TooOld(VersionTooOld),
    /// It has another release.
    #[error(
        "its pods have Flux {own} and the lender has {leads}: Flux accepts only brokers of the same \
         release"
    )]
    Version {
        /// The broker's version.
        own: Version,
        /// The lead's.
        leads: Version,
    },
    /// It runs as another user.
    #[error(
        "its pods run as user {own} and the lender's as user {leads}: jobs submitted from them would \
         fail"
    )]
    User {
        /// The broker's user.
        own: u32,
        /// The lead's.
        leads: u32,
    },
}

impl BrokerFacts {
    /// In what a broker differs from the lead so that it cannot join. Cores are not compared: how many it
    /// needs depends on its rank.
    pub fn mismatch(&self, lead: &BrokerFacts) -> Option<BrokerMismatch> {
        let versions = (self.version.parse::<Version>().ok(), lead.version.parse::<Version>().ok());
        match versions {
            (Some(own), Some(leads)) => {
                if let Err(too_old) = own.check() {
                    return Some(BrokerMismatch::TooOld(too_old));
                }
                if !own.is_compatible_with(leads) {
                    return Some(BrokerMismatch::Version { own, leads });
                }
            }
            (None, None) => {}
            _ => {
                let (own, leads) = (self.version.clone(), lead.version.clone());
                return Some(BrokerMismatch::UnknownVersion { own, leads });
            }
        }
        let (own, leads) = (self.uid, lead.uid);
        (own != leads).then_some(BrokerMismatch::User { own, leads })
    }
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
