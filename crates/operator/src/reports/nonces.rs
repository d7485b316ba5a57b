//! The nonces that were issued to agents, each for one request.
//!
//! Only agents with the cluster's key get nonces, but the owner of a cluster may be hostile. So the
//! number of nonces is limited both per cluster, to what its pods can use, and in total. An agent
//! whose nonce was forgotten needs one more exchange.

use std::collections::{HashMap, HashSet};

use flux_operator_api::MiniCluster;

/// The maximum per cluster. Few agents of a cluster send requests at the same time, however large
/// it is.
const MAX_PER_CLUSTER: usize = 4096;

/// The maximum in total: at about 200 bytes each, 6 MiB.
const MAX_NONCES: usize = 32 * 1024;

/// The nonces that were issued and not used yet.
#[derive(Default)]
pub(super) struct Nonces {
    /// By the cluster's uid, then by the pod's.
    clusters: HashMap<String, HashMap<String, String>>,
    count: usize,
}

impl Nonces {
    /// Stores a nonce, which replaces the pod's last one. If the cluster already has `most` nonces
    /// of other pods, those are forgotten: nearly all belong to pods that were replaced.
    pub(super) fn issue(&mut self, cluster_uid: &str, pod_uid: &str, nonce: &str, max: usize) {
        let pods = self.clusters.entry(cluster_uid.to_owned()).or_default();
        if pods.len() >= max && !pods.contains_key(pod_uid) {
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

    /// Takes the nonce that was issued to a pod, which uses it up.
    pub(super) fn take(&mut self, cluster_uid: &str, pod_uid: &str) -> Option<String> {
        let pods = self.clusters.get_mut(cluster_uid)?;
        let nonce = pods.remove(pod_uid)?;
        self.count -= 1;
        Some(nonce)
    }

    /// Forgets clusters that are not in `there`.
    pub(super) fn retain(&mut self, existing: &HashSet<String>) {
        // Those of invitations have the invitation's name after the uid.
        let uid_of = |scope: &str| scope.split('/').next().unwrap_or_default().to_owned();
        self.clusters.retain(|scope, _| existing.contains(&uid_of(scope)));
        self.count = self.clusters.values().map(HashMap::len).sum();
    }

    /// Forgets the nonces of the cluster with the most, so that all others keep theirs.
    fn forget_largest(&mut self) {
        let largest = self.clusters.iter().max_by_key(|(_, pods)| pods.len());
        let Some(uid) = largest.map(|(uid, _)| uid.clone()) else { return };
        let forgotten = self.clusters.remove(&uid).unwrap_or_default();
        self.count -= forgotten.len();
    }
}

/// The number of requests that agents with the same key can make at the same time: one per pod, two for
/// the lead, and about as many again for pods that are being replaced. The key is that of the cluster, or
/// of an invitation to it.
pub(super) fn max_concurrent_requests(
    minicluster: &MiniCluster,
    invitation: Option<&str>,
) -> usize {
    let spec = &minicluster.spec;
    let bursting = spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    let invitations = bursting.map(|it| it.invitations.as_slice()).unwrap_or_default();
    let size = match invitation {
        None => spec.max_size.unwrap_or_default().max(spec.size),
        Some(name) => invitations.iter().find(|it| it.name == name).map_or(0, |it| it.ranks),
    };
    let size = usize::try_from(size).unwrap_or_default();
    size.saturating_mul(2).saturating_add(16).min(MAX_PER_CLUSTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(nonces: &Nonces, cluster: &str) -> usize {
        nonces.clusters.get(cluster).map_or(0, HashMap::len)
    }

    #[test]
    fn a_nonce_can_be_used_once_and_only_by_its_pod() {
        let mut nonces = Nonces::default();
        nonces.issue("a", "pod", "1", 9);
        nonces.issue("a", "pod", "2", 9);
        assert_eq!(nonces.take("a", "other"), None);
        assert_eq!(nonces.take("b", "pod"), None);
        assert_eq!(nonces.take("a", "pod").as_deref(), Some("2"));
        assert_eq!(nonces.take("a", "pod"), None);
        assert_eq!(nonces.count, 0);
    }

    #[test]
    fn the_nonces_of_a_hostile_cluster_are_limited_by_its_size() {
        let mut nonces = Nonces::default();
        nonces.issue("honest", "pod", "1", 9);
        for pod in 0..10_000 {
            nonces.issue("hostile", &pod.to_string(), "1", 20);
            assert!(count(&nonces, "hostile") <= 20);
        }
        assert_eq!(nonces.take("honest", "pod").as_deref(), Some("1"));
    }

    #[test]
    fn many_hostile_clusters_lose_their_nonces_first() {
        let mut nonces = Nonces::default();
        nonces.issue("honest", "pod", "1", 9);
        for cluster in 0..20 {
            for pod in 0..MAX_PER_CLUSTER {
                nonces.issue(&cluster.to_string(), &pod.to_string(), "1", MAX_PER_CLUSTER);
            }
            assert!(nonces.count <= MAX_NONCES);
        }
        assert_eq!(nonces.take("honest", "pod").as_deref(), Some("1"));
        assert_eq!(nonces.count, nonces.clusters.values().map(HashMap::len).sum::<usize>());
        nonces.retain(&HashSet::new());
        assert_eq!(nonces.count, 0);
    }

    #[test]
    fn the_limit_follows_any_cluster_size() {
        let most = |size, max_size| {
            let mut minicluster = MiniCluster::new("a", Default::default());
            (minicluster.spec.size, minicluster.spec.max_size) = (size, max_size);
            max_concurrent_requests(&minicluster, None)
        };
        assert_eq!(most(1, None), 18);
        assert_eq!(most(1, Some(10)), 36);
        assert_eq!(most(i32::MAX, Some(i32::MAX)), MAX_PER_CLUSTER);
        assert_eq!(most(i32::MIN, Some(-1)), 16);
    }

    #[test]
    fn the_limit_of_an_invitation_follows_its_ranks() {
        let mut lender = MiniCluster::new("a", Default::default());
        (lender.spec.size, lender.spec.max_size) = (1, Some(1));
        let expires = "2099-01-01T00:00:00Z";
        let invitations = [("many", 1000), ("few", 1)];
        let invitations = invitations.map(
            |(name, ranks)| serde_json::json!({ "name": name, "ranks": ranks, "expires": expires }),
        );
        let flux = serde_json::json!({ "bursting": { "invitations": invitations } });
        lender.spec.flux = Some(serde_json::from_value(flux).unwrap());
        assert_eq!(max_concurrent_requests(&lender, Some("many")), 2016);
        assert_eq!(max_concurrent_requests(&lender, Some("few")), 18);
        assert_eq!(max_concurrent_requests(&lender, Some("none")), 16);
    }
}
