//! Queues with real pods: which jobs get quota, in which order, and that nothing is lost.

use anyhow::{Context, Result};
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_tests_e2e::queue::LONG;
use flux_operator_tests_e2e::{Stage, UNTIL_TOLD, on_empty_stage, on_stage};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

/// A queue with this many nodes.
async fn setup(stage: &Stage, name: &str, nodes: u32) -> Result<()> {
    stage.create_setup(name, json!({ "quota": { "nodes": nodes.to_string() } })).await?;
    Ok(())
}

#[tokio::test]
async fn q6_jobs_submitted_before_any_setup_are_kept_and_run_in_order() -> Result<()> {
    on_stage(async |stage| {
        stage.submit("first", "hostname", json!({})).await?;
        let waits = stage.job_is("first", "Waiting").await?;
        assert_eq!(waits.reason, "NoQueue");
        stage.submit("second", "hostname", json!({})).await?;
        setup(stage, "default", 1).await?;
        let first = stage.job_is("first", "Finished").await?;
        let second = stage.job_is("second", "Finished").await?;
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
async fn q40_of_three_jobs_for_room_of_two_the_third_waits_until_one_has_ended() -> Result<()> {
    on_stage(async |stage| {
        setup(stage, "default", 2).await?;
        for name in ["a", "b"] {
            stage.submit(name, LONG, json!({})).await?;
            stage.job_is(name, "Running").await?;
        }
        // Creation times have whole seconds, so the order within one second is undefined.
        stage.submit("c", LONG, json!({})).await?;
        let waits = stage.job_is("c", "Waiting").await?;
        assert_eq!((waits.reason.as_str(), waits.admission), ("WaitingForQuota", None));
        let full = stage.setup_becomes("default", |setup| {
            let status = setup.status.clone().unwrap_or_default();
            (status.pending_workloads, status.admitted_workloads, status.running_workloads)
                == (1, 2, 2)
        });
        assert_eq!(full.await?.status.unwrap_or_default().usage, "2/2 nodes");
        stage.delete_wholly::<FluxJob>("a").await?;
        stage.job_is("c", "Running").await?;
        let pods = stage.pods("c").await?;
        assert_eq!(pods.len(), 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q18_two_setups_have_room_of_their_own_and_a_job_must_say_which() -> Result<()> {
    on_stage(async |stage| {
        setup(stage, "large", 2).await?;
        setup(stage, "small", 1).await?;
        stage.submit("lost", "hostname", json!({})).await?;
        stage.submit("l", "hostname", json!({ "queue": "large", "size": 2 })).await?;
        stage.submit("s", "hostname", json!({ "queue": "small" })).await?;
        let lost = stage.job_becomes("lost", |status| status.reason == "AmbiguousQueue").await?;
        assert_eq!(lost.phase, "Waiting");
        let (large, small) =
            (stage.job_is("l", "Finished").await?, stage.job_is("s", "Finished").await?);
        assert_eq!(large.queue, format!("{}/large", stage.namespace));
        assert_eq!(small.queue, format!("{}/small", stage.namespace));
        stage.change::<FluxJob>("lost", json!({ "queue": "small" })).await?;
        stage.job_is("lost", "Finished").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_a_setup_that_takes_anothers_place_takes_its_jobs() -> Result<()> {
    on_stage(async |stage| {
        setup(stage, "old", 1).await?;
        stage.submit("runs", LONG, json!({ "queue": "old" })).await?;
        stage.job_is("runs", "Running").await?;
        stage.submit("waits", "hostname", json!({ "queue": "old" })).await?;
        let pod = stage.pod("runs", 0).await?.uid();
        let spec = json!({ "quota": { "nodes": "2" }, "replaces": ["old"] });
        stage.create_setup("new", spec).await?;
        let moved = stage.job_is("waits", "Finished").await?;
        assert_eq!(moved.queue, format!("{}/new", stage.namespace));
        stage.is_gone::<FluxSetup>("old").await?;
        let setup = stage.setup_becomes("new", |setup| {
            setup.status.as_ref().is_some_and(|status| status.admitted_workloads == 1)
        });
        setup.await.context("the running job was not taken over")?;
        assert_eq!(stage.pod("runs", 0).await?.uid(), pod, "it was restarted");
        // It counts there even after `replaces` was removed.
        let runs = stage.job_is("runs", "Running").await?;
        let queue = runs.admission.map(|admission| admission.queue);
        assert_eq!(queue, Some(format!("{}/new", stage.namespace)));
        let alone = json!({ "quota": { "nodes": "1" }, "replaces": null });
        stage.change::<FluxSetup>("new", alone).await?;
        // The watch of jobs may be ahead of that of setups.
        let is_seen = |setup: &FluxSetup| {
            let seen = setup.status.as_ref().and_then(|status| status.observed_generation);
            seen == setup.metadata.generation
        };
        stage.setup_becomes("new", is_seen).await?;
        stage.submit("next", "hostname", json!({})).await?;
        let next = stage.job_becomes("next", |status| status.reason == "WaitingForQuota").await?;
        assert_eq!(next.admission, None);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_a_minicluster_that_is_taken_over_names_its_new_queue() -> Result<()> {
    on_stage(async |stage| {
        setup(stage, "old", 1).await?;
        stage.create("mc", json!({ "queue": "old", "interactive": true })).await?;
        let queue = |mc: &MiniCluster| Some(mc.status.as_ref()?.admission.as_ref()?.queue.clone());
        let named = |name: &str| Some(format!("{}/{name}", stage.namespace));
        stage.becomes("mc", |mc| queue(mc) == named("old")).await?;
        let spec = json!({ "quota": { "nodes": "1" }, "replaces": ["old"] });
        stage.create_setup("new", spec).await?;
        stage.is_gone::<FluxSetup>("old").await?;
        stage.becomes("mc", |mc| queue(mc) == named("new")).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q29_an_operator_that_is_killed_loses_nothing_whatever_a_job_was_doing() -> Result<()> {
    on_empty_stage(async |stage| {
        // Requested: no operator has observed it yet.
        stage.submit("first", UNTIL_TOLD, json!({})).await?;
        stage.submit("second", "hostname", json!({})).await?;
        stage.start_operator().await?;
        // Waiting: no queue.
        stage.job_is("first", "Waiting").await?;
        restart(stage).await?;
        setup(stage, "default", 1).await?;
        // Admitted: before its MiniCluster is ready, and while it runs.
        let admitted = stage.job_becomes("first", |status| status.admission.is_some()).await?;
        restart(stage).await?;
        stage.job_is("first", "Running").await?;
        restart(stage).await?;
        stage.let_finish("first").await?;
        let finished = stage.job_is("first", "Finished").await?;
        assert_eq!(finished.admission, admitted.admission, "it was admitted twice");
        restart(stage).await?;
        assert_eq!(stage.job_is("second", "Finished").await?.exit_code, Some(0));
        restart(stage).await?;
        let empty = stage.setup_becomes("default", |setup| {
            let status = setup.status.clone().unwrap_or_default();
            (status.pending_workloads, status.admitted_workloads) == (0, 0)
        });
        empty.await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q13_clean_up_leaves_nothing() -> Result<()> {
    on_stage(async |stage| {
        setup(stage, "default", 2).await?;
        stage.submit("ends", "hostname", json!({})).await?;
        stage.submit("stays", LONG, json!({})).await?;
        stage.job_is("ends", "Finished").await?;
        stage.is_gone::<MiniCluster>("ends").await?;
        stage.job_is("stays", "Running").await?;
        stage.delete_wholly::<FluxJob>("stays").await?;
        stage.is_gone::<MiniCluster>("stays").await?;
        stage.delete_wholly::<FluxJob>("ends").await?;
        stage.delete_wholly::<FluxSetup>("default").await?;
        for name in ["ends", "stays"] {
            stage.is_gone::<Job>(name).await?;
            stage.wait_for_no_pods(name).await?;
            stage.is_gone::<Secret>(&format!("{name}-flux")).await?;
            stage.is_gone::<ConfigMap>(&format!("{name}-entrypoint")).await?;
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
async fn restart(stage: &mut Stage) -> Result<()> {
    stage.stop_operator();
    stage.start_operator().await
}
