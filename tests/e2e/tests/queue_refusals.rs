//! A queue reports what it cannot do on the object, and continues with the rest.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_tests_e2e::queue::LONG_COMMAND;
use flux_operator_tests_e2e::{WAIT_FOR_FILE, with_operator};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

fn active(setup: &FluxSetup) -> Option<&Condition> {
    setup.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == "Active")
}

#[tokio::test]
async fn q7_an_unknown_queue_or_an_exceeded_quota_is_reported_at_once() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({ "quota": { "nodes": "2" }, "maxSize": 4 });
        stage.create_setup("default", spec).await?;
        stage.submit("lost", "hostname", json!({ "queue": "nowhere" })).await?;
        stage.submit("beyond", "hostname", json!({ "size": 3 })).await?;
        stage.submit("huge", "hostname", json!({ "size": 5 })).await?;
        for (name, reason) in
            [("lost", "UnknownQueue"), ("beyond", "ExceedsMaxQuota"), ("huge", "TooLarge")]
        {
            let status = stage.wait_for_job(name, |status| status.reason == reason).await?;
            assert_eq!(status.phase, "Waiting");
            stage.wait_for_event(reason).await.with_context(|| format!("no Event {reason}"))?;
        }
        stage.submit("good", "hostname", json!({ "size": 2 })).await?;
        assert_eq!(stage.wait_for_job_phase("good", "Finished").await?.exit_code, Some(0));
        // With a higher quota it runs.
        stage.patch_spec::<FluxSetup>("default", json!({ "quota": { "nodes": "3" } })).await?;
        stage.wait_for_job_phase("beyond", "Finished").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_only_one_of_two_setups_that_replace_the_same_one_wins() -> Result<()> {
    with_operator(async |stage| {
        let quota = json!({ "nodes": "1" });
        stage.create_setup("old", json!({ "quota": quota })).await?;
        stage.submit("keeps", LONG_COMMAND, json!({ "queue": "old" })).await?;
        stage.wait_for_job_phase("keeps", "Running").await?;
        let spec = json!({ "quota": quota, "replaces": ["old"] });
        stage.create_setup("one", spec.clone()).await?;
        stage.create_setup("two", spec).await?;
        stage.wait_until_deleted::<FluxSetup>("old").await?;
        let has_condition = |it: &FluxSetup| active(it).is_some_and(|it| it.status != "Unknown");
        let mut reasons = Vec::new();
        for name in ["one", "two"] {
            let setup = stage.wait_for_setup(name, has_condition).await?;
            reasons.extend(active(&setup).map(|condition| condition.reason.clone()));
        }
        reasons.sort();
        assert_eq!(reasons, ["Active", "Conflict"]);
        stage.wait_for_job_phase("keeps", "Running").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_two_idle_setups_that_replace_each_other_are_kept_and_report_it() -> Result<()> {
    with_operator(async |stage| {
        let spec = |replaces: &str| json!({ "quota": { "nodes": "1" }, "replaces": [replaces] });
        let one = stage.create_setup("one", spec("two")).await?;
        let two = stage.create_setup("two", spec("one")).await?;
        for (created, other) in [(&one, "two"), (&two, "one")] {
            let in_conflict = |it: &FluxSetup| active(it).is_some_and(|it| it.reason == "Conflict");
            let setup = stage.wait_for_setup(&created.name_any(), in_conflict).await?;
            assert_eq!(setup.uid(), created.uid(), "it was deleted");
            assert_eq!(setup.metadata.deletion_timestamp, None);
            let reported =
                active(&setup).map(|reported| reported.message.clone()).unwrap_or_default();
            assert!(reported.contains("circular") && reported.contains(other), "{reported}");
        }
        stage.submit("waits", "hostname", json!({ "queue": "two" })).await?;
        stage.wait_for_job("waits", |status| status.reason == "Conflict").await?;
        // Removing one of the names resolves it.
        stage.patch_spec::<FluxSetup>("two", json!({ "replaces": [] })).await?;
        let moved = stage.wait_for_job_phase("waits", "Finished").await?;
        assert_eq!(moved.queue, format!("{}/one", stage.namespace));
        stage.wait_until_deleted::<FluxSetup>("two").await?;
        assert_eq!(stage.setups().get("one").await?.uid(), one.uid());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_a_quota_below_its_usage_lets_jobs_finish_and_admits_none() -> Result<()> {
    with_operator(async |stage| {
        stage.create_setup("default", json!({ "quota": { "nodes": "2" } })).await?;
        for name in ["a", "b"] {
            stage.submit(name, LONG_COMMAND, json!({})).await?;
            stage.wait_for_job_phase(name, "Running").await?;
        }
        stage.patch_spec::<FluxSetup>("default", json!({ "quota": { "nodes": "1" } })).await?;
        stage.submit("c", "hostname", json!({})).await?;
        let waits = stage.wait_for_job_phase("c", "Waiting").await?;
        assert_eq!(waits.reason, "WaitingForQuota");
        stage
            .wait_for_setup("default", |setup| {
                setup.status.as_ref().is_some_and(|status| status.usage == "2/1 nodes")
            })
            .await?;
        stage.delete_and_wait::<FluxJob>("a").await?;
        stage
            .wait_for_setup("default", |setup| {
                setup.status.as_ref().is_some_and(|status| status.usage == "1/1 nodes")
            })
            .await?;
        let waits = stage.fluxjobs().get("c").await?.status.unwrap_or_default();
        assert_eq!(waits.admission, None, "it was admitted beyond the quota");
        stage.delete_and_wait::<FluxJob>("b").await?;
        stage.wait_for_job_phase("c", "Finished").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q16_a_drained_queue_evicts_its_jobs_and_admits_them_again() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({ "quota": { "nodes": "1" }, "requeue": { "baseSeconds": 0 } });
        stage.create_setup("default", spec).await?;
        stage.submit("a", LONG_COMMAND, json!({})).await?;
        stage.wait_for_job_phase("a", "Running").await?;
        let before = stage.miniclusters().get("a").await?.uid();
        stage.patch_spec::<FluxSetup>("default", json!({ "stopPolicy": "HoldAndDrain" })).await?;
        stage.wait_for_job("a", |status| status.admission.is_none()).await?;
        stage.wait_until_deleted::<MiniCluster>("a").await?;
        stage.patch_spec::<FluxSetup>("default", json!({ "stopPolicy": "None" })).await?;
        stage.wait_for_job_phase("a", "Running").await?;
        assert_ne!(stage.miniclusters().get("a").await?.uid(), before);
        // A suspended job releases its quota to others.
        stage.submit("b", "hostname", json!({})).await?;
        stage.patch_spec::<FluxJob>("a", json!({ "suspend": true })).await?;
        stage.wait_for_job_phase("b", "Finished").await?;
        stage.wait_for_job_phase("a", "Suspended").await?;
        stage.patch_spec::<FluxJob>("a", json!({ "suspend": false })).await?;
        stage.wait_for_job_phase("a", "Running").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_a_setup_is_deleted_after_its_last_job_and_waiting_jobs_are_kept() -> Result<()> {
    with_operator(async |stage| {
        stage.create_setup("default", json!({ "quota": { "nodes": "1" } })).await?;
        stage.submit("a", WAIT_FOR_FILE, json!({})).await?;
        stage.wait_for_job_phase("a", "Running").await?;
        stage.submit("b", "hostname", json!({})).await?;
        stage.setups().delete("default", &DeleteParams::default()).await?;
        stage.let_finish("a").await?;
        stage.wait_until_deleted::<FluxSetup>("default").await?;
        let deleted = Timestamp::now();
        // Quota is released when a cluster has finished; the status of its job is written after
        // that.
        let finished = stage.wait_for_job_phase("a", "Finished").await?;
        assert!(
            finished.finish_time.as_ref().is_some_and(|end| end.0 <= deleted),
            "the setup was deleted at {deleted}, before its job finished: {finished:?}"
        );
        let waits = stage.wait_for_job("b", |status| status.reason == "NoQueue").await?;
        assert_eq!(waits.phase, "Waiting");
        stage.create_setup("another", json!({ "quota": { "nodes": "1" } })).await?;
        stage.wait_for_job_phase("b", "Finished").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_minicluster_that_names_a_queue_waits_for_quota_like_jobs() -> Result<()> {
    with_operator(async |stage| {
        stage.create_setup("default", json!({ "quota": { "nodes": "1" } })).await?;
        stage.submit("a", LONG_COMMAND, json!({})).await?;
        stage.wait_for_job_phase("a", "Running").await?;
        let spec = json!({ "queue": "default", "containers": [{ "command": "hostname" }] });
        stage.create("mc", spec).await?;
        stage.wait_for_reason("mc", ConditionType::Admitted, "WaitingForQueue").await?;
        assert_eq!(stage.pods("mc").await?.len(), 0);
        stage.submit("b", "hostname", json!({})).await?;
        stage.delete_and_wait::<FluxJob>("a").await?;
        let finished = stage.wait_until_finished("mc").await?;
        let status = finished.status.context("no status")?;
        assert_eq!(status.exit_code, Some(0));
        assert_eq!(status.admission.context("no record")?.size, 1);
        stage.wait_for_job_phase("b", "Finished").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q16_a_minicluster_is_evicted_when_its_queue_is_drained_and_started_again() -> Result<()> {
    with_operator(async |stage| {
        stage.create_setup("default", json!({ "quota": { "nodes": "1" } })).await?;
        stage.create("mc", json!({ "queue": "default", "interactive": true })).await?;
        stage.wait_for_status("mc", ConditionType::Ready, "True").await?;
        stage.patch_spec::<FluxSetup>("default", json!({ "stopPolicy": "HoldAndDrain" })).await?;
        let stopped = |mc: &MiniCluster| {
            mc.status.as_ref().is_some_and(|status| status.admission.is_none() && status.size == 0)
        };
        stage.wait_for_object("mc", stopped).await?;
        stage.wait_for_no_pods("mc").await?;
        stage.patch_spec::<FluxSetup>("default", json!({ "stopPolicy": "None" })).await?;
        let back = stage.wait_for_status("mc", ConditionType::Ready, "True").await?;
        assert!(back.status.is_some_and(|status| status.admission.is_some()));
        Ok(())
    })
    .await
}
