//! One exchange with an agent: checks the seal, stores the report, and issues a nonce.

use std::collections::HashSet;
use std::time::Duration;

use axum::http::HeaderMap;
use flux_operator_api::MiniCluster;
use flux_operator_plan::{LastReport, needs_reconciliation};
use flux_operator_wire::InstanceState;
use flux_operator_wire::names::header;
use flux_operator_wire::seal::{self, Exchange, MAX_SEAL_BYTES, Message, SealKey};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use tokio::time::Instant;

use super::bounded::bounded;
use super::{KeyLookup, Reports, StoredReport, nonces};
use crate::stores::{GuardedMiniCluster, reference};

/// The maximum length of each header. Uids have 36 characters and nonces 32, and an agent may add a
/// word to its pod's uid.
const MAX_BYTES: usize = MAX_SEAL_BYTES;

/// How long a key that was read is not read again, although requests are sealed with another one.
const KEY_REFRESH_DELAY: Duration = Duration::from_secs(10);

/// The headers by which an agent identifies itself.
#[derive(Clone, Debug)]
pub(super) struct AgentHeaders {
    pub(super) cluster_uid: String,
    pub(super) pod_uid: String,
    pub(super) nonce: String,
    pub(super) seal: String,
    /// The invitation whose key seals the request; `None` for the cluster's own.
    pub(super) invitation: Option<String>,
}

impl AgentHeaders {
    /// Reads the headers of a request. None if one is missing or too long.
    pub(super) fn parse(headers: &HeaderMap) -> Option<AgentHeaders> {
        let header = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let speaker = AgentHeaders {
            cluster_uid: header(header::CLUSTER)?,
            pod_uid: header(header::POD)?,
            nonce: header(header::NONCE).unwrap_or_default(),
            seal: header(header::SEAL)?,
            invitation: header(header::INVITATION),
        };
        let AgentHeaders { cluster_uid, pod_uid, nonce, seal, invitation } = &speaker;
        let texts = [cluster_uid, pod_uid, nonce, seal];
        let is_short = texts.into_iter().chain(invitation).all(|it| it.len() <= MAX_BYTES);
        is_short.then_some(speaker)
    }

    /// Whether the seal includes the direction of the message. Agents of the first build do not
    /// include it, and do not know the kinds of work that were added later.
    pub(super) fn is_directed(&self) -> bool {
        seal::is_directed(&self.seal)
    }

    /// The seal of a response, in the same form as the seal of the request.
    pub(super) fn seal_response(&self, key: &SealKey, status: u16, body: &[u8]) -> String {
        let answer = match self.is_directed() {
            true => Message::Answer { status, body },
            false => Message::Plain(body),
        };
        key.seal(self.exchange(&self.nonce), answer)
    }

    /// Whose nonces it uses. Those of an invitation are apart, so that its agents cannot use up those
    /// of the cluster's own.
    fn nonce_scope(&self) -> String {
        match &self.invitation {
            None => self.cluster_uid.clone(),
            Some(invitation) => format!("{}/{invitation}", self.cluster_uid),
        }
    }

    fn is_sealed_with(&self, key: &SealKey, body: &[u8]) -> bool {
        let request = match self.is_directed() {
            true => Message::Request(body),
            false => Message::Plain(body),
        };
        key.verify(self.exchange(&self.nonce), request, &self.seal)
    }

    /// What a seal is bound to.
    fn exchange<'a>(&'a self, nonce: &'a str) -> Exchange<'a> {
        Exchange { cluster_uid: &self.cluster_uid, pod_uid: &self.pod_uid, nonce }
    }
}

/// The result of checking a request.
pub(super) enum SealCheck {
    /// Sealed with the cluster's key and the nonce that we issued.
    Valid,
    /// Sealed with the cluster's key, but not with the nonce that we issued: the agent or the
    /// operator was restarted.
    StaleNonce,
    /// Not sealed with the cluster's key.
    Invalid,
}

