//! The answer to an agent in another Kubernetes cluster that asks with an invitation.

use std::collections::HashMap;
use std::time::Duration;

use flux_operator_api::minicluster::Invitation;
use flux_operator_api::{MiniCluster, Reason};
use flux_operator_plan::{
    InvitedCluster, KnownBroker, LenderView, Permission, PermittedPods, invitation_holder,
    invited_permission,
};
use flux_operator_wire::seal::SealKey;
use flux_operator_wire::{InvitedAnswer, InvitedRequest, JoinRefusal};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

use super::Reports;
use super::bounded::{bounded_request, bounded_text};
use super::exchange::AgentHeaders;
use crate::http::ServerState;
use flux_operator_service::error_chain::chain;

/// How many clusters are remembered for one invitation: one uses it, and a few more may try the same.
const MAX_CLUSTERS: usize = 8;

/// How often a lender is reconciled because of questions, at most: anyone with an invitation can ask
/// at any rate.
const RECONCILE_INTERVAL: Duration = Duration::from_millis(500);

/// What was asked about the invitations of one lender.
#[derive(Default)]
pub(super) struct InvitedClusters {
    /// By holder of the invitation's lease and uid of the cluster.
    clusters: HashMap<(String, String), InvitedCluster>,
    /// The pods that had permission last.
    permitted: PermittedPods,
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
        let found = invitations(minicluster).iter().find(|it| it.name == invitation)?;
        let uid = minicluster.uid().unwrap_or_default();
        Some(key.for_invitation(&uid, &found.name, &found.expires))
    }

    /// Decides whether a broker in another Kubernetes cluster may start. `lender` is the one with which
    /// the seal was checked. As for joiners here, it is read from the API server before a broker starts.
    pub(super) async fn answer_invited(
        &self,
        lender: &MiniCluster,
        agent: &AgentHeaders,
        asked: InvitedRequest,
    ) -> InvitedAnswer {
        let asked = bounded_asked(asked);
        let mut found = invitations(lender).iter();
        // There is one of this name, as the seal was made with its key.
        let permission = match found.find(|it| Some(&it.name) == agent.invitation.as_ref()) {
            Some(invitation) => self.invited_permission(lender, agent, invitation, &asked).await,
            None => {
                let message = "the invitation was revoked".to_owned();
                Permission::Denied(Reason::InvitationRevoked, message)
            }
        };
        self.metrics.joins().count(permission.result());
        self.reports.store_refusal(lender, &asked.joiner, &permission);
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
        invitation: &Invitation,
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
                let invitation = &invitation.name;
                tracing::warn!(cluster, invitation, rank, error, "failed to read a lender");
                let message = "the lender could not be read from the API server";
                return Permission::Denied(Reason::LenderNotReady, message.into());
            }
        };
        match decide(&fresh) {
            Permission::Granted => {
                let lender = &fresh.minicluster;
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
        invitation: &Invitation,
        asked: &InvitedRequest,
        now: Timestamp,
    ) {
        let holder = invitation_holder(invitation);
        let leases = lender.status.iter().flat_map(|status| &status.leases);
        let leases = leases.filter(|lease| lease.holder == holder);
        let mut users = leases.filter_map(|it| it.invitation.as_ref()?.user.as_ref());
        let is_known = users.any(|user| user.uid == asked.joiner);
        let holders: Vec<String> = invitations(lender).iter().map(invitation_holder).collect();
        let uid = lender.uid().unwrap_or_default();
        let mut clusters = self.lock();
        let invited = &mut clusters.entry(uid).or_default().invited;
        invited.clusters.retain(|(holder, _), _| holders.contains(holder));
        let cluster = InvitedCluster {
            invitation: invitation.name.clone(),
            expires: invitation.expires.clone(),
            uid: asked.joiner.clone(),
            name: asked.joiner_name.clone(),
            asked: now,
            refusal: None,
        };
        invited.insert(holder, cluster);
        let is_due = invited.reconciled.is_none_or(|at| at.elapsed() >= RECONCILE_INTERVAL);
        if !is_known && is_due {
            invited.reconciled = Some(Instant::now());
            self.request_reconciliation(lender);
        }
    }

    /// Stores that a client has asked with a key that is not the invitation's, and has the lender note it.
    /// Which client is not known: what its request says cannot be trusted.
    pub(super) fn store_wrong_key(&self, lender: &MiniCluster, invitation: &str) {
        let Some(invitation) = invitations(lender).iter().find(|it| it.name == invitation) else {
            return;
        };
        let message = "a client asked for permission with a key that is not the invitation's: compare \
                       the Secret of the brokers with the invitation, or create them again";
        let holder = invitation_holder(invitation);
        let leases = lender.status.iter().flat_map(|status| &status.leases);
        let mut leases = leases.filter(|lease| lease.holder == holder);
        let is_noted = leases.any(|lease| {
            let refusal = lease.invitation.as_ref().and_then(|it| it.refusal.as_ref());
            refusal.is_some_and(|it| it.reason == Reason::WrongKey.as_str())
        });
        let holders: Vec<String> = invitations(lender).iter().map(invitation_holder).collect();
        let mut clusters = self.lock();
        let invited = &mut clusters.entry(lender.uid().unwrap_or_default()).or_default().invited;
        invited.clusters.retain(|(holder, _), _| holders.contains(holder));
        let stranger = InvitedCluster {
            invitation: invitation.name.clone(),
            expires: invitation.expires.clone(),
            uid: String::new(),
            name: String::new(),
            asked: Timestamp::now(),
            refusal: Some((Reason::WrongKey, message.to_owned())),
        };
        invited.insert(holder, stranger);
        if !is_noted && invited.reconciled.is_none_or(|at| at.elapsed() >= RECONCILE_INTERVAL) {
            invited.reconciled = Some(Instant::now());
            self.request_reconciliation(lender);
        }
    }

    /// Stores why a cluster was refused, and has the lender note it if that has changed.
    fn store_refusal(&self, lender: &MiniCluster, joiner: &str, permission: &Permission) {
        let refusal = match permission {
            Permission::Denied(reason, message) if reason.needs_user() => {
                Some((*reason, message.clone()))
            }
            Permission::Denied(..) | Permission::Granted | Permission::Outdated(_) => None,
        };
        let mut clusters = self.lock();
        let uid = lender.uid().unwrap_or_default();
        let Some(cluster) = clusters.get_mut(&uid) else { return };
        let of_joiner = cluster.invited.clusters.values_mut().filter(|it| it.uid == joiner);
        let mut has_changed = false;
        for invited in of_joiner {
            has_changed |= invited.refusal != refusal;
            invited.refusal.clone_from(&refusal);
        }
        if has_changed {
            self.request_reconciliation(lender);
        }
    }

    fn known_broker(
        &self,
        lender: &MiniCluster,
        invitation: &Invitation,
        rank: u32,
        pod: &str,
    ) -> KnownBroker {
        let clusters = self.lock();
        let cluster = clusters.get(&lender.uid().unwrap_or_default());
        cluster.map(|it| it.invited.permitted.known(invitation, rank, pod)).unwrap_or_default()
    }

    /// Stores that a pod has permission, unless another one got it while the lender was read.
    fn claim_permission(
        &self,
        lender: &MiniCluster,
        invitation: &Invitation,
        rank: u32,
        pod: &str,
        now: Timestamp,
    ) -> Permission {
        let mut clusters = self.lock();
        let invited = &mut clusters.entry(lender.uid().unwrap_or_default()).or_default().invited;
        invited.permitted.claim(lender, invitation, rank, pod, now)
    }
}

