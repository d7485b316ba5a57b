//! Queues with real pods: which jobs get quota, in which order, and that nothing is lost.

use anyhow::{Context, Result};
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_tests_e2e::queue::LONG_COMMAND;
use flux_operator_tests_e2e::{TestNamespace, WAIT_FOR_FILE, with_operator, without_operator};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

/// A queue with this many nodes.
async fn setup(stage: &TestNamespace, name: &str, nodes: u32) -> Result<()> {
    stage.create_setup(name, json!({ "quota": { "nodes": nodes.to_string() } })).await?;
    Ok(())
}

#[tokio::test]
async fn q6_jobs_submitted_before_any_setup_are_kept_and_run_in_order() -> Result<()> {
    with_operator(async |stage| {
        stage.submit("first", "hostname", json!({})).await?;
        let waits = stage.wait_for_job_phase("first", "Waiting").await?;
        assert_eq!(waits.reason, "NoQueue");
        stage.submit("second", "hostname", json!({})).await?;
        setup(stage, "default", 1).await?;
        let first = stage.wait_for_job_phase("first", "Finished").await?;
        let second = stage.wait_for_job_phase("second", "Finished").await?;
        assert_eq!((first.exit_code, second.exit_code), (Some(0), Some(0)));
        let admitted = |status: flux_operator_api::FluxJobStatus| {
            status.admission.and_then(|admission| admission.time)
        };
        let (one, two) = (admitted(first).context("none")?, admitted(second).context("none")?);
        assert!(one.0 <= two.0, "the second was admitted first");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q40_with_quota_for_two_the_third_of_three_jobs_waits_until_one_is_deleted() -> Result<()> {
    with_operator(async |stage| {
        setup(stage, "default", 2).await?;
        for name in ["a", "b"] {
            stage.submit(name, LONG_COMMAND, json!({})).await?;
            stage.wait_for_job_phase(name, "Running").await?;
        }
        // Creation times have whole seconds, so the order within one second is undefined.
        stage.submit("c", LONG_COMMAND, json!({})).await?;
        let waits = stage.wait_for_job_phase("c", "Waiting").await?;
        assert_eq!((waits.reason.as_str(), waits.admission), ("WaitingForQuota", None));
        let full = stage.wait_for_setup("default", |setup| {
            let status = setup.status.clone().unwrap_or_default();
            (status.pending_workloads, status.admitted_workloads, status.running_workloads)
                == (1, 2, 2)
        });
        assert_eq!(full.await?.status.unwrap_or_default().usage, "2/2 nodes");
        stage.delete_and_wait::<FluxJob>("a").await?;
        stage.wait_for_job_phase("c", "Running").await?;
        let pods = stage.pods("c").await?;
        assert_eq!(pods.len(), 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q18_two_setups_have_separate_quotas_and_a_job_must_name_one() -> Result<()> {
    with_operator(async |stage| {
        setup(stage, "large", 2).await?;
        setup(stage, "small", 1).await?;
        stage.submit("lost", "hostname", json!({})).await?;
        stage.submit("l", "hostname", json!({ "queue": "large", "size": 2 })).await?;
        stage.submit("s", "hostname", json!({ "queue": "small" })).await?;
        let lost = stage.wait_for_job("lost", |status| status.reason == "AmbiguousQueue").await?;
        assert_eq!(lost.phase, "Waiting");
        let (large, small) = (
            stage.wait_for_job_phase("l", "Finished").await?,
            stage.wait_for_job_phase("s", "Finished").await?,
        );
        assert_eq!(large.queue, format!("{}/large", stage.namespace));
        assert_eq!(small.queue, format!("{}/small", stage.namespace));
        stage.patch_spec::<FluxJob>("lost", json!({ "queue": "small" })).await?;
        stage.wait_for_job_phase("lost", "Finished").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_a_setup_that_replaces_another_takes_over_its_jobs() -> Result<()> {
    with_operator(async |stage| {
        setup(stage, "old", 1).await?;
        stage.submit("runs", LONG_COMMAND, json!({ "queue": "old" })).await?;
        stage.wait_for_job_phase("runs", "Running").await?;
        stage.submit("waits", "hostname", json!({ "queue": "old" })).await?;
        let pod = stage.pod("runs", 0).await?.uid();
        let spec = json!({ "quota": { "nodes": "2" }, "replaces": ["old"] });
        stage.create_setup("new", spec).await?;
        let moved = stage.wait_for_job_phase("waits", "Finished").await?;
        assert_eq!(moved.queue, format!("{}/new", stage.namespace));
        stage.wait_until_deleted::<FluxSetup>("old").await?;
        let setup = stage.wait_for_setup("new", |setup| {
            setup.status.as_ref().is_some_and(|status| status.admitted_workloads == 1)
        });
        setup.await.context("the running job was not taken over")?;
        assert_eq!(stage.pod("runs", 0).await?.uid(), pod, "it was restarted");
        // It counts there even after `replaces` was removed.
        let runs = stage.wait_for_job_phase("runs", "Running").await?;
        let queue = runs.admission.map(|admission| admission.queue);
        assert_eq!(queue, Some(format!("{}/new", stage.namespace)));
        let alone = json!({ "quota": { "nodes": "1" }, "replaces": null });
        stage.patch_spec::<FluxSetup>("new", alone).await?;
        // The watch of jobs may be ahead of that of setups.
        let is_observed = |setup: &FluxSetup| {
            let observed = setup.status.as_ref().and_then(|status| status.observed_generation);
            observed == setup.metadata.generation
        };
        stage.wait_for_setup("new", is_observed).await?;
        stage.submit("next", "hostname", json!({})).await?;
        let next = stage.wait_for_job("next", |status| status.reason == "WaitingForQuota").await?;
        assert_eq!(next.admission, None);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_the_record_of_a_minicluster_taken_over_names_the_new_queue() -> Result<()> {
    with_operator(async |stage| {
        setup(stage, "old", 1).await?;
        stage.create("mc", json!({ "queue": "old", "interactive": true })).await?;
        let queue = |mc: &MiniCluster| Some(mc.status.as_ref()?.admission.as_ref()?.queue.clone());
        let named = |name: &str| Some(format!("{}/{name}", stage.namespace));
        stage.wait_for_object("mc", |mc| queue(mc) == named("old")).await?;
        let spec = json!({ "quota": { "nodes": "1" }, "replaces": ["old"] });
        stage.create_setup("new", spec).await?;
        stage.wait_until_deleted::<FluxSetup>("old").await?;
        stage.wait_for_object("mc", |mc| queue(mc) == named("new")).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q29_a_killed_operator_loses_nothing_in_any_phase_of_a_job() -> Result<()> {
    without_operator(async |stage| {
        // Requested: no operator has observed it yet.
        stage.submit("first", WAIT_FOR_FILE, json!({})).await?;
        stage.submit("second", "hostname", json!({})).await?;
        stage.start_operator().await?;
        // Waiting: no queue.
        stage.wait_for_job_phase("first", "Waiting").await?;
        restart(stage).await?;
        setup(stage, "default", 1).await?;
        // Admitted: before its MiniCluster is ready, and while it runs.
        let admitted = stage.wait_for_job("first", |status| status.admission.is_some()).await?;
        restart(stage).await?;
        stage.wait_for_job_phase("first", "Running").await?;
        restart(stage).await?;
        stage.let_finish("first").await?;
        let finished = stage.wait_for_job_phase("first", "Finished").await?;
        assert_eq!(finished.admission, admitted.admission, "it was admitted twice");
        restart(stage).await?;
        assert_eq!(stage.wait_for_job_phase("second", "Finished").await?.exit_code, Some(0));
        restart(stage).await?;
        let empty = stage.wait_for_setup("default", |setup| {
            let status = setup.status.clone().unwrap_or_default();
            (status.pending_workloads, status.admitted_workloads) == (0, 0)
        });
        empty.await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q13_cleanup_leaves_nothing_behind() -> Result<()> {
    with_operator(async |stage| {
        setup(stage, "default", 2).await?;
        stage.submit("ends", "hostname", json!({})).await?;
        stage.submit("stays", LONG_COMMAND, json!({})).await?;
        stage.wait_for_job_phase("ends", "Finished").await?;
        stage.wait_until_deleted::<MiniCluster>("ends").await?;
        stage.wait_for_job_phase("stays", "Running").await?;
        stage.delete_and_wait::<FluxJob>("stays").await?;
        stage.wait_until_deleted::<MiniCluster>("stays").await?;
        stage.delete_and_wait::<FluxJob>("ends").await?;
        stage.delete_and_wait::<FluxSetup>("default").await?;
        for name in ["ends", "stays"] {
            stage.wait_until_deleted::<Job>(name).await?;
            stage.wait_for_no_pods(name).await?;
            stage.wait_for_no_secrets(name).await?;
            stage.wait_until_deleted::<ConfigMap>(&format!("{name}-entrypoint")).await?;
        }
        let all = ListParams::default();
        let services = stage.api::<Service>().list(&all).await?.items;
        assert_eq!(services.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [""; 0]);
        assert_eq!(stage.api::<Pod>().list(&all).await?.items.len(), 0);
        Ok(())
    })
    .await
}

/// Kills the operator and starts another.
async fn restart(stage: &mut TestNamespace) -> Result<()> {
    stage.stop_operator();
    stage.start_operator().await
}
