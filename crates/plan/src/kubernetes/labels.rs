//! Labels of objects and pods.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::Rendering;

/// The label by which the operator finds what belongs to a MiniCluster.
pub const CLUSTER_LABEL: &str = "flux-framework.org/minicluster";

/// The label of pods whose host names belong to a Service that clusters may share. Its
/// value is the Service's name.
pub(super) const HEADLESS_LABEL: &str = "flux-framework.org/headless-name";

/// The label of Jobs and pods that hold ranks of another cluster: the uid of their MiniCluster. Another
/// one may get the same name while they terminate.
pub const HOLDER_LABEL: &str = "flux-framework.org/holder";

/// The label of these with the uid of the MiniCluster whose ranks they hold.
pub const LENDER_LABEL: &str = "flux-framework.org/lender";

/// The label of these with the hash of the rank table that their ranks belong to.
pub const TABLE_LABEL: &str = "flux-framework.org/rank-table";

/// The label by which Kueue recognizes a Job that waits in one of its queues.
const KUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";

/// Whether a Job belongs to Kueue. Only Kueue may then suspend and resume it.
pub fn belongs_to_kueue(job: &Job) -> bool {
    job.metadata.labels.as_ref().is_some_and(has_kueue_label)
}

/// Whether a Job with these labels belongs to Kueue.
pub fn has_kueue_label(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key(KUEUE_LABEL)
}

/// Whether a pod is the one with a cluster's services, and not a pod of its Job.
pub fn is_services_pod(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get("job-index")).is_some_and(|index| index == "services")
}

/// The status' selector, for the scale subresource.
pub fn selector(name: &str) -> String {
    format!("hpa-selector={name}")
}

/// Labels of the Secret, ConfigMap and Services.
pub(super) fn of_objects(rendering: &Rendering<'_>) -> BTreeMap<String, String> {
    map([(CLUSTER_LABEL, rendering.name()), ("app.kubernetes.io/managed-by", "flux-operator")])
}

/// Labels of a Service that clusters may share. The operator finds it by the cluster label
/// too, which has an empty value.
pub(super) fn of_shared_objects() -> BTreeMap<String, String> {
    map([(CLUSTER_LABEL, ""), ("app.kubernetes.io/managed-by", "flux-operator")])
}

/// Labels of the Job: the user's, or else those of its pods, as Kubernetes sets
/// them for a Job without labels. Then ours.
pub(super) fn of_job(rendering: &Rendering<'_>) -> BTreeMap<String, String> {
    let mut labels = rendering.minicluster.spec.job_labels.clone();
    if labels.is_empty() {
        let name = rendering.name();
        labels = of_pods(rendering);
        labels.extend(map([("job-name", name), ("batch.kubernetes.io/job-name", name)]));
    }
    labels.extend(of_objects(rendering));
    labels.extend(of_joiner(rendering));
    labels
}

/// Labels of the Job and the pods of a joiner, by which its lender finds them.
fn of_joiner(rendering: &Rendering<'_>) -> BTreeMap<String, String> {
    let Some(joining) = &rendering.cluster.joining else { return BTreeMap::new() };
    let uid = rendering.minicluster.metadata.uid.as_deref().unwrap_or_default();
    map([(HOLDER_LABEL, uid), (LENDER_LABEL, &joining.cluster), (TABLE_LABEL, &joining.table)])
}

/// Labels of the Job's pods: those of all pods, and the one that the scale
/// subresource selects by.
pub(super) fn of_pods(rendering: &Rendering<'_>) -> BTreeMap<String, String> {
    let mut labels = of_any_pod(rendering);
    labels.extend(map([("hpa-selector", rendering.name())]));
    labels.extend(of_joiner(rendering));
    labels
}

/// Labels of the services pod. `job-name` gives it a host name of the headless
/// Service, and `job-index` distinguishes it from the Job's own pods.
pub(super) fn of_services_pod(rendering: &Rendering<'_>) -> BTreeMap<String, String> {
    let mut labels = of_any_pod(rendering);
    labels.extend(map([("job-name", rendering.name()), ("job-index", "services")]));
    labels
}

/// The user's labels, those that users of the Go operator select by, and ours. Of labels with
/// the same key, the later of these takes precedence.
fn of_any_pod(rendering: &Rendering<'_>) -> BTreeMap<String, String> {
    let name = rendering.name();
    let namespace = rendering.minicluster.metadata.namespace.as_deref().unwrap_or("default");
    let spec = &rendering.minicluster.spec;
    let mut labels = spec.pod.as_ref().map(|pod| pod.labels.clone()).unwrap_or_default();
    labels.extend(map([
        ("namespace", namespace),
        ("app", "flux-operator"),
        ("app.kubernetes.io/name", name),
        (CLUSTER_LABEL, name),
    ]));
    if !spec.job_selector.is_empty() {
        labels.extend(map([("job-group", spec.job_selector.as_str())]));
    }
    if rendering.shares_service() {
        labels.extend(map([(HEADLESS_LABEL, rendering.headless_name())]));
    }
    labels
}

/// Labels from text.
pub(super) fn map<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
