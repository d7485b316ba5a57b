//! The nonces that agents were given, each for one request.
//!
//! Only agents with the cluster's key get nonces, but a cluster's owner may be hostile. So
//! there are at most as many as its pods can use, and a bound on all of them.
//! A nonce that was forgotten costs its agent one more exchange.

use std::collections::{HashMap, HashSet};

use flux_operator_api::MiniCluster;

/// Nonces of one cluster. Few of its agents speak at the same time, however large it is.
const MAX_PER_CLUSTER: usize = 4096;

/// All nonces: with some 200 bytes each, 6 MiB.
const MAX_NONCES: usize = 32 * 1024;

/// What was given and not used yet.
#[derive(Default)]
pub(super) struct Nonces {
    /// By the cluster's uid, then by the pod's.
    clusters: HashMap<String, HashMap<String, String>>,
    count: usize,
}

impl Nonces {
    /// Remembers a nonce instead of the pod's last one. A cluster with more than `most`
    /// begins anew: most of those are of pods that were replaced.
    pub(super) fn give(&mut self, cluster_uid: &str, pod_uid: &str, nonce: &str, most: usize) {
        let pods = self.clusters.entry(cluster_uid.to_owned()).or_default();
        if pods.len() >= most && !pods.contains_key(pod_uid) {
            self.count -= pods.len();
            pods.clear();
        }
        if pods.insert(pod_uid.to_owned(), nonce.to_owned()).is_none() {
            self.count += 1;
        }
        if self.count > MAX_NONCES {
            self.forget_largest();
        }
    }

    /// The nonce that was given to a pod. It is used up by this.
    pub(super) fn take(&mut self, cluster_uid: &str, pod_uid: &str) -> Option<String> {
        let pods = self.clusters.get_mut(cluster_uid)?;
        let nonce = pods.remove(pod_uid)?;
        self.count -= 1;
        Some(nonce)
    }

    /// Forgets clusters that are not `there`.
    pub(super) fn retain(&mut self, there: &HashSet<String>) {
        self.clusters.retain(|uid, _| there.contains(uid));
        self.count = self.clusters.values().map(HashMap::len).sum();
    }

    /// The cluster with most nonces starts anew, and all others keep theirs.
    fn forget_largest(&mut self) {
        let largest = self.clusters.iter().max_by_key(|(_, pods)| pods.len());
        let Some(uid) = largest.map(|(uid, _)| uid.clone()) else { return };
        let forgotten = self.clusters.remove(&uid).unwrap_or_default();
        self.count -= forgotten.len();
    }
}

/// How many requests the agents of a cluster can make at the same time: each pod one, the
/// lead two, and pods are replaced.
pub(super) fn max_agents(minicluster: &MiniCluster) -> usize {
    let spec = &minicluster.spec;
    let size = spec.max_size.unwrap_or_default().max(spec.size);
    let size = usize::try_from(size).unwrap_or_default();
    size.saturating_mul(2).saturating_add(16).min(MAX_PER_CLUSTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(nonces: &Nonces, cluster: &str) -> usize {
        nonces.clusters.get(cluster).map_or(0, HashMap::len)
    }

    #[test]
    fn a_nonce_is_used_once_and_by_its_pod() {
        let mut nonces = Nonces::default();
        nonces.give("a", "pod", "1", 9);
        nonces.give("a", "pod", "2", 9);
        assert_eq!(nonces.take("a", "other"), None);
        assert_eq!(nonces.take("b", "pod"), None);
        assert_eq!(nonces.take("a", "pod").as_deref(), Some("2"));
        assert_eq!(nonces.take("a", "pod"), None);
        assert_eq!(nonces.count, 0);
    }

    #[test]
    fn a_cluster_that_invents_pods_is_bounded_by_its_size() {
        let mut nonces = Nonces::default();
        nonces.give("honest", "pod", "1", 9);
        for pod in 0..10_000 {
            nonces.give("hostile", &pod.to_string(), "1", 20);
            assert!(given(&nonces, "hostile") <= 20);
        }
        assert_eq!(nonces.take("honest", "pod").as_deref(), Some("1"));
    }

    #[test]
    fn many_clusters_that_invent_pods_lose_theirs_first() {
        let mut nonces = Nonces::default();
        nonces.give("honest", "pod", "1", 9);
        for cluster in 0..20 {
            for pod in 0..MAX_PER_CLUSTER {
                nonces.give(&cluster.to_string(), &pod.to_string(), "1", MAX_PER_CLUSTER);
            }
            assert!(nonces.count <= MAX_NONCES);
        }
        assert_eq!(nonces.take("honest", "pod").as_deref(), Some("1"));
        assert_eq!(nonces.count, nonces.clusters.values().map(HashMap::len).sum::<usize>());
        nonces.retain(&HashSet::new());
        assert_eq!(nonces.count, 0);
    }

    #[test]
    fn the_size_of_a_cluster_counts_whatever_it_is() {
        let most = |size, max_size| {
            let mut minicluster = MiniCluster::new("a", Default::default());
            (minicluster.spec.size, minicluster.spec.max_size) = (size, max_size);
            max_agents(&minicluster)
        };
        assert_eq!(most(1, None), 18);
        assert_eq!(most(1, Some(10)), 36);
        assert_eq!(most(i32::MAX, Some(i32::MAX)), MAX_PER_CLUSTER);
        assert_eq!(most(i32::MIN, Some(-1)), 16);
    }
}
