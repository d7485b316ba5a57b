//! Names of what is made for a Burst. They follow from the Burst alone, so that everything is found
//! again when the rest is lost.

use std::collections::BTreeMap;

use flux_operator_api::Burst;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

/// The finalizer of a Burst, and of a MiniCluster that has Bursts.
pub const BURST_FINALIZER: &str = "flux-framework.org/bursts";

/// The label of everything that is made for a Burst. Its value is the name of these objects, so that
/// leftovers are found without the Burst.
pub const BURST_LABEL: &str = "flux-framework.org/burst";

/// The label with the uid of the MiniCluster whose instance the brokers join.
pub const BURST_CLUSTER_LABEL: &str = "flux-framework.org/burst-cluster";

/// The label with the whole hash, of which the name has only a part.
const HASH_LABEL: &str = "flux-framework.org/burst-hash";

/// The annotation with the namespace and name of the Burst, for people at the target.
pub const BURST_NAME_ANNOTATION: &str = "flux-framework.org/burst-name";

/// How the name of everything that is made for a Burst begins.
const PREFIX: &str = "burst-";

/// How many digits of the hash are in a name: enough for no two Bursts to share one by chance.
const NAME_DIGITS: usize = 12;

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

/// The name of a Burst that a policy creates: the same number gives the same name, so that a
/// controller which has forgotten that it created one finds the name taken.
pub fn policy_burst_name(
    policy_uid: &str,
    cluster_uid: &str,
    cluster: &str,
    target: &str,
    number: usize,
) -> String {
    let digest = digest(&[policy_uid, cluster_uid, target, &number.to_string()]);
    // The label with a Job's name has at most 63 characters.
    let cluster: String = cluster.chars().take(32).collect();
    format!("{cluster}-{target}-{}", digest.get(..6).unwrap_or_default())
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
    use super::*;

    #[test]
    fn names_of_what_is_made_for_a_burst_are_recognized() {
        let made = object_name(&Burst::new("a", flux_operator_api::BurstSpec::default()));
        assert!(is_object_name(&made), "{made}");
        for other in ["burst-0", "burst-0123456789AB", "burst-0123456789abc", "0123456789ab", ""] {
            assert!(!is_object_name(other), "{other}");
        }
    }
}
