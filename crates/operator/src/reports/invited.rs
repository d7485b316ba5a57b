//! The answer to an agent in another Kubernetes cluster that asks with an invitation.

use std::collections::HashMap;
use std::time::Duration;

use flux_operator_api::{MiniCluster, Reason};
use flux_operator_plan::{InvitedCluster, KnownBroker, LenderView, Permission, invited_permission};
use flux_operator_wire::seal::SealKey;
use flux_operator_wire::{InvitedAnswer, InvitedRequest, JoinRefusal};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

use super::Reports;
use super::bounded::{bounded_request, bounded_text};
use super::exchange::AgentHeaders;
use crate::errors::chain;
use crate::http::ServerState;

/// How many clusters are remembered for one lender: each has an invitation, and a few more may try
/// the same.
const MAX_CLUSTERS: usize = 256;

/// How often a lender is reconciled because of questions, at most: anyone with an invitation can ask
/// at any rate.
const RECONCILE_INTERVAL: Duration = Duration::from_millis(500);

/// What was asked about the invitations of one lender.
#[derive(Default)]
pub(super) struct InvitedClusters {
    /// By invitation and uid of the cluster.
    clusters: HashMap<(String, String), InvitedCluster>,
    /// The pod that had permission last, and when, by invitation and rank.
    permitted: HashMap<(String, u32), (String, Timestamp)>,
    /// When the lender was last reconciled because of a question.
    reconciled: Option<Instant>,
}

impl ServerState {
    /// The key of an invitation to a cluster, from the cluster's own; `None` if there is no such
    /// invitation.
    pub(super) fn invitation_key(
        &self,
        minicluster: &MiniCluster,
        invitation: &str,
        key: &SealKey,
    ) -> Option<SealKey> {
        let bursting = minicluster.spec.flux.as_ref()?.bursting.as_ref()?;
        let found = bursting.invitations.iter().find(|it| it.name == invitation)?;
        let uid = minicluster.uid().unwrap_or_default();
        Some(key.for_invitation(&uid, &found.name, &found.expires))
    }

    /// Decides whether a broker in another Kubernetes cluster may start. As for joiners here, the
    /// lender is read from the API server before one does.
    pub(super) async fn answer_invited(
        &self,
        lender: &MiniCluster,
        agent: &AgentHeaders,
        asked: InvitedRequest,
    ) -> InvitedAnswer {
        let invitation = agent.invitation.clone().unwrap_or_default();
        let asked = bounded_asked(asked);
        let permission = self.invited_permission(lender, agent, &invitation, &asked).await;
        self.metrics.joins().count(permission.result());
        let refusal = match permission {
            Permission::Granted => return InvitedAnswer::Start,
            Permission::Denied(reason, message) => (reason, message),
            Permission::Outdated(message) => (Reason::InvitationOutdated, message),
        };
        InvitedAnswer::Wait(JoinRefusal { reason: refusal.0.as_str().into(), message: refusal.1 })
    }

    async fn invited_permission(
        &self,
        lender: &MiniCluster,
        agent: &AgentHeaders,
        invitation: &str,
        asked: &InvitedRequest,
    ) -> Permission {
        let now = Timestamp::now();
        self.reports.store_invited(lender, invitation, asked, now);
        let rank = asked.request.rank;
        let broker = self.reports.known_broker(lender, invitation, rank, &agent.pod_uid);
        let view = self.stores.as_lender(lender, &self.reports);
        let decide = |view: &LenderView| invited_permission(view, invitation, asked, broker, now);
        let decided = decide(&view);
        if matches!(decided, Permission::Denied(..)) {
            return decided;
        }
        let fresh = match self.read_lender(view).await {
            Ok(Some(fresh)) => fresh,
            Ok(None) => {
                let message = "the lender does not exist any more".to_owned();
                return Permission::Denied(Reason::LenderMissing, message);
            }
            Err(error) => {
                let (cluster, error) = (lender.name_any(), chain(&*error));
                tracing::warn!(cluster, invitation, rank, error, "failed to read a lender");
                let message = "the lender could not be read from the API server";
                return Permission::Denied(Reason::LenderNotReady, message.into());
            }
        };
        match decide(&fresh) {
            Permission::Granted => {
                self.reports.claim_permission(lender, invitation, rank, &agent.pod_uid, now)
            }
            denied => denied,
        }
    }
}

impl Reports {
    /// The clusters elsewhere that have asked with invitations of the cluster with this uid.
    pub(crate) fn invited(&self, uid: &str) -> Vec<InvitedCluster> {
        let clusters = self.lock();
        let invited = clusters.get(uid).map(|cluster| &cluster.invited.clusters);
        let mut invited: Vec<_> = invited.into_iter().flat_map(|it| it.values().cloned()).collect();
        invited.sort_by(|a, b| (a.asked, &a.uid).cmp(&(b.asked, &b.uid)));
        invited
    }

