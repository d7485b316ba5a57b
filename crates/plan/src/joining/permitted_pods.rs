//! Which pod elsewhere last had permission for a rank of an invitation.
//!
//! Two pods of one index, such as one that is replaced and its successor, may ask for the same rank. The
//! lead reports a broker online only once it has connected, so until then the permission is what says
//! that the rank is taken.

use std::collections::BTreeMap;

use flux_operator_api::minicluster::Invitation;
use flux_operator_api::{MiniCluster, Reason};
use k8s_openapi::jiff::Timestamp;

use super::invitation::{invitation_holder, invitations};
use super::permission::Permission;
use crate::time::seconds_after;

/// How long a rank is kept for the pod that has permission, in seconds. Its agent stops a broker that has
/// not connected within 60 s; the lead notices one that has within 5 s, and its report takes up to 10. A
/// pod that replaces one with permission has to wait that long at most, and only if the other one had it
/// just before.
const STARTING_SECONDS: i64 = 75;

/// What is known about the broker that asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownBroker {
    /// This very pod had permission for this rank before.
    pub had_permission: bool,
    /// When another pod had permission for this rank, if that was the last one.
    pub other_permitted: Option<Timestamp>,
}

impl KnownBroker {
    /// Why the broker may not start at a rank yet: that of another pod may be starting there.
    pub(super) fn denial(&self, rank: u32, now: Timestamp) -> Option<Permission> {
        let is_recent = |at: Timestamp| now < seconds_after(at, STARTING_SECONDS);
        self.other_permitted.is_some_and(is_recent).then(|| {
            let message = format!("another pod was permitted to start the broker of rank {rank}");
            Permission::Denied(Reason::Joining, message)
        })
    }
}

/// The pods that had permission last, for the invitations of one lender.
#[derive(Clone, Debug, Default)]
pub struct PermittedPods {
    /// By holder of the lease and rank.
    last: BTreeMap<(String, u32), PermittedPod>,
}

#[derive(Clone, Debug)]
struct PermittedPod {
    uid: String,
    at: Timestamp,
}

impl PermittedPods {
    /// What is known about the broker of the pod with this uid.
    pub fn known(&self, invitation: &Invitation, rank: u32, pod: &str) -> KnownBroker {
        match self.last.get(&(invitation_holder(invitation), rank)) {
            None => KnownBroker::default(),
            Some(last) if last.uid == pod => {
                KnownBroker { had_permission: true, other_permitted: None }
            }
            Some(last) => KnownBroker { had_permission: false, other_permitted: Some(last.at) },
        }
    }

    /// Gives the permission to a pod, unless another one got it since its broker was
    /// [known](Self::known). What invitations had that the lender has no more is forgotten.
    pub fn claim(
        &mut self,
        lender: &MiniCluster,
        invitation: &Invitation,
        rank: u32,
        pod: &str,
        now: Timestamp,
    ) -> Permission {
        if let Some(denied) = self.known(invitation, rank, pod).denial(rank, now) {
            return denied;
        }
        let holders: Vec<String> = invitations(lender).iter().map(invitation_holder).collect();
        self.last.retain(|(holder, _), _| holders.contains(holder));
        let permitted = PermittedPod { uid: pod.to_owned(), at: now };
        self.last.insert((invitation_holder(invitation), rank), permitted);
        Permission::Granted
    }
}