impl InvitedClusters {
    /// Stores a cluster. If there are too many for its invitation, the one that has not asked for the
    /// longest time is forgotten: those of other invitations have other owners.
    fn insert(&mut self, holder: String, cluster: InvitedCluster) {
        let key = (holder, cluster.uid.clone());
        let same = || self.clusters.iter().filter(|((holder, _), _)| *holder == key.0);
        if same().count() >= MAX_CLUSTERS && !self.clusters.contains_key(&key) {
            let oldest = same().min_by_key(|(_, it)| it.asked).map(|(key, _)| key.clone());
            oldest.map(|oldest| self.clusters.remove(&oldest));
        }
        self.clusters.insert(key, cluster);
    }
}

fn invitations(lender: &MiniCluster) -> &[Invitation] {
    let bursting = lender.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    bursting.map(|it| it.invitations.as_slice()).unwrap_or_default()
}

/// What agents elsewhere send is stored and shown, so it is cut to a sensible length.
fn bounded_asked(asked: InvitedRequest) -> InvitedRequest {
    let InvitedRequest { joiner, joiner_name, request } = asked;
    InvitedRequest {
        joiner: bounded_text(joiner),
        joiner_name: bounded_text(joiner_name),
        request: bounded_request(request),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Leadership;
    use crate::reports::fixture::minicluster;
    use k8s_openapi::jiff::SignedDuration;

    fn reports() -> Reports {
        Reports::new(tokio::sync::mpsc::unbounded_channel().0, Leadership::always())
    }

    /// A lender with invitations of these names and ends.
    fn lender(invitations: &[(&str, &str)]) -> MiniCluster {
        let mut lender = minicluster();
        let invitation = |(name, expires): &(&str, &str)| serde_json::json!({ "name": name, "ranks": 2, "expires": expires });
        let invitations: Vec<_> = invitations.iter().map(invitation).collect();
        let flux = serde_json::json!({ "bursting": { "invitations": invitations } });
        lender.spec.flux = Some(serde_json::from_value(flux).unwrap());
        lender
    }

    fn asks(uid: &str) -> InvitedRequest {
        let request = serde_json::json!({ "index": 0, "rank": 1, "table": "",
            "facts": { "version": "0.88.0", "uid": 0, "cores": 1 } });
        InvitedRequest {
            joiner: uid.into(),
            joiner_name: uid.into(),
            request: serde_json::from_value(request).unwrap(),
        }
    }

    /// Two pods of one index ask at the same time, and both are allowed by what was read.
    #[test]
    fn one_of_two_pods_gets_permission_for_a_rank() {
        let (reports, lender, now) = (reports(), lender(&[("a", "")]), Timestamp::now());
        let claim = |pod| {
            reports.claim_permission(&lender, &invitations(&lender)[0], 2, pod, now)
                == Permission::Granted
        };
        assert!(claim("one"));
        assert!(!claim("two"), "the broker of the first may be starting");
        let known = reports.known_broker(&lender, &invitations(&lender)[0], 2, "one");
        assert!(known.had_permission);
    }

    /// Anyone with one invitation can ask in the name of any number of clusters.
    #[test]
    fn many_clusters_of_one_invitation_do_not_displace_those_of_another() {
        let (reports, lender, start) =
            (reports(), lender(&[("a", ""), ("b", "")]), Timestamp::now());
        let store = |invitation: usize, uid: &str, seconds| {
            let now = start + SignedDuration::from_secs(seconds);
            reports.store_invited(&lender, &invitations(&lender)[invitation], &asks(uid), now);
        };
        store(0, "honest", 0);
        (1..=300).for_each(|number| store(1, &number.to_string(), number));
        let invited = reports.invited(&lender.uid().unwrap());
        let uids: Vec<&str> = invited.iter().map(|it| it.uid.as_str()).collect();
        assert_eq!(uids, ["honest", "293", "294", "295", "296", "297", "298", "299", "300"]);
    }

    /// A former invitation of the same name had another key.
    #[test]
    fn a_question_counts_for_the_invitation_with_the_same_end() {
        let (reports, now) = (reports(), Timestamp::now());
        let (former, next) = (lender(&[("a", "1")]), lender(&[("a", "2")]));
        reports.store_invited(&former, &invitations(&former)[0], &asks("one"), now);
        let ends = || -> Vec<(String, String)> {
            let invited = reports.invited(&former.uid().unwrap());
            invited.into_iter().map(|it| (it.uid, it.expires)).collect()
        };
        assert_eq!(ends(), [("one".to_owned(), "1".to_owned())]);
        reports.store_invited(&next, &invitations(&next)[0], &asks("two"), now);
        assert_eq!(ends(), [("two".to_owned(), "2".to_owned())], "the former one does not exist");
    }
}
