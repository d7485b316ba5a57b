//! Brokers in another Kubernetes cluster, which use invitations, and the gateway that they connect
//! through.

use std::sync::Arc;

use flux_operator_api::minicluster::{Invitation, LeaseState};
use flux_operator_flux::RankList;
use flux_operator_plan::{
    InvitedCluster, LenderView, Permission, invitation_holder, invited_permission,
};
use flux_operator_wire::{InvitedRequest, JoinRequest};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::instance::facts;
use super::{LENDER, World};

/// A pod of a joiner in another Kubernetes cluster, whose agent has the file of an invitation.
#[derive(Clone, Debug)]
pub(super) struct RemotePod {
    uid: String,
    /// Its cluster.
    cluster: String,
    /// The invitation, as it was when the file was written.
    invitation: Invitation,
    index: u32,
    rank: u32,
    table: String,
    /// Its broker runs. It connects by itself, and again after its connection was closed.
    is_running: bool,
    /// The lead knows the broker.
    is_online: bool,
    /// When the agent stops the broker if it is not connected.
    patient_until: Timestamp,
}

/// How long an agent waits for the first connection of its broker.
const FIRST_PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// How long it waits for the next one, after the connection was lost.
const LATER_PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// What an operator remembers of remote joiners.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownRemoteJoiners {
    pub(super) invited: Vec<InvitedCluster>,
}

impl World {
    /// A user invites, unless an invitation has that name.
    pub fn invite(&mut self, number: usize, ranks: i32, seconds: i64) {
        let expires = (self.now + SignedDuration::from_secs(seconds)).to_string();
        let invitation =
            Invitation { name: format!("i{number}"), ranks, expires, ..Invitation::default() };
        let mut invitations = self.invitations();
        if !invitations.iter().any(|it| it.name == invitation.name) {
            invitations.push(invitation);
            self.set_invitations(&invitations);
        }
    }

    pub fn revoke(&mut self, number: usize) {
        let mut invitations = self.invitations();
        let before = invitations.len();
        invitations.retain(|it| it.name != format!("i{number}"));
        if invitations.len() < before {
            self.set_invitations(&invitations);
        }
    }

    /// Every invitation is revoked; whether there was one.
    pub fn revoke_all(&mut self) -> bool {
        let had_some = !self.invitations().is_empty();
        self.set_invitations(&[]);
        had_some
    }

    fn set_invitations(&mut self, invitations: &[Invitation]) {
        let value = json!(invitations);
        self.edit(LENDER, |it| it["spec"]["flux"]["bursting"]["invitations"] = value);
    }

    pub(super) fn invitations(&self) -> Vec<Invitation> {
        let bursting = &self.stored.miniclusters[LENDER]["spec"]["flux"]["bursting"];
        serde_json::from_value(bursting["invitations"].clone()).unwrap_or_default()
    }

    /// A cluster elsewhere creates the pods of an invitation, with the file as it is written now.
    pub fn accept(&mut self, number: usize, cluster: usize) {
        let name = format!("i{number}");
        let invitations = self.invitations();
        let Some(invitation) = invitations.into_iter().find(|it| it.name == name) else { return };
        let lender = self.read(&self.stored, LENDER).unwrap();
        let leases = lender.status.unwrap_or_default().leases;
        let uid = invitation_holder(&invitation);
        let active = |state| state == LeaseState::Active;
        let lease = leases.into_iter().find(|it| it.holder == uid && active(it.state));
        let Some(lease) = lease else { return };
        let cluster = format!("theirs-{cluster}");
        self.remote_pods.retain(|it| it.cluster != cluster || it.invitation.name != name);
        let ranks: RankList = lease.ranks.parse().unwrap();
        let mut uids = ranks.iter().map(|_| self.fresh("remote")).collect::<Vec<_>>().into_iter();
        let pod = |(index, rank): (usize, u32)| RemotePod {
            uid: uids.next().unwrap(),
            cluster: cluster.clone(),
            invitation: invitation.clone(),
            index: u32::try_from(index).unwrap(),
            rank,
            table: lease.table.clone(),
            is_running: false,
            is_online: false,
            patient_until: Timestamp::default(),
        };
        self.remote_pods.extend(ranks.iter().enumerate().map(pod));
    }

    /// The agent of a remote pod asks an operator, which reads the lender from the API server.
    pub fn remote_pod_asks(&mut self, operator: usize, number: usize) {
        let waiting = (0..self.remote_pods.len()).filter(|it| !self.remote_pods[*it].is_running);
        let waiting: Vec<usize> = waiting.collect();
        if let Some(index) = number.checked_rem(waiting.len()) {
            self.ask_for_remote_pod(operator, waiting[index]);
        }
    }

    pub(super) fn remote_pods_ask(&mut self, operator: usize) {
        (0..self.remote_pods.len()).for_each(|index| self.ask_for_remote_pod(operator, index));
    }

