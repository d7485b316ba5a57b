//! Names of what is made for a Burst. They follow from the Burst alone, so that everything is found
//! again when the rest is lost.

use std::collections::BTreeMap;

use flux_operator_api::Burst;
pub use flux_operator_wire::BURST_LABEL;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

/// The finalizer of a Burst, and of a MiniCluster that has Bursts.
pub const BURST_FINALIZER: &str = "flux-framework.org/bursts";

/// The label with the uid of the MiniCluster whose instance the brokers join.
pub const BURST_CLUSTER_LABEL: &str = "flux-framework.org/burst-cluster";

/// The label with the first 32 digits of the hash, of which the name has fewer.
const HASH_LABEL: &str = "flux-framework.org/burst-hash";

/// The annotation with the namespace and name of the Burst, for people at the target.
pub const BURST_NAME_ANNOTATION: &str = "flux-framework.org/burst-name";

/// How the name of everything that is made for a Burst begins.
const PREFIX: &str = "burst-";

/// How many digits of the hash are in a name: enough for no two Bursts to share one by chance.
const NAME_DIGITS: usize = 12;

/// The same in the name of a policy's Burst that has a number: one that is taken is not used.
const NUMBERED_DIGITS: usize = 6;

/// How many characters of a MiniCluster's name and digits of a hash are in the name of a policy's Burst:
/// with two hyphens and the name of a target, which has at most 20 characters, they fit into a label
/// (63).
const MAX_CLUSTER_AND_DIGITS: usize = 38;

/// The name of everything that is made for a Burst: its invitation, or its joiner, and its objects at
/// the target. Bursts of any two namespaces, or of two Kubernetes clusters, have different names.
pub fn object_name(burst: &Burst) -> String {
    let hash = hash(burst);
    format!("{PREFIX}{}", hash.get(..NAME_DIGITS).unwrap_or(&hash))
}

/// Whether a name is one that [`object_name`] makes.
pub fn is_object_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == NAME_DIGITS && digits.chars().all(|it| matches!(it, '0'..='9' | 'a'..='f'))
}

/// The name of the ConfigMap of a Burst in another Kubernetes cluster.
pub fn remote_config_map_name(object_name: &str) -> String {
    format!("{object_name}-entrypoint")
}

/// The name of the Secret of a Burst in another Kubernetes cluster.
pub fn remote_secret_name(object_name: &str) -> String {
    format!("{object_name}-invitation")
}

/// The name under which a Burst's fields of its MiniCluster are applied.
pub fn field_manager(burst: &Burst) -> String {
    format!("flux-operator-{}", object_name(burst))
}

/// The labels of everything that is made for a Burst.
pub fn burst_labels(burst: &Burst, cluster_uid: &str) -> BTreeMap<String, String> {
    let hash = hash(burst);
    BTreeMap::from([
        (BURST_LABEL.to_owned(), object_name(burst)),
        (BURST_CLUSTER_LABEL.to_owned(), cluster_uid.to_owned()),
        (HASH_LABEL.to_owned(), hash),
        ("app.kubernetes.io/managed-by".to_owned(), "flux-operator-burst".to_owned()),
    ])
}

/// The annotations of everything that is made for a Burst.
pub fn burst_annotations(burst: &Burst) -> BTreeMap<String, String> {
    let name = format!("{}/{}", burst.namespace().unwrap_or_default(), burst.name_any());
    BTreeMap::from([(BURST_NAME_ANNOTATION.to_owned(), name)])
}

/// What the name of a Burst that a policy creates follows from.
#[derive(Clone, Copy)]
pub struct PolicyBurst<'a> {
    pub policy_uid: &'a str,
    pub cluster_uid: &'a str,
    pub cluster: &'a str,
    pub target: &'a str,
}