    /// Stores that a cluster has asked, and has the lender note which cluster uses the invitation if
    /// its status shows another one or none.
    fn store_invited(
        &self,
        lender: &MiniCluster,
        invitation: &str,
        asked: &InvitedRequest,
        now: Timestamp,
    ) {
        let leases = lender.status.iter().flat_map(|status| &status.leases);
        let leases = leases.filter(|lease| lease.name == invitation);
        let mut users = leases.filter_map(|it| it.invitation.as_ref()?.user.as_ref());
        let is_known = users.any(|user| user.uid == asked.holder);
        let key = (invitation.to_owned(), asked.holder.clone());
        let uid = lender.uid().unwrap_or_default();
        let mut clusters = self.lock();
        let invited = &mut clusters.entry(uid).or_default().invited;
        if invited.clusters.len() >= MAX_CLUSTERS && !invited.clusters.contains_key(&key) {
            let oldest = invited.clusters.iter().min_by_key(|(_, it)| it.asked);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                invited.clusters.remove(&oldest);
            }
        }
        let cluster = InvitedCluster {
            invitation: invitation.to_owned(),
            uid: asked.holder.clone(),
            name: asked.holder_name.clone(),
            asked: now,
        };
        invited.clusters.insert(key, cluster);
        let is_due = invited.reconciled.is_none_or(|at| at.elapsed() >= RECONCILE_INTERVAL);
        if !is_known && is_due {
            invited.reconciled = Some(Instant::now());
            self.request_reconciliation(lender);
        }
    }

    fn known_broker(
        &self,
        lender: &MiniCluster,
        invitation: &str,
        rank: u32,
        pod: &str,
    ) -> KnownBroker {
        let clusters = self.lock();
        let invited = clusters.get(&lender.uid().unwrap_or_default()).map(|it| &it.invited);
        invited.map(|it| it.known_broker(invitation, rank, pod)).unwrap_or_default()
    }

    /// Stores that a pod has permission, unless another one got it while the lender was read.
    fn claim_permission(
        &self,
        lender: &MiniCluster,
        invitation: &str,
        rank: u32,
        pod: &str,
        now: Timestamp,
    ) -> Permission {
        let bursting = lender.spec.flux.as_ref().and_then(|flux| flux.bursting.clone());
        let invitations = bursting.unwrap_or_default().invitations;
        let mut clusters = self.lock();
        let invited = &mut clusters.entry(lender.uid().unwrap_or_default()).or_default().invited;
        if let Some(denied) = invited.known_broker(invitation, rank, pod).denial(rank, now) {
            return denied;
        }
        invited.permitted.retain(|(name, _), _| invitations.iter().any(|it| it.name == *name));
        invited.permitted.insert((invitation.to_owned(), rank), (pod.to_owned(), now));
        Permission::Granted
    }
}

impl InvitedClusters {
    /// What is known about the broker of this pod.
    fn known_broker(&self, invitation: &str, rank: u32, pod: &str) -> KnownBroker {
        match self.permitted.get(&(invitation.to_owned(), rank)) {
            None => KnownBroker::default(),
            Some((last, _)) if last == pod => {
                KnownBroker { had_permission: true, other_permitted: None }
            }
            Some((_, at)) => KnownBroker { had_permission: false, other_permitted: Some(*at) },
        }
    }
}

/// What agents elsewhere send is stored and shown, so it is cut to a sensible length.
fn bounded_asked(asked: InvitedRequest) -> InvitedRequest {
    let InvitedRequest { holder, holder_name, request } = asked;
    InvitedRequest {
        holder: bounded_text(holder),
        holder_name: bounded_text(holder_name),
        request: bounded_request(request),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Leadership;
    use crate::reports::fixture::minicluster;
    use k8s_openapi::jiff::SignedDuration;

    /// Two pods of one index ask at the same time, and both are allowed by what was read.
    #[test]
    fn one_of_two_pods_gets_permission_for_a_rank() {
        let reports = Reports::new(tokio::sync::mpsc::unbounded_channel().0, Leadership::always());
        let mut lender = minicluster();
        let invitation = serde_json::json!({ "name": "a", "ranks": 2, "expires": "" });
        let flux = serde_json::json!({ "bursting": { "invitations": [invitation] } });
        lender.spec.flux = Some(serde_json::from_value(flux).unwrap());
        let start = Timestamp::now();
        let claim = |pod: &str, rank, seconds| {
            let now = start + SignedDuration::from_secs(seconds);
            reports.claim_permission(&lender, "a", rank, pod, now) == Permission::Granted
        };
        assert!(claim("one", 2, 0));
        assert!(!claim("two", 2, 1), "the broker of the first may be starting");
        assert!(claim("two", 3, 1), "another rank");
        assert!(claim("one", 2, 2), "its broker was restarted");
        assert!(claim("two", 2, 40), "the first pod was replaced");
        assert!(!claim("one", 2, 41));
    }
}