    fn ask_for_remote_pod(&mut self, operator: usize, index: usize) {
        let pod = self.remote_pods[index].clone();
        // The key of an invitation with another end is another one, and its port is closed without a
        // lease.
        if pod.is_running || !self.gateway_allows(&pod) {
            return;
        }
        let invited = &mut self.operators[operator].remote_joiners.invited;
        let is_of =
            |it: &InvitedCluster| (&it.uid, &it.invitation) == (&pod.cluster, &pod.invitation.name);
        invited.retain(|it| !is_of(it));
        invited.push(InvitedCluster {
            invitation: pod.invitation.name.clone(),
            expires: pod.invitation.expires.clone(),
            uid: pod.cluster.clone(),
            name: pod.cluster.clone(),
            asked: self.now,
            refusal: None,
        });
        let Some(cached) = self.lender(operator) else { return };
        let lender = self.read(&self.stored, LENDER).unwrap();
        let fresh = LenderView { minicluster: Arc::new(lender), ..cached };
        let asked = InvitedRequest {
            joiner: pod.cluster.clone(),
            joiner_name: pod.cluster.clone(),
            request: JoinRequest {
                index: pod.index,
                rank: pod.rank,
                table: pod.table,
                facts: facts(),
                last_error: String::new(),
                refusal: None,
            },
        };
        let broker = self.permitted.known(&pod.invitation, pod.rank, &pod.uid);
        let sealed = &pod.invitation;
        let granted = |it: Permission| it == Permission::Granted;
        if granted(invited_permission(&fresh, sealed, &asked, broker, self.now))
            && granted(self.permitted.claim(
                &fresh.minicluster,
                sealed,
                pod.rank,
                &pod.uid,
                self.now,
            ))
        {
            self.remote_pods[index].is_running = true;
            self.remote_pods[index].patient_until = self.now + FIRST_PATIENCE;
        }
    }

    /// The broker of a remote pod connects, for the first time or again.
    pub fn remote_pod_connects(&mut self, number: usize) {
        let running = (0..self.remote_pods.len()).filter(|it| self.remote_pods[*it].is_running);
        let running: Vec<usize> = running.collect();
        if let Some(index) = number.checked_rem(running.len()).map(|index| running[index]) {
            self.remote_pods[index].is_online = self.gateway_allows(&self.remote_pods[index]);
        }
    }

    pub(super) fn remote_pods_connect(&mut self) {
        (0..self.remote_pods.len()).for_each(|index| self.remote_pod_connects(index));
    }

    /// A remote pod is deleted.
    pub fn remote_pod_stops(&mut self, number: usize) {
        if let Some(index) = number.checked_rem(self.remote_pods.len()) {
            self.remote_pods.remove(index);
        }
    }

    /// The gateway closes connections as soon as the stored object does not allow them. Agents stop
    /// brokers that have not been connected for a while.
    pub(super) fn close_connections(&mut self) {
        for index in 0..self.remote_pods.len() {
            let is_allowed = self.gateway_allows(&self.remote_pods[index]);
            let (pod, now) = (&mut self.remote_pods[index], self.now);
            if pod.is_online && !is_allowed {
                pod.is_online = false;
                pod.patient_until = now + LATER_PATIENCE;
            }
            pod.is_running &= pod.is_online || now < pod.patient_until;
        }
    }

    /// Whether the gateway accepts a remote pod's connection: its invitation is there, and has a lease.
    fn gateway_allows(&self, pod: &RemotePod) -> bool {
        let uid = invitation_holder(&pod.invitation);
        let leases = &self.stored.miniclusters[LENDER]["status"]["leases"];
        let mut leases = leases.as_array().into_iter().flatten();
        let has_lease = leases.any(|it| it["holder"] == *uid && it["state"] == "Active");
        has_lease
            && self.invitations().contains(&pod.invitation)
            && !self.is_expired(&pod.invitation)
    }

    pub(super) fn is_expired(&self, invitation: &Invitation) -> bool {
        self.now >= invitation.expires.parse::<Timestamp>().unwrap()
    }

    /// The ranks of remote brokers that are online.
    pub(super) fn remote_ranks_online(&self) -> impl Iterator<Item = u32> + '_ {
        self.remote_pods.iter().filter(|pod| pod.is_online).map(|pod| pod.rank)
    }

    /// The rank of every remote broker that is connected, or may connect at any time, and its cluster
    /// and pod.
    pub(super) fn remote_brokers(&self) -> impl Iterator<Item = (u32, String)> + '_ {
        let connects = |pod: &&RemotePod| pod.is_running && self.gateway_allows(pod);
        let pods = self.remote_pods.iter().filter(connects);
        pods.map(|pod| (pod.rank, format!("{} {}", pod.cluster, pod.uid)))
    }

    pub fn count_remote_pods_online(&self) -> usize {
        self.remote_ranks_online().count()
    }
}
