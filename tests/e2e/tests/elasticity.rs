//! Clusters that grow and shrink while jobs run, on a real node.

use anyhow::{Context, Result, ensure};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::{first_match, kubectl};
use flux_operator_tests_e2e::{TestNamespace, condition, with_operator};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

/// The `flux` command in a pod. `flux proxy` would pass quoted arguments to another shell.
const FLUX: &str = ". /mnt/flux/flux-view.sh && FLUX_URI=$fluxsocket flux";

/// A job that exits once a file exists, and then prints its host name.
const WAIT_AND_PRINT_HOST: &str =
    "sh -c 'until [ -e /tmp/go ]; do sleep 0.1; done; echo done-$(hostname)'";

#[tokio::test]
async fn a_cluster_shrinks_once_the_jobs_on_removed_ranks_have_finished() -> Result<()> {
    with_operator(async |stage| {
        stage.create("tide", json!({ "size": 2, "maxSize": 4, "interactive": true })).await?;
        stage.wait_for_status("tide", ConditionType::Ready, "True").await?;
        let steady = submit(stage, "tide", "-N1").await?;
        scale(stage, "tide", 4)?;
        wait_for_minicluster(stage, "tide", "4/4 are ready", |tide| ready(tide) == Some("4/4"))
            .await?;
        // The remaining node next to the steady job, and both new ones.
        let wide = submit(stage, "tide", "-N3").await?;
        let running =
            format!("until [ $({FLUX} jobs -n -f running | wc -l) = 2 ]; do sleep 0.2; done");
        stage.exec("tide", 0, &running).await?;
        // Which node a job gets is the scheduler's choice.
        let of_steady = format!("{FLUX} jobs -n -o '{{ranks}}' {steady}");
        let of_steady: u32 = stage.exec("tide", 0, &of_steady).await?.trim().parse()?;
        scale(stage, "tide", 2)?;
        let waits = wait_for_minicluster(stage, "tide", "it drains", |tide| {
            is_ready_because(tide, "Draining", "draining ranks 2-3: waiting for jobs on 2-3")
        });
        waits.await?;
        stage.wait_for_event("Draining").await?;
        assert_eq!(parallelism(stage, "tide").await?, Some(4));
        // A restarted operator knows what was waited for.
        stage.stop_operator();
        stage.start_operator().await?;
        for index in (0..4).filter(|index| *index != of_steady) {
            stage.exec("tide", index, "touch /tmp/go").await?;
        }
        let output = attach(stage, "tide", &wide).await?;
        let mut hosts: Vec<&str> = output.lines().collect();
        hosts.sort_unstable();
        let beside = format!("done-tide-{}", 1 - of_steady);
        assert_eq!(hosts, [beside.as_str(), "done-tide-2", "done-tide-3"]);
        let shrunk =
            wait_for_minicluster(stage, "tide", "two are left", |tide| size(tide) == Some(2));
        shrunk.await?;
        assert_eq!(parallelism(stage, "tide").await?, Some(2));
        wait_for_minicluster(stage, "tide", "it is full again", |tide| {
            is_ready_because(tide, "Quorum", "")
        })
        .await?;
        // The other job was not affected.
        stage.exec("tide", of_steady, "touch /tmp/go").await?;
        assert_eq!(attach(stage, "tide", &steady).await?, format!("done-tide-{of_steady}\n"));
        // Ranks that were removed are used again when they are back.
        scale(stage, "tide", 4)?;
        let all = stage.exec("tide", 0, &format!("{FLUX} run -N4 hostname")).await?;
        assert_eq!(all.lines().count(), 4, "{all}");
        Ok(())
    })
    .await
}

