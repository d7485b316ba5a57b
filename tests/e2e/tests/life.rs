//! Whatever keeps a MiniCluster from running is reported in its conditions.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::busybox_image;
use flux_operator_tests_e2e::{TestNamespace, condition, with_operator};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, Secret};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// An image that does not exist.
const MISSING_IMAGE: &str = "flux-operator.test/missing:1";

#[tokio::test]
async fn the_reason_why_a_pod_does_not_start_is_reported() -> Result<()> {
    with_operator(async |stage| {
        let busybox = busybox_image();
        let disabled = json!({ "container": { "disable": true } });
        let runner = json!({ "image": busybox, "runFlux": true, "command": "true" });
        let with = |change: Value| {
            let mut runner = runner.clone();
            flux_operator_testkit::merge(&mut runner, &change);
            json!({ "flux": disabled, "containers": [runner] })
        };
        let beside = json!({ "name": "side", "image": MISSING_IMAGE, "command": "true" });
        let secret = json!({ "secrets": { "KEY": { "name": "no-secret", "key": "k" } } });
        let volume =
            json!({ "volumes": { "data": { "path": "/data", "secretName": "no-volume" } } });
        // Name, spec, reason, and text that the message must contain.
        let cases = [
            ("image", with(json!({ "image": MISSING_IMAGE })), "ErrImagePull", MISSING_IMAGE),
            (
                "aside",
                json!({ "flux": disabled, "containers": [runner, beside] }),
                "ErrImagePull",
                MISSING_IMAGE,
            ),
            (
                "view",
                json!({ "flux": { "container": { "image": MISSING_IMAGE } }, "containers": [runner] }),
                "ErrImagePull",
                MISSING_IMAGE,
            ),
            (
                "room",
                with(json!({ "resources": { "requests": { "cpu": "1k" } } })),
                "Unschedulable",
                "Insufficient cpu",
            ),
            ("env", with(secret), "CreateContainerConfigError", "\"no-secret\" not found"),
            ("volume", with(volume), "FailedMount", "\"no-volume\" not found"),
        ];
        for (name, spec, _, _) in &cases {
            stage.create(name, spec.clone()).await?;
        }
        try_join_all(cases.iter().map(async |(name, _, reason, named)| {
            let ready = stage.wait_for_reason(name, ConditionType::Ready, reason).await?;
            assert_eq!(ready.status, "False", "{name}");
            assert!(ready.message.contains(named), "{name}: {}", ready.message);
            anyhow::Ok(())
        }))
        .await?;
        let waits = stage.miniclusters().get("room").await?;
        let waits = condition(&waits, ConditionType::JobWaitingForResources).context("missing")?;
        assert_eq!((waits.status.as_str(), waits.reason.as_str()), ("True", "Unschedulable"));
        stage.wait_for_event("ErrImagePull").await
    })
    .await
}

#[tokio::test]
async fn a_crashing_sidecar_is_reported_and_does_not_stop_the_cluster() -> Result<()> {
    with_operator(async |stage| {
        let side =
            json!({ "name": "side", "noWrapEntrypoint": true, "args": ["sh", "-c", "exit 3"] });
        let containers = json!([{ "runFlux": true }, side]);
        let spec = json!({ "interactive": true, "containers": containers });
        stage.create("crashing", spec).await?;
        stage.wait_for_status("crashing", ConditionType::Ready, "True").await?;
        let reason = "CrashLoopBackOff";
        let ready = stage.wait_for_reason("crashing", ConditionType::Ready, reason).await?;
        assert!(ready.message.contains("exit code 3"), "{}", ready.message);
        assert!(ready.message.contains("-c side"), "{}", ready.message);
        stage.wait_for_event("CrashLoopBackOff").await
    })
    .await
}

