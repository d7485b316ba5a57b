//! Connected MiniClusters: the brokers of one, the joiner, lease ranks of the Flux instance of
//! another, the lender.
//!
//! ```text
//!   lender                                        joiner
//!   status.leases: rank, holder, state   ◄──────  names its lender in spec.flux
//!     │ Active  ────────────────────────────────► creates its Job; each agent asks for permission,
//!     │                                           and only then starts its broker
//!     │ Leaving ────────────────────────────────► no broker starts any more; its ranks are drained,
//!     │                                           then its pods are deleted
//!     ▼ removed: the brokers are offline, and the API server has no pod for these ranks
//! ```
//!
//! Only the lender's reconciliation writes leases, always for the resource version it was computed
//! from, so two holders cannot be granted one rank. A lease is removed in two writes: after the
//! first no broker gets permission to start, and before the second the API server itself is asked
//! which pods are left. So a rank never has brokers of two holders, whatever the watches show.
//!
//! `offline` applies the same rules where there is no operator, as on one machine.

mod claims;
mod draining;
mod duration;
mod grant;
mod invitation;
mod invitation_file;
mod invitation_note;
mod joiner;
mod lease;
mod lender;
mod lender_keys;
mod offline;
mod permission;
mod permitted_pods;
mod pods;
mod remote;

pub(crate) use draining::{busy_ranks, drain_request};
pub use duration::joined_after;
pub(crate) use invitation::bursting;
pub use invitation::{
    InvitedCluster, invitation_holder, invited_permission, is_expired, shown_expiry,
};
pub(crate) use invitation_file::broker_spec;
pub use invitation_file::{
    InvitationFile, InvitationFileError, InvitationSecrets, invitation_file,
};
pub(crate) use invitation_note::{awaits_grant, is_note_step, note_change};
pub use joiner::FINALIZER;
pub(crate) use joiner::{JoinState, evaluate, has_finalizer};
pub(crate) use lease::LeaseRecord;
pub use lender::{JoinerView, LenderView, lender_of, may_join, must_consider};
pub(crate) use lender::{
    LeaseDecision, SizeLimit, allows, decide_leases, has_lease, highest_free_size, take_back_leases,
};
pub use lender_keys::{LenderKeysError, SecretData, SecretNames};
pub use offline::{OfflineJoinError, OfflineLease, OfflineLender, lendable_ranks};
pub use permission::{Permission, permission};
pub use permitted_pods::{KnownBroker, PermittedPods};
pub(crate) use pods::lender_queries;
pub use remote::remote_permission;
pub(crate) use remote::{RemoteInstance, evaluate as evaluate_remote};