/// Also with Fluxion, whose `fcfs` policy would fail such a job at once.
#[tokio::test]
async fn a_job_larger_than_the_cluster_runs_once_the_cluster_has_grown() -> Result<()> {
    with_operator(async |stage| {
        stage.create("wide", json!({ "size": 1, "maxSize": 3, "interactive": true })).await?;
        stage.wait_for_status("wide", ConditionType::Ready, "True").await?;
        let line = format!("{FLUX} submit -N3 hostname");
        let large = stage.exec("wide", 0, &line).await?.trim().to_owned();
        // Pods take seconds to start; a scheduler that fails the job does so at once.
        scale(stage, "wide", 3)?;
        let mut hosts: Vec<String> =
            attach(stage, "wide", &large).await?.lines().map(str::to_owned).collect();
        hosts.sort_unstable();
        assert_eq!(hosts, ["wide-0", "wide-1", "wide-2"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn setting_the_size_back_keeps_ranks_and_jobs() -> Result<()> {
    with_operator(async |stage| {
        stage.create("mind", json!({ "size": 3, "interactive": true })).await?;
        stage.wait_for_status("mind", ConditionType::Ready, "True").await?;
        let wide = submit(stage, "mind", "-N3").await?;
        scale(stage, "mind", 1)?;
        let drains =
            |mind: &MiniCluster| is_ready_because(mind, "Draining", "waiting for jobs on 1-2");
        wait_for_minicluster(stage, "mind", "it drains", drains).await?;
        scale(stage, "mind", 3)?;
        wait_for_minicluster(stage, "mind", "it stays", |mind| {
            is_ready_because(mind, "Quorum", "")
        })
        .await?;
        for index in 0..3 {
            stage.exec("mind", index, "touch /tmp/go").await?;
        }
        assert_eq!(attach(stage, "mind", &wide).await?.lines().count(), 3);
        let all = stage.exec("mind", 0, &format!("{FLUX} run -N3 hostname")).await?;
        assert_eq!(all.lines().count(), 3, "{all}");
        assert_eq!(parallelism(stage, "mind").await?, Some(3));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn invalid_sizes_are_refused_or_reported() -> Result<()> {
    with_operator(async |stage| {
        stage.create("bounds", json!({ "size": 2, "minSize": 2, "interactive": true })).await?;
        stage.wait_for_status("bounds", ConditionType::Ready, "True").await?;
        let refused = scale(stage, "bounds", 1).expect_err("less than minSize");
        assert!(refused.to_string().contains("minSize must be at most size"), "{refused}");
        // Its brokers were configured for two hosts.
        scale(stage, "bounds", 3)?;
        let rejected = stage.wait_for_status("bounds", ConditionType::Accepted, "False").await?;
        let accepted = condition(&rejected, ConditionType::Accepted).context("no condition")?;
        assert_eq!(accepted.reason, "TooLarge");
        scale(stage, "bounds", 2)?;
        stage.wait_for_status("bounds", ConditionType::Accepted, "True").await?;
        assert_eq!(stage.pods("bounds").await?.len(), 2);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_horizontal_pod_autoscaler_sets_the_size() -> Result<()> {
    with_operator(async |stage| {
        stage.create("auto", json!({ "size": 1, "maxSize": 3, "interactive": true })).await?;
        stage.wait_for_status("auto", ConditionType::Ready, "True").await?;
        let scaler: HorizontalPodAutoscaler = serde_json::from_value(json!({
            "metadata": { "name": "auto" },
            "spec": {
                "scaleTargetRef": {
                    "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "name": "auto",
                },
                "minReplicas": 2, "maxReplicas": 3,
            },
        }))?;
        let scalers: Api<HorizontalPodAutoscaler> =
            Api::namespaced(stage.client.clone(), &stage.namespace);
        scalers.create(&PostParams::default(), &scaler).await?;
        wait_for_minicluster(stage, "auto", "2/2 are ready", |auto| ready(auto) == Some("2/2")).await?;
        let more = Patch::Merge(json!({ "spec": { "minReplicas": 3 } }));
        scalers.patch("auto", &PatchParams::default(), &more).await?;
        wait_for_minicluster(stage, "auto", "3/3 are ready", |auto| ready(auto) == Some("3/3")).await?;
        let pods = stage.pod_api();
        let selector = stage.miniclusters().get_scale("auto").await?;
        let selector = selector.status.and_then(|status| status.selector).context("no selector")?;
        let selected = pods.list(&kube::api::ListParams::default().labels(&selector)).await?;
        assert_eq!(selected.items.len(), 3, "{selector}");
        Ok(())
    })
    .await
}

/// `kubectl scale`.
fn scale(stage: &TestNamespace, name: &str, size: u32) -> Result<()> {
    let (resource, replicas) = (format!("minicluster/{name}"), format!("--replicas={size}"));
    let mut command = kubectl()?;
    command.args(["scale", "-n", &stage.namespace, &resource, &replicas]);
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Submits a job with exclusive nodes, one task on each.
async fn submit(stage: &TestNamespace, name: &str, nodes: &str) -> Result<String> {
    let line = format!("{FLUX} submit {nodes} --exclusive {WAIT_AND_PRINT_HOST}");
    Ok(stage.exec(name, 0, &line).await?.trim().to_owned())
}

/// The output of a job, once it has succeeded.
async fn attach(stage: &TestNamespace, name: &str, job: &str) -> Result<String> {
    stage.exec(name, 0, &format!("{FLUX} job attach {job}")).await
}

async fn wait_for_minicluster(
    stage: &TestNamespace,
    name: &str,
    what: &str,
    wanted: impl Fn(&MiniCluster) -> bool,
) -> Result<()> {
    let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut last = None;
    let found = first_match(watcher(stage.miniclusters(), one).applied_objects(), |minicluster| {
        let found = wanted(&minicluster).then_some(());
        last = minicluster.status;
        found
    });
    let outcome = found.await;
    outcome.with_context(|| format!("timed out waiting until {what}; it was {last:?}"))
}

fn ready(minicluster: &MiniCluster) -> Option<&str> {
    Some(&minicluster.status.as_ref()?.ready)
}

fn size(minicluster: &MiniCluster) -> Option<i32> {
    Some(minicluster.status.as_ref()?.size)
}

/// Whether it is ready for this reason, with this text in the message.
fn is_ready_because(minicluster: &MiniCluster, reason: &str, message: &str) -> bool {
    condition(minicluster, ConditionType::Ready).is_some_and(|ready| {
        ready.status == "True" && ready.reason == reason && ready.message.contains(message)
    })
}

async fn parallelism(stage: &TestNamespace, name: &str) -> Result<Option<i32>> {
    let jobs: Api<Job> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let job = jobs.get(name).await?;
    let spec = job.spec.with_context(|| format!("Job {name} has no spec"))?;
    ensure!(spec.parallelism == spec.completions);
    Ok(spec.parallelism)
}
