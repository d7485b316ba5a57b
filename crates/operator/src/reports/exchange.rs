//! One exchange with an agent: check its seal, keep its report, give a nonce.

use std::collections::HashSet;

use flux_operator_api::MiniCluster;
use flux_operator_wire::Report;
use flux_operator_wire::seal::{Exchange, SealKey};
use kube::ResourceExt;

use super::{MAX_AGENTS, Reports};
use crate::stores::reference;

/// Who speaks, as its request says.
#[derive(Clone, Debug)]
pub(super) struct Speaker {
    pub(super) cluster_uid: String,
    pub(super) pod_uid: String,
    pub(super) nonce: String,
    pub(super) seal: String,
}

impl Speaker {
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
        let mut clusters = self.lock();
        let cluster = clusters.entry(speaker.cluster_uid.clone()).or_default();
        match cluster.nonces.remove(&speaker.pod_uid) {
            Some(given) if given == speaker.nonce => Outcome::Heard,
            _ => Outcome::Stale,
        }
    }

    /// A fresh nonce for the agent's next request.
    pub(super) fn give_nonce(&self, speaker: &Speaker) -> Option<String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).ok()?;
        let nonce: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut clusters = self.lock();
        let cluster = clusters.entry(speaker.cluster_uid.clone()).or_default();
        if cluster.nonces.len() >= MAX_AGENTS {
            // They ask again; better than memory without end.
            cluster.nonces.clear();
        }
        cluster.nonces.insert(speaker.pod_uid.clone(), nonce.clone());
        Some(nonce)
    }

    /// Keeps the lead's report, and asks for a pass if it says something new.
    pub(super) fn keep(&self, minicluster: &MiniCluster, speaker: &Speaker, report: Report) {
        if report.rank != 0 {
            return;
        }
        let mut clusters = self.lock();
        let cluster = clusters.entry(speaker.cluster_uid.clone()).or_default();
        let last = Some((speaker.pod_uid.clone(), report));
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

    /// Remembers a cluster's key, and forgets clusters that are not `there`.
    pub(super) fn remember_key(&self, uid: &str, key: SealKey, there: &HashSet<String>) {
        let mut clusters = self.lock();
        clusters.retain(|uid, _| there.contains(uid));
        let cluster = clusters.entry(uid.to_owned()).or_default();
        cluster.key = Some(key);
        cluster.lost_key = false;
    }
}