impl PolicyBurst<'_> {
    /// The name of the Burst of a number. The same number gives the same name, so that a controller
    /// which has forgotten that it created one finds the name taken. Another Burst may have the same
    /// name: then the next number is used.
    pub fn numbered(&self, number: usize) -> String {
        self.name(&number.to_string(), NUMBERED_DIGITS)
    }

    /// The name of the Burst that runs a job in an instance of its own. It has as many digits as names at
    /// targets, because there is no other number for the same job.
    pub fn of_job(&self, job: u64) -> String {
        self.name(&format!("job {job}"), NAME_DIGITS)
    }

    fn name(&self, what: &str, digits: usize) -> String {
        let PolicyBurst { policy_uid, cluster_uid, cluster, target } = self;
        let digest = digest(&[policy_uid, cluster_uid, target, what]);
        let length = MAX_CLUSTER_AND_DIGITS.saturating_sub(digits);
        let cluster: String = cluster.chars().take(length).collect();
        format!("{cluster}-{target}-{}", digest.get(..digits).unwrap_or_default())
    }
}

/// A hash of what a Burst is: itself, and what it asks for.
fn hash(burst: &Burst) -> String {
    let (namespace, uid) = (burst.namespace().unwrap_or_default(), burst.uid().unwrap_or_default());
    let nodes = burst.spec.max_nodes().to_string();
    let target = &burst.spec.target.name;
    digest(&[&namespace, &burst.name_any(), &uid, &burst.spec.cluster, target, &nodes])
}

/// The first 32 hexadecimal digits: the whole hash is longer than a label may be.
fn digest(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\n").as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_of_what_is_made_for_a_burst_are_recognized() {
        let made = object_name(&Burst::new("a", flux_operator_api::BurstSpec::default()));
        assert!(is_object_name(&made), "{made}");
        for other in ["burst-0", "burst-0123456789AB", "burst-0123456789abc", "0123456789ab", ""] {
            assert!(!is_object_name(other), "{other}");
        }
    }

    #[test]
    fn names_at_a_target_differ_by_everything_that_a_burst_is() {
        type Change = fn(&mut Burst);
        let changes: [Change; 7] = [
            |_| (),
            |burst| burst.metadata.name = Some("other".into()),
            |burst| burst.metadata.namespace = Some("other".into()),
            |burst| burst.metadata.uid = Some("other".into()),
            |burst| burst.spec.cluster = "other".into(),
            |burst| burst.spec.target.name = "other".into(),
            |burst| burst.spec.nodes = 4,
        ];
        let made = changes.map(|change| {
            let mut burst = Burst::new("a", flux_operator_api::BurstSpec::default());
            burst.metadata.namespace = Some("hpc".into());
            burst.metadata.uid = Some("uid".into());
            change(&mut burst);
            (object_name(&burst), burst_labels(&burst, "c")[HASH_LABEL].clone())
        });
        let names: BTreeSet<&String> = made.iter().map(|(name, _)| name).collect();
        let hashes: BTreeSet<&String> = made.iter().map(|(_, hash)| hash).collect();
        assert_eq!((names.len(), hashes.len()), (changes.len(), changes.len()), "{made:?}");
    }

    #[test]
    fn bursts_of_policies_have_different_names_of_at_most_a_labels_length() {
        let cluster = "c".repeat(63);
        let target = "t".repeat(20);
        let burst =
            PolicyBurst { policy_uid: "p", cluster_uid: "c", cluster: &cluster, target: &target };
        let all = [
            burst.numbered(0),
            burst.numbered(1),
            burst.of_job(1),
            burst.of_job(2),
            PolicyBurst { policy_uid: "q", ..burst }.numbered(0),
            PolicyBurst { policy_uid: "q", ..burst }.of_job(1),
            PolicyBurst { cluster_uid: "d", ..burst }.numbered(0),
            PolicyBurst { cluster_uid: "d", ..burst }.of_job(1),
            PolicyBurst { target: "other", ..burst }.numbered(0),
            PolicyBurst { target: "other", ..burst }.of_job(1),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        assert!(all.iter().all(|name| name.len() <= 63), "{all:?}");
        let again = (burst.numbered(0), burst.of_job(1));
        assert_eq!((&again.0, &again.1), (&all[0], &all[2]), "the same Burst has the same name");
        let jobs: BTreeSet<String> = (0..20_000).map(|job| burst.of_job(job)).collect();
        assert_eq!(jobs.len(), 20_000, "no two jobs share a name");
    }
}
