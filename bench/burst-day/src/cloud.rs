//! Where nodes can be had: how long they take to come up, and what they cost.
//!
//! The figures are published ones, rounded. They are those of a node pool that exists and has no
//! nodes. A Kubernetes cluster that has to be created first takes much longer: EKS took 15 minutes on
//! average for the control plane alone (github.com/aws/containers-roadmap/issues/1227).

/// A node pool of a Kubernetes cluster at a provider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cloud {
    /// Its name, which is that of the policy's target.
    pub name: &'static str,
    /// The shortest and the longest time from the request until its nodes are up, in seconds.
    pub startup: (u64, u64),
    /// Price of a node for an hour, in US dollars.
    pub price: f64,
    /// How many of its nodes an account may have at the same time. Assumed.
    pub quota: u32,
}

/// `hpc6a.48xlarge` of Amazon EKS.
///
/// Start-up: 3 to 5 minutes from a pending pod until its node is ready, with the Cluster Autoscaler and
/// standard images (zop.dev/resources/blogs/kubernetes-cluster-autoscaler-vs-karpenter-production).
/// Price: on demand, as public scripts compute the cost of experiments with Flux on EKS.
pub const EKS: Cloud = Cloud { name: "eks", startup: (180, 300), price: 2.88, quota: 32 };

/// `c2d-standard-112` of Google GKE.
///
/// Start-up: 2 to 5 minutes from a pending pod until it runs
/// (brtkwr.com/posts/2025-10-21-gke-cluster-autoscaler).
/// Price: on demand, as the same scripts have it for GKE.
pub const GKE: Cloud = Cloud { name: "gke", startup: (120, 300), price: 5.06, quota: 64 };

/// All of them.
pub const CLOUDS: [Cloud; 2] = [EKS, GKE];

/// By how much the start-up times of nodes of one request differ at most, in seconds. Assumed.
const SPREAD: u64 = 20;

/// They differ by a multiple of this, in seconds, so that there are fewer events.
const STEP: u64 = 5;

/// How long it takes to delete the pods of a burst that is given back, in seconds. Assumed: brokers exit
/// at once, and the kubelet reports it.
pub const RELEASE_SECONDS: u64 = 10;

impl Cloud {
    /// The one of this name.
    pub fn named(name: &str) -> Option<Cloud> {
        CLOUDS.into_iter().find(|cloud| cloud.name == name)
    }

    /// After how many seconds each of so many nodes is up.
    pub fn startup_times(&self, nodes: u32, random: &mut fastrand::Rng) -> Vec<u64> {
        let first = random.u64(self.startup.0..=self.startup.1 - SPREAD);
        (0..nodes).map(|_| first + STEP * random.u64(0..=SPREAD / STEP)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_up_times_vary_within_the_published_range() {
        let mut random = fastrand::Rng::with_seed(7);
        let times: Vec<Vec<u64>> = (0..200).map(|_| GKE.startup_times(3, &mut random)).collect();
        let all = || times.iter().flatten().copied();
        assert!(all().all(|time| (120..=300).contains(&time)));
        assert!(all().min().unwrap() < 140 && all().max().unwrap() > 280, "it is not constant");
        assert!(times.iter().any(|times| times[0] != times[1]), "nodes differ");
    }
}