#[tokio::test]
async fn an_exceeded_quota_is_reported_and_waited_for() -> Result<()> {
    with_operator(async |stage| {
        quota(stage, "few", 1).await?;
        let spec = json!({ "size": 2, "containers": [{ "command": "hostname" }] });
        stage.create("large", spec).await?;
        let reason = "QuotaExceeded";
        let ready = stage.wait_for_reason("large", ConditionType::Ready, reason).await?;
        assert!(ready.message.contains("exceeded quota: few"), "{}", ready.message);
        stage.wait_for_status("large", ConditionType::JobWaitingForResources, "True").await?;
        stage.wait_for_event(reason).await?;
        quota(stage, "few", 2).await?;
        let finished = stage.wait_until_finished("large").await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pods_that_the_namespace_forbids_are_reported() -> Result<()> {
    with_operator(async |stage| {
        let namespaces: Api<Namespace> = Api::all(stage.client.clone());
        let label = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        let patch = Patch::Merge(json!({ "metadata": { "labels": label } }));
        namespaces.patch(&stage.namespace, &PatchParams::default(), &patch).await?;
        stage.create("loose", json!({ "containers": [{ "command": "hostname" }] })).await?;
        let ready = stage.wait_for_reason("loose", ConditionType::Ready, "PodSecurity").await?;
        assert!(ready.message.contains("runAsNonRoot"), "{}", ready.message);
        Ok(())
    })
    .await
}

/// Each has one of its two pods and waits for the other's quota.
#[tokio::test]
async fn two_clusters_that_block_each_other_both_run() -> Result<()> {
    with_operator(async |stage| {
        quota(stage, "both", 2).await?;
        let classes: Api<PriorityClass> = Api::all(stage.client.clone());
        let class = |name: &str| format!("{}-{name}", stage.namespace);
        for name in ["one", "other"] {
            let priority =
                json!({ "metadata": { "name": class(name) }, "value": 0, "preemptionPolicy": "Never" });
            classes.create(&PostParams::default(), &serde_json::from_value(priority)?).await?;
            scoped_quota(stage, name, &class(name)).await?;
            let spec = json!({
                "size": 2,
                "readyTimeoutSeconds": 10,
                "containers": [{ "command": "hostname" }],
                "pod": { "priorityClassName": class(name) },
            });
            stage.create(name, spec).await?;
        }
        for name in ["one", "other"] {
            stage.wait_for_reason(name, ConditionType::Ready, "QuotaExceeded").await?;
        }
        // Now each is only blocked by the other.
        for name in ["one", "other"] {
            stage.api::<ResourceQuota>().delete(name, &DeleteParams::default()).await?;
        }
        stage.wait_for_event("ReadyTimeout").await?;
        for name in ["one", "other"] {
            let finished = stage.wait_until_finished(name).await?;
            assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0), "{name}");
            classes.delete(&class(name), &DeleteParams::default()).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn lost_keys_are_reported_and_not_replaced() -> Result<()> {
    with_operator(async |stage| {
        stage.create("keyless", json!({ "interactive": true })).await?;
        stage.wait_for_status("keyless", ConditionType::Ready, "True").await?;
        // The kubelet caches a Secret as long as a pod on its node uses it.
        stage.patch("keyless", json!({ "suspend": true })).await?;
        stage.wait_for_no_pods("keyless").await?;
        let keys = stage.keys("keyless").await?.context("there are no keys")?.name_any();
        stage.api::<Secret>().delete(&keys, &DeleteParams::default()).await?;
        stage.patch("keyless", json!({ "suspend": false })).await?;
        let ready = stage.wait_for_reason("keyless", ConditionType::Ready, "KeysLost").await?;
        assert_eq!(ready.status, "False");
        assert!(ready.message.contains(&keys), "{}", ready.message);
        assert!(ready.message.contains("delete the MiniCluster"), "{}", ready.message);
        assert!(stage.keys("keyless").await?.is_none(), "new keys were generated");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_reason_why_a_cluster_was_terminated_is_reported() -> Result<()> {
    with_operator(async |stage| {
        let memory = json!({ "limits": { "memory": "96Mi" } });
        // It buffers endless input.
        let greedy = json!([{ "command": "tail /dev/zero", "resources": memory }]);
        stage.create("greedy", json!({ "containers": greedy })).await?;
        let sleeps = json!([{ "command": "sleep 1000" }]);
        stage.create("late", json!({ "deadlineSeconds": 8, "containers": sleeps })).await?;
        stage.create("evicted", json!({ "containers": sleeps })).await?;
        stage.wait_for_status("evicted", ConditionType::Running, "True").await?;
        let lead = stage.pod("evicted", 0).await?.name_any();
        stage.pod_api().evict(&lead, &EvictParams::default()).await?;
        stage.wait_for_event("Evicted").await?;
        for (name, reason) in
            [("greedy", "OOMKilled"), ("late", "DeadlineExceeded"), ("evicted", "RestartLimit")]
        {
            let finished = stage.wait_until_finished(name).await?;
            let succeeded =
                condition(&finished, ConditionType::Succeeded).context("no condition")?;
            let reported = (succeeded.status.as_str(), succeeded.reason.as_str());
            assert_eq!(reported, ("False", reason), "{name}: {}", succeeded.message);
        }
        Ok(())
    })
    .await
}

/// Limits the number of pods in the namespace.
async fn quota(stage: &TestNamespace, name: &str, pods: u32) -> Result<()> {
    apply_quota(stage, name, json!({ "hard": { "pods": pods.to_string() } })).await
}

/// Allows one pod of a PriorityClass.
async fn scoped_quota(stage: &TestNamespace, name: &str, class: &str) -> Result<()> {
    let of_class = json!({ "scopeName": "PriorityClass", "operator": "In", "values": [class] });
    let scope = json!({ "matchExpressions": [of_class] });
    apply_quota(stage, name, json!({ "hard": { "pods": "1" }, "scopeSelector": scope })).await
}

async fn apply_quota(stage: &TestNamespace, name: &str, spec: Value) -> Result<()> {
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": { "name": name },
        "spec": spec,
    });
    let parameters = PatchParams::apply("flux-operator-tests").force();
    stage.api::<ResourceQuota>().patch(name, &parameters, &Patch::Apply(quota)).await?;
    Ok(())
}
