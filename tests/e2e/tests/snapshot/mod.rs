//! A snapshot of all objects of a MiniCluster in a namespace, without what differs from run to run.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use flux_operator_plan::kubernetes::CLUSTER_LABEL;
use flux_operator_tests_e2e::object_counter::ObjectCounter;
use flux_operator_tests_e2e::objects::stable_name;
use flux_operator_tests_e2e::{TestNamespace, index_of};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::api::{ListParams, LogParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A snapshot of the MiniCluster and all objects with its label. `None` while Kubernetes itself is
/// still changing them.
pub async fn take_snapshot(
    stage: &TestNamespace,
    name: &str,
    census: &ObjectCounter,
) -> Result<Option<Value>> {
    let jobs: Api<Job> = Api::namespaced(stage.client.clone(), &stage.namespace);
    if jobs.list(&ListParams::default()).await?.iter().any(is_changing) {
        return Ok(None);
    }
    let (names, pods) = pods(stage).await?;
    if pods.iter().any(|pod| pod["terminating"] == true) {
        return Ok(None);
    }
    let mut objects = Vec::new();
    objects.extend(all::<Secret>(stage).await?);
    objects.extend(all::<ConfigMap>(stage).await?);
    objects.extend(all::<Service>(stage).await?);
    objects.extend(all::<Job>(stage).await?);
    let minicluster = stage.miniclusters().get_opt(name).await?;
    if minicluster.is_none() && objects.is_empty() && pods.is_empty() {
        // How many there were depends on when it was deleted.
        return Ok(Some(empty_snapshot()));
    }
    let uid = minicluster.as_ref().and_then(|minicluster| minicluster.uid());
    let mut objects = serde_json::to_value((minicluster, objects))?;
    scrub(&mut objects);
    let mut text = objects.to_string();
    // Messages contain names of pods.
    let own = names.into_iter().chain(uid).chain([stage.namespace.clone(), stage.report_url()?]);
    for own in own {
        text = text.replace(&own, "<own>");
    }
    let objects: Value = serde_json::from_str(&text).context("the snapshot is not valid JSON")?;
    Ok(Some(json!({ "objects": objects, "pods": pods, "made": census.counts() })))
}

/// Whether a Job is waiting for its pods to become ready, to terminate, or to be counted.
fn is_changing(job: &Job) -> bool {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let has_condition =
        |kind: &str| conditions.iter().any(|c| c.type_ == kind && c.status == "True");
    let is_finishing = has_condition("SuccessCriteriaMet") || has_condition("FailureTarget");
    let finished = has_condition("Complete") || has_condition("Failed");
    status.active.unwrap_or_default() != status.ready.unwrap_or_default()
        || status.terminating.unwrap_or_default() > 0
        || is_finishing != finished
}

/// The difference of two snapshots, line by line.
pub fn difference(expected: &Value, observed: &Value) -> String {
    let (expected, observed) = (format!("{expected:#}"), format!("{observed:#}"));
    let without = |lines: &str, others: &str, mark: &str| {
        let others: BTreeSet<&str> = others.lines().collect();
        let lines = lines.lines().filter(|line| !others.contains(line));
        lines.map(|line| format!("{mark} {line}\n")).collect::<String>()
    };
    without(&expected, &observed, "-") + &without(&observed, &expected, "+")
}

/// The snapshot of an empty namespace.
pub fn empty_snapshot() -> Value {
    json!("nothing")
}

async fn all<K>(stage: &TestNamespace) -> Result<Vec<Value>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let list = api.list(&ListParams::default().labels(CLUSTER_LABEL)).await?;
    list.items.iter().map(|item| Ok(serde_json::to_value(item)?)).collect()
}

/// The names of the pods, and their state.
async fn pods(stage: &TestNamespace) -> Result<(Vec<String>, Vec<Value>)> {
    let (mut names, mut pods) = (Vec::new(), Vec::new());
    for pod in stage.pod_api().list(&ListParams::default().labels(CLUSTER_LABEL)).await?.items {
        let status = pod.status.clone().unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        let is_terminating = pod.metadata.deletion_timestamp.is_some();
        let finished = ["Succeeded", "Failed"].contains(&phase.as_str()) && !is_terminating;
        let ran = if finished { Some(count_runs(stage, &pod).await?) } else { None };
        let restarts = status.container_statuses.iter().flatten().map(|c| c.restart_count);
        pods.push(json!({
            "index": index_of(&pod),
            "label": pod.labels().get("job-index"),
            "lost before": pod.annotations().get("batch.kubernetes.io/job-index-failure-count"),
            "phase": phase,
            "terminating": is_terminating,
            "restarts": restarts.sum::<i32>(),
            "ran": ran,
        }));
        names.push(pod.name_any());
    }
    pods.sort_by_key(Value::to_string);
    Ok((names, pods))
}

/// How often the command of a terminated pod printed that it ran.
async fn count_runs(stage: &TestNamespace, pod: &Pod) -> Result<usize> {
    let log = stage.pod_api().logs(&pod.name_any(), &LogParams::default()).await?;
    Ok(log.lines().filter(|line| *line == "ran").count())
}

/// Removes what differs in every run: identities, times, keys. Generations stay, because they count
/// changes.
pub fn scrub(value: &mut Value) {
    let own = [
        "finishTime",
        "time",
        "since",
        "until",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "lastTransitionTime",
        "lastProbeTime",
        "startTime",
        "completionTime",
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
    ];
    match value {
        Value::Object(map) => {
            map.retain(|name, _| !own.contains(&name.as_str()));
            for (name, value) in map.iter_mut() {
                match (name.as_str(), &value) {
                    ("curve.cert" | "report.key", Value::String(_)) => *value = "<key>".into(),
                    ("name" | "secretName", Value::String(name)) => {
                        *value = stable_name(name).into()
                    }
                    _ => scrub(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(scrub),
        _ => {}
    }
}
