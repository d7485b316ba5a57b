//! A queue reports what it cannot do on the object, and continues with the rest.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_tests_e2e::queue::LONG;
use flux_operator_tests_e2e::{UNTIL_TOLD, on_stage};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

fn active(setup: &FluxSetup) -> Option<&Condition> {
    setup.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == "Active")
}

#[tokio::test]
async fn q7_a_job_for_an_unknown_queue_or_beyond_any_quota_waits_and_says_so_at_once() -> Result<()>
{
    on_stage(async |stage| {
        let spec = json!({ "quota": { "nodes": "2" }, "maxSize": 4 });
        stage.create_setup("default", spec).await?;
        stage.submit("lost", "hostname", json!({ "queue": "nowhere" })).await?;
        stage.submit("beyond", "hostname", json!({ "size": 3 })).await?;
        stage.submit("huge", "hostname", json!({ "size": 5 })).await?;
        for (name, reason) in
            [("lost", "UnknownQueue"), ("beyond", "ExceedsMaxQuota"), ("huge", "TooLarge")]
        {
            let told = stage.job_becomes(name, |status| status.reason == reason).await?;
            assert_eq!(told.phase, "Waiting");
            stage.wait_for_event(reason).await.with_context(|| format!("no Event {reason}"))?;
        }
        stage.submit("good", "hostname", json!({ "size": 2 })).await?;
        assert_eq!(stage.job_is("good", "Finished").await?.exit_code, Some(0));
        // With a higher quota it runs.
        stage.change::<FluxSetup>("default", json!({ "quota": { "nodes": "3" } })).await?;
        stage.job_is("beyond", "Finished").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_of_two_setups_that_replace_the_same_one_only_one_wins() -> Result<()> {
    on_stage(async |stage| {
        let quota = json!({ "nodes": "1" });
        stage.create_setup("old", json!({ "quota": quota })).await?;
        stage.submit("keeps", LONG, json!({ "queue": "old" })).await?;
        stage.job_is("keeps", "Running").await?;
        let spec = json!({ "quota": quota, "replaces": ["old"] });
        stage.create_setup("one", spec.clone()).await?;
        stage.create_setup("two", spec).await?;
        stage.is_gone::<FluxSetup>("old").await?;
        let told = |it: &FluxSetup| active(it).is_some_and(|it| it.status != "Unknown");
        let mut reasons = Vec::new();
        for name in ["one", "two"] {
            let setup = stage.setup_becomes(name, told).await?;
            reasons.extend(active(&setup).map(|condition| condition.reason.clone()));
        }
        reasons.sort();
        assert_eq!(reasons, ["Active", "Conflict"]);
        stage.job_is("keeps", "Running").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_two_idle_setups_that_replace_each_other_stay_and_say_so() -> Result<()> {
    on_stage(async |stage| {
        let spec = |replaces: &str| json!({ "quota": { "nodes": "1" }, "replaces": [replaces] });
        let one = stage.create_setup("one", spec("two")).await?;
        let two = stage.create_setup("two", spec("one")).await?;
        for (created, other) in [(&one, "two"), (&two, "one")] {
            let in_conflict = |it: &FluxSetup| active(it).is_some_and(|it| it.reason == "Conflict");
            let setup = stage.setup_becomes(&created.name_any(), in_conflict).await?;
            assert_eq!(setup.uid(), created.uid(), "it was deleted");
            assert_eq!(setup.metadata.deletion_timestamp, None);
            let told = active(&setup).map(|told| told.message.clone()).unwrap_or_default();
            assert!(told.contains("circular") && told.contains(other), "{told}");
        }
        stage.submit("waits", "hostname", json!({ "queue": "two" })).await?;
        stage.job_becomes("waits", |status| status.reason == "Conflict").await?;
        // Removing one of the names resolves it.
        stage.change::<FluxSetup>("two", json!({ "replaces": [] })).await?;
        let moved = stage.job_is("waits", "Finished").await?;
        assert_eq!(moved.queue, format!("{}/one", stage.namespace));
        stage.is_gone::<FluxSetup>("two").await?;
        assert_eq!(stage.setups().get("one").await?.uid(), one.uid());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_a_quota_below_what_is_used_lets_jobs_end_and_admits_nobody() -> Result<()> {
    on_stage(async |stage| {
        stage.create_setup("default", json!({ "quota": { "nodes": "2" } })).await?;
        for name in ["a", "b"] {
            stage.submit(name, LONG, json!({})).await?;
            stage.job_is(name, "Running").await?;
        }
        stage.change::<FluxSetup>("default", json!({ "quota": { "nodes": "1" } })).await?;
        stage.submit("c", "hostname", json!({})).await?;
        let waits = stage.job_is("c", "Waiting").await?;
        assert_eq!(waits.reason, "WaitingForQuota");
        stage
            .setup_becomes("default", |setup| {
                setup.status.as_ref().is_some_and(|status| status.usage == "2/1 nodes")
            })
            .await?;
        stage.delete_wholly::<FluxJob>("a").await?;
        stage
            .setup_becomes("default", |setup| {
                setup.status.as_ref().is_some_and(|status| status.usage == "1/1 nodes")
            })
            .await?;
        let waits = stage.fluxjobs().get("c").await?.status.unwrap_or_default();
        assert_eq!(waits.admission, None, "it was admitted beyond the quota");
        stage.delete_wholly::<FluxJob>("b").await?;
        stage.job_is("c", "Finished").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q16_a_queue_that_is_drained_takes_its_room_back_and_gives_it_again() -> Result<()> {
    on_stage(async |stage| {
        let spec = json!({ "quota": { "nodes": "1" }, "requeue": { "baseSeconds": 0 } });
        stage.create_setup("default", spec).await?;
        stage.submit("a", LONG, json!({})).await?;
        stage.job_is("a", "Running").await?;
        let before = stage.miniclusters().get("a").await?.uid();
        stage.change::<FluxSetup>("default", json!({ "stopPolicy": "HoldAndDrain" })).await?;
        stage.job_becomes("a", |status| status.admission.is_none()).await?;
        stage.is_gone::<MiniCluster>("a").await?;
        stage.change::<FluxSetup>("default", json!({ "stopPolicy": "None" })).await?;
        stage.job_is("a", "Running").await?;
        assert_ne!(stage.miniclusters().get("a").await?.uid(), before);
        // A suspended job releases its quota to others.
        stage.submit("b", "hostname", json!({})).await?;
        stage.change::<FluxJob>("a", json!({ "suspend": true })).await?;
        stage.job_is("b", "Finished").await?;
        stage.job_is("a", "Suspended").await?;
        stage.change::<FluxJob>("a", json!({ "suspend": false })).await?;
        stage.job_is("a", "Running").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q19_a_setup_goes_when_its_last_job_has_ended_and_those_that_wait_stay() -> Result<()> {
    on_stage(async |stage| {
        stage.create_setup("default", json!({ "quota": { "nodes": "1" } })).await?;
        stage.submit("a", UNTIL_TOLD, json!({})).await?;
        stage.job_is("a", "Running").await?;
        stage.submit("b", "hostname", json!({})).await?;
        stage.setups().delete("default", &DeleteParams::default()).await?;
        stage.let_finish("a").await?;
        stage.is_gone::<FluxSetup>("default").await?;
        let gone = Timestamp::now();
        // Quota is released when a cluster has finished; the status of its job is written after
        // that.
        let ended = stage.job_is("a", "Finished").await?;
        assert!(
            ended.finish_time.as_ref().is_some_and(|end| end.0 <= gone),
            "the setup was deleted at {gone}, before its job finished: {ended:?}"
        );
        let waits = stage.job_becomes("b", |status| status.reason == "NoQueue").await?;
        assert_eq!(waits.phase, "Waiting");
        stage.create_setup("another", json!({ "quota": { "nodes": "1" } })).await?;
        stage.job_is("b", "Finished").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_minicluster_that_names_a_queue_waits_for_room_beside_jobs() -> Result<()> {
    on_stage(async |stage| {
        stage.create_setup("default", json!({ "quota": { "nodes": "1" } })).await?;
        stage.submit("a", LONG, json!({})).await?;
        stage.job_is("a", "Running").await?;
        let spec = json!({ "queue": "default", "containers": [{ "command": "hostname" }] });
        stage.create("mc", spec).await?;
        stage.wait_for_reason("mc", ConditionType::Admitted, "WaitingForQueue").await?;
        assert_eq!(stage.pods("mc").await?.len(), 0);
        stage.submit("b", "hostname", json!({})).await?;
        stage.delete_wholly::<FluxJob>("a").await?;
        let ended = stage.wait_for_end("mc").await?;
        let status = ended.status.context("no status")?;
        assert_eq!(status.exit_code, Some(0));
        assert_eq!(status.admission.context("no record")?.size, 1);
        stage.job_is("b", "Finished").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q16_a_minicluster_whose_queue_is_drained_stops_and_starts_again() -> Result<()> {
    on_stage(async |stage| {
        stage.create_setup("default", json!({ "quota": { "nodes": "1" } })).await?;
        stage.create("mc", json!({ "queue": "default", "interactive": true })).await?;
        stage.wait("mc", ConditionType::Ready, "True").await?;
        stage.change::<FluxSetup>("default", json!({ "stopPolicy": "HoldAndDrain" })).await?;
        let stopped = |mc: &MiniCluster| {
            mc.status.as_ref().is_some_and(|status| status.admission.is_none() && status.size == 0)
        };
        stage.becomes("mc", stopped).await?;
        stage.wait_for_no_pods("mc").await?;
        stage.change::<FluxSetup>("default", json!({ "stopPolicy": "None" })).await?;
        let back = stage.wait("mc", ConditionType::Ready, "True").await?;
        assert!(back.status.is_some_and(|status| status.admission.is_some()));
        Ok(())
    })
    .await
}
