//! One exchange with an agent: check its seal, keep its report, give a nonce.

use std::collections::HashSet;

use axum::http::HeaderMap;
use flux_operator_api::MiniCluster;
use flux_operator_wire::Report;
use flux_operator_wire::seal::{Exchange, SealKey};
use kube::ResourceExt;

use super::bounded::bounded;
use super::{LookUp, Reports, nonces};
use crate::stores::reference;

/// The longest of what a speaker says of itself. Uids have 36 characters, nonces and
/// seals 32 and 64, and an agent may add a word to its pod's uid.
const MAX_BYTES: usize = 64;

/// Who speaks, as its request says.
#[derive(Clone, Debug)]
pub(super) struct Speaker {
    pub(super) cluster_uid: String,
    pub(super) pod_uid: String,
    pub(super) nonce: String,
    pub(super) seal: String,
}

impl Speaker {
    /// Who speaks in a request with these headers. None if one is missing or too long.
    pub(super) fn of(headers: &HeaderMap) -> Option<Speaker> {
        let header = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let speaker = Speaker {
            cluster_uid: header("X-Flux-Cluster")?,
            pod_uid: header("X-Flux-Pod")?,
            nonce: header("X-Flux-Nonce").unwrap_or_default(),
            seal: header("X-Flux-Seal")?,
        };
        let Speaker { cluster_uid, pod_uid, nonce, seal } = &speaker;
        let is_short = [cluster_uid, pod_uid, nonce, seal].iter().all(|s| s.len() <= MAX_BYTES);
        is_short.then_some(speaker)
    }

    /// What a seal is bound to.
    pub(super) fn exchange<'a>(&'a self, nonce: &'a str) -> Exchange<'a> {
        Exchange { cluster_uid: &self.cluster_uid, pod_uid: &self.pod_uid, nonce }
    }
}

/// What becomes of a request.
pub(super) enum Outcome {
    /// Sealed with the cluster's key and a nonce we gave.
    Heard,
    /// Sealed with the cluster's key, but the nonce is not the one we gave:
    /// the agent or we have been restarted.
    Stale,
    /// Not sealed with the cluster's key.
    Refused,
}

impl Reports {
    /// Checks a request. A nonce is used up by the check, whatever comes of it.
    pub(super) fn check(&self, key: &SealKey, speaker: &Speaker, body: &[u8]) -> Outcome {
        if !key.verify(speaker.exchange(&speaker.nonce), body, &speaker.seal) {
            return Outcome::Refused;
        }
        match self.nonces().take(&speaker.cluster_uid, &speaker.pod_uid) {
            Some(given) if given == speaker.nonce => Outcome::Heard,
            _ => Outcome::Stale,
        }
    }

    /// A fresh nonce for the next request of an agent of this cluster.
    pub(super) fn give_nonce(
        &self,
        minicluster: &MiniCluster,
        speaker: &Speaker,
    ) -> Option<String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).ok()?;
        let nonce: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let Speaker { cluster_uid, pod_uid, .. } = speaker;
        self.nonces().give(cluster_uid, pod_uid, &nonce, nonces::max_agents(minicluster));
        Some(nonce)
    }

    /// Keeps the lead's report, and asks for a pass if it says something new.
    pub(super) fn keep(&self, minicluster: &MiniCluster, speaker: &Speaker, report: Report) {
        if report.rank != 0 {
            return;
        }
        let mut clusters = self.lock();
        let cluster = clusters.entry(speaker.cluster_uid.clone()).or_default();
        let last = Some((speaker.pod_uid.clone(), bounded(report)));
        if cluster.last != last {
            cluster.last = last;
            self.ask_for_a_pass(minicluster);
        }
    }

    /// Remembers that a cluster's key is not where it should be.
    pub(super) fn lose_key(&self, minicluster: &MiniCluster, uid: &str) {
        let mut clusters = self.lock();
        let cluster = clusters.entry(uid.to_owned()).or_default();
        if !std::mem::replace(&mut cluster.lost_key, true) {
            self.ask_for_a_pass(minicluster);
        }
    }

    fn ask_for_a_pass(&self, minicluster: &MiniCluster) {
        let namespace = minicluster.namespace().unwrap_or_default();
        // Nobody receives while the operator stops; then it does not matter.
        let _ = self.changed.send(reference(&(namespace, minicluster.name_any())));
    }

    /// The cluster's key, if it is known already.
    pub(super) fn known_key(&self, uid: &str) -> Option<SealKey> {
        self.lock().get(uid)?.key.clone()
    }

    /// Whoever looks for the cluster's key holds this.
    pub(super) fn look_up(&self, uid: &str) -> LookUp {
        self.lock().entry(uid.to_owned()).or_default().look_up.clone()
    }

    /// Remembers a cluster's key, and forgets clusters that are not `there`.
    pub(super) fn remember_key(&self, uid: &str, key: SealKey, there: &HashSet<String>) {
        self.nonces().retain(there);
        let mut clusters = self.lock();
        clusters.retain(|uid, _| there.contains(uid));
        let cluster = clusters.entry(uid.to_owned()).or_default();
        cluster.key = Some(key);
        cluster.lost_key = false;
    }
}
