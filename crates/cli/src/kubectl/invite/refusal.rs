//! Why a MiniCluster cannot invite.

use super::addition::{MAX_INVITATIONS, MAX_JOINER_NAME};
use super::invitation::count_of_ranks;

/// Why a MiniCluster cannot invite.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InviteRefusal {
    #[error("{cluster:?} joins another MiniCluster itself, so it has no ranks to lend")]
    Joiner { cluster: String, lender: Option<String> },
    #[error("{cluster:?} has finished, so there is no Flux instance to join")]
    Finished { cluster: String },
    #[error("{cluster:?} is being deleted")]
    Terminating { cluster: String },
    #[error("{cluster:?} is not exposed, so brokers of other Kubernetes clusters cannot reach it")]
    NotExposed { cluster: String },
    #[error("{cluster:?} would be refused: {problem}")]
    Invalid { cluster: String, problem: String },
    #[error("{cluster:?} can lend {} at most, and {wanted} are asked for", count_of_ranks(*lendable))]
    TooFewRanks { cluster: String, lendable: i32, wanted: i32 },
    #[error("{cluster:?} is already exposed with type {current}, not {wanted}")]
    ExposedOtherwise { cluster: String, current: &'static str, wanted: &'static str },
    #[error("invitation {invitation:?} of {cluster:?} is for {current}, not {wanted}")]
    OtherRanks { cluster: String, invitation: String, current: String, wanted: i32 },
    #[error("invitation {invitation:?} of {cluster:?} has expired at {expires}")]
    Expired { cluster: String, invitation: String, expires: String },
    #[error(
        "invitation {invitation:?} of {cluster:?} exists: it expires at {expires} and cannot be \
         extended"
    )]
    OtherEnd { cluster: String, invitation: String, expires: String },
    #[error("{cluster:?} has {MAX_INVITATIONS} invitations, and cannot have more")]
    TooMany { cluster: String },
    #[error(
        "the name {name:?} of the MiniCluster in the other cluster has {} characters, and may have \
         at most {MAX_JOINER_NAME}",
        name.len()
    )]
    LongName { name: String },
}

impl InviteRefusal {
    /// What to do about it, in the form of a remedy.
    pub(super) fn hint(&self) -> String {
        match self {
            InviteRefusal::Joiner { lender: Some(lender), .. } => {
                format!("invite to {lender:?}, whose instance it joins")
            }
            InviteRefusal::Joiner { lender: None, .. } => {
                "ask for an invitation where you got the one that it uses".into()
            }
            InviteRefusal::Finished { .. } => {
                "create it again, and invite while it is running".into()
            }
            InviteRefusal::Terminating { .. } => "choose another MiniCluster".into(),
            InviteRefusal::NotExposed { .. } => {
                "add `--expose NodePort`, or set spec.flux.bursting.expose".into()
            }
            InviteRefusal::Invalid { .. } => {
                "`flux-operator validate -f` checks a manifest before it is applied".into()
            }
            InviteRefusal::TooFewRanks { lendable: 0, .. } => {
                "create it again with hosts to lend: spec.maxSize above spec.size, or \
                 spec.flux.bursting.spareRanks"
                    .into()
            }
            InviteRefusal::TooFewRanks { .. } => {
                "ask for fewer, or create it again with more hosts \
                 to lend: spec.maxSize, or spec.flux.bursting.spareRanks"
                    .into()
            }
            InviteRefusal::ExposedOtherwise { .. } => {
                "omit --expose, or change spec.flux.bursting.expose.type".into()
            }
            InviteRefusal::OtherRanks { invitation, .. }
            | InviteRefusal::Expired { invitation, .. } => format!(
                "choose another name, or remove it with \
                 `kubectl minicluster invite revoke NAME {invitation}`"
            ),
            InviteRefusal::OtherEnd { .. } => {
                "invite under another name, or omit --ttl to write its file again".into()
            }
            InviteRefusal::TooMany { .. } => "revoke those that are not used: \
                 `kubectl minicluster invite list NAME` lists them"
                .into(),
            InviteRefusal::LongName { .. } => "give a shorter one with --as".into(),
        }
    }
}
