//! Proof of being the lead: an agent's answer to `GET /v1/lead?nonce=NONCE`.
//!
//! A name server caches the address of a deleted lead, and Kubernetes reuses
//! addresses. So a worker uses an address only if the agent there proves that it
//! leads this run of this cluster.

use serde::{Deserialize, Serialize};

use crate::seal::{Exchange, Message, SealKey};

/// Replaces the pod's UID in the seal of an answer. No pod has this UID, so no other message
/// has the same seal.
const LEAD_POD_UID: &str = "lead";

/// Identifies one run of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunId {
    /// UID of the cluster.
    pub cluster: String,
    /// UID of the Job that owns the pods: a cluster may have several Jobs, one after another.
    pub job: String,
}

/// An agent's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadAnswer {
    /// UID of the cluster.
    pub cluster: String,
    /// UID of the Job.
    pub job: String,
    /// This agent's broker is the lead, and the agent has not been stopped.
    pub leads: bool,
}

impl RunId {
    /// The answer of an agent of this run, as JSON, and its seal if there is a key.
    pub fn answer(
        &self,
        leads: bool,
        nonce: &str,
        key: Option<&SealKey>,
    ) -> (String, Option<String>) {
        let RunId { cluster, job } = self.clone();
        let body = serde_json::to_string(&LeadAnswer { cluster, job, leads })
            .expect("text and a flag are JSON");
        let seal = key.map(|key| key.seal(self.exchange(nonce), Message::Plain(body.as_bytes())));
        (body, seal)
    }

    /// Whether an answer comes from the lead of this run. With a key, the answer must be sealed
    /// for this nonce.
    pub fn is_led_by(
        &self,
        body: &[u8],
        seal: Option<&str>,
        nonce: &str,
        key: Option<&SealKey>,
    ) -> bool {
        let sealed = key.is_none_or(|key| {
            key.verify(self.exchange(nonce), Message::Plain(body), seal.unwrap_or_default())
        });
        let Ok(LeadAnswer { cluster, job, leads }) = serde_json::from_slice(body) else {
            return false;
        };
        sealed && leads && RunId { cluster, job } == *self
    }

    fn exchange<'a>(&'a self, nonce: &'a str) -> Exchange<'a> {
        Exchange { cluster_uid: &self.cluster, pod_uid: LEAD_POD_UID, nonce }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cluster: &str, job: &str) -> RunId {
        RunId { cluster: cluster.into(), job: job.into() }
    }

    #[test]
    fn only_the_lead_of_the_same_run_is_accepted() {
        let ours = run("c", "j");
        for (run, leads, expected) in [
            (run("c", "j"), true, true),
            (run("c", "j"), false, false),
            (run("c", "k"), true, false),
            (run("d", "j"), true, false),
        ] {
            let (body, seal) = run.answer(leads, "n", None);
            assert_eq!(
                ours.is_led_by(body.as_bytes(), seal.as_deref(), "n", None),
                expected,
                "{run:?}"
            );
        }
        assert!(!ours.is_led_by(b"ready\n", None, "n", None));
    }

    #[test]
    fn with_a_key_an_answer_must_be_sealed_for_its_nonce() {
        let (ours, key) = (run("c", "j"), SealKey::from_bytes([7; 32]));
        let (body, seal) = ours.answer(true, "n", Some(&key));
        let is_accepted =
            |nonce, key| ours.is_led_by(body.as_bytes(), seal.as_deref(), nonce, Some(key));
        assert!(is_accepted("n", &key));
        assert!(!is_accepted("m", &key), "an older answer");
        assert!(!is_accepted("n", &SealKey::from_bytes([8; 32])), "another cluster's key");
        assert!(!ours.is_led_by(body.as_bytes(), None, "n", Some(&key)), "no seal");
    }
}