impl Reports {
    /// Checks a request. The check uses up the nonce, whatever the result.
    pub(super) fn check(&self, key: &SealKey, agent: &AgentHeaders, body: &[u8]) -> SealCheck {
        if !agent.is_sealed_with(key, body) {
            return SealCheck::Invalid;
        }
        match self.nonces().take(&agent.nonce_scope(), &agent.pod_uid) {
            Some(given) if given == agent.nonce => SealCheck::Valid,
            _ => SealCheck::StaleNonce,
        }
    }

    /// Issues a nonce for the next request of an agent of this cluster.
    pub(super) fn issue_nonce(
        &self,
        minicluster: &MiniCluster,
        speaker: &AgentHeaders,
    ) -> Option<String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).ok()?;
        let nonce: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.nonces().issue(
            &speaker.nonce_scope(),
            &speaker.pod_uid,
            &nonce,
            nonces::max_concurrent_requests(minicluster, speaker.invitation.as_deref()),
        );
        Some(nonce)
    }

    /// Stores a report of a lead, and requests a reconciliation if it has a relevant change.
    pub(super) fn store(
        &self,
        minicluster: &MiniCluster,
        speaker: &AgentHeaders,
        state: InstanceState,
        now: Timestamp,
    ) {
        self.store_of_pod(minicluster, &speaker.cluster_uid, &speaker.pod_uid, state, now);
    }

    pub(super) fn store_of_pod(
        &self,
        minicluster: &MiniCluster,
        uid: &str,
        pod: &str,
        state: InstanceState,
        now: Timestamp,
    ) {
        let mut clusters = self.lock();
        let cluster = clusters.entry(uid.to_owned()).or_default();
        let (pod, state) = (pod.to_owned(), bounded(state));
        let before = cluster.last.as_ref().filter(|said| said.pod == pod);
        let matters = needs_reconciliation(before.map(|said| &said.report), &state, now);
        let (report, about) = (LastReport { state, received: now }, object_ref(minicluster));
        cluster.last = Some(StoredReport { pod, report, minicluster: about, is_marked_old: false });
        if matters {
            // Among others, the ranks that are online.
            cluster.shown.send_replace(());
            self.request_reconciliation(minicluster);
        }
    }

    /// Records that the Secret with a cluster's key is missing.
    pub(super) fn mark_key_lost(&self, minicluster: &MiniCluster, uid: &str) {
        let mut clusters = self.lock();
        let cluster = clusters.entry(uid.to_owned()).or_default();
        if !std::mem::replace(&mut cluster.lost_key, true) {
            self.request_reconciliation(minicluster);
        }
    }

    pub(super) fn request_reconciliation(&self, minicluster: &MiniCluster) {
        // The receiver is dropped only while the operator stops; then the request does not matter.
        let _ = self.changed.send(object_ref(minicluster));
    }

    /// The cluster's key, if it is cached.
    pub(super) fn cached_key(&self, uid: &str) -> Option<SealKey> {
        Some(self.lock().get(uid)?.key.as_ref()?.0.clone())
    }

    /// Reads the key again the next time, because a request was sealed with another one: a Job that
    /// was created again may have another Secret. Anyone can send such requests, so that is done
    /// only once in a while.
    pub(super) fn doubt_key(&self, uid: &str) {
        if let Some(cluster) = self.lock().get_mut(uid) {
            cluster.key.take_if(|(_, since)| since.elapsed() >= KEY_REFRESH_DELAY);
        }
    }

    /// The lock that a task holds while it reads the cluster's key.
    pub(super) fn key_lookup(&self, uid: &str) -> KeyLookup {
        self.lock().entry(uid.to_owned()).or_default().lookup.clone()
    }

    /// Caches a cluster's key, and forgets clusters that are not in `there`.
    pub(super) fn cache_key(&self, uid: &str, key: SealKey, existing: &HashSet<String>) {
        self.nonces().retain(existing);
        let mut clusters = self.lock();
        clusters.retain(|uid, _| existing.contains(uid));
        let cluster = clusters.entry(uid.to_owned()).or_default();
        cluster.key = Some((key, Instant::now()));
        cluster.lost_key = false;
    }
}

fn object_ref(minicluster: &MiniCluster) -> ObjectRef<GuardedMiniCluster> {
    reference(&(minicluster.namespace().unwrap_or_default(), minicluster.name_any()))
}
