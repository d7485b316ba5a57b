//! Labels of objects and pods.

use std::collections::BTreeMap;

use super::Rendering;

/// The label by which the operator finds what belongs to a MiniCluster.
pub const CLUSTER_LABEL: &str = "flux-framework.org/minicluster";

/// The status' selector, for the scale subresource.
pub fn selector(name: &str) -> String {
    format!("hpa-selector={name}")
}

/// Labels of the Secret, ConfigMap, Service and Job.
pub(super) fn of_objects(rendering: &Rendering<'_>) -> BTreeMap<String, String> {
    map([(CLUSTER_LABEL, rendering.name()), ("app.kubernetes.io/managed-by", "flux-operator")])
}

/// Labels of the pods: the user's, then those that users of the Go operator
/// select by, then ours. The operator's win.
pub(super) fn of_pods(rendering: &Rendering<'_>) -> BTreeMap<String, String> {
    let name = rendering.name();
    let namespace = rendering.minicluster.metadata.namespace.as_deref().unwrap_or("default");
    let pod = rendering.minicluster.spec.pod.as_ref();
    let mut labels = pod.map(|pod| pod.labels.clone()).unwrap_or_default();
    labels.extend(map([
        ("namespace", namespace),
        ("app", "flux-operator"),
        ("app.kubernetes.io/name", name),
        ("hpa-selector", name),
        (CLUSTER_LABEL, name),
    ]));
    let group = &rendering.minicluster.spec.job_selector;
    if !group.is_empty() {
        labels.insert("job-group".into(), group.clone());
    }
    labels
}

fn map<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
