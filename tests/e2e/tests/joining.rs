//! A joiner's life beside its lender: sizes, suspension, jobs on its ranks, and why it waits.

use anyhow::{Context, Result};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use serde_json::{Value, json};

const FLUX: &str = ". /mnt/flux/flux-view.sh && flux proxy $fluxsocket flux";

fn lender(spare: i32) -> Value {
    json!({ "interactive": true, "flux": { "bursting": { "spareRanks": spare } } })
}

fn joiner(size: i32) -> Value {
    json!({ "size": size, "flux": { "join": { "name": "lender" } } })
}

/// Waits until the lender's leases are these, as `ranks state`.
async fn wait_for_leases(stage: &TestNamespace, expected: &[&str]) -> Result<MiniCluster> {
    let found = stage.wait_for_object("lender", |it: &MiniCluster| {
        let leases = it.status.iter().flat_map(|status| &status.leases);
        leases.map(|it| format!("{} {:?}", it.ranks, it.state)).eq(expected.iter().copied())
    });
    found.await.with_context(|| format!("the leases were never {expected:?}"))
}

/// Resized there and back, with the operator restarted meanwhile.
#[tokio::test]
async fn leases_follow_the_size_and_the_suspension_of_a_joiner() -> Result<()> {
    with_operator(async |stage| {
        stage.create("lender", lender(3)).await?;
        stage.create("joiner", joiner(1)).await?;
        wait_for_leases(stage, &["1 Active"]).await?;
        for _ in 0..2 {
            stage.patch("joiner", json!({ "size": 3 })).await?;
            wait_for_leases(stage, &["1-3 Active"]).await?;
            stage.wait_for_object("joiner", shows("Joined", "3/3")).await?;
            stage.stop_operator();
            stage.patch("joiner", json!({ "size": 1 })).await?;
            stage.start_operator().await?;
            wait_for_leases(stage, &["1 Active"]).await?;
            stage.wait_for_object("joiner", shows("Joined", "1/1")).await?;
        }
        let hosts = stage.exec("joiner", 0, &format!("{FLUX} run -N2 hostname")).await?;
        assert_eq!(hosts.lines().count(), 2, "{hosts}");
        stage.patch("joiner", json!({ "suspend": true })).await?;
        wait_for_leases(stage, &[]).await?;
        stage.wait_for_no_pods("joiner").await?;
        stage.patch("joiner", json!({ "suspend": false })).await?;
        wait_for_leases(stage, &["1 Active"]).await?;
        stage.wait_for_object("joiner", shows("Joined", "1/1")).await?;
        Ok(())
    })
    .await
}

fn shows(phase: &'static str, ready: &'static str) -> impl Fn(&MiniCluster) -> bool {
    move |it| it.status.as_ref().is_some_and(|it| it.phase == phase && it.ready == ready)
}

/// It is admitted first, and leases ranks second.
#[tokio::test]
async fn a_joiner_in_a_queue_leases_ranks_once_it_is_admitted() -> Result<()> {
    with_operator(async |stage| {
        stage.create_setup("queue", json!({ "quota": { "nodes": "1" } })).await?;
        stage.create("lender", lender(2)).await?;
        let queued = |size: i32| {
            let mut spec = joiner(size);
            spec["queue"] = json!("queue");
            spec
        };
        stage.create("first", queued(1)).await?;
        stage.wait_for_reason("first", ConditionType::Joined, "Joined").await?;
        stage.create("second", queued(1)).await?;
        stage.wait_for_reason("second", ConditionType::Joined, "WaitingForQueue").await?;
        wait_for_leases(stage, &["1 Active"]).await?;
        stage.delete_and_wait::<MiniCluster>("first").await?;
        stage.wait_for_reason("second", ConditionType::Joined, "Joined").await?;
        Ok(())
    })
    .await
}

/// B33: it drains its ranks, and waits for their jobs.
#[tokio::test]
async fn b33_a_joiner_that_is_deleted_waits_for_its_jobs() -> Result<()> {
    with_operator(async |stage| {
        stage.create("lender", lender(1)).await?;
        stage.create("joiner", joiner(1)).await?;
        stage.wait_for_reason("joiner", ConditionType::Joined, "Joined").await?;
        let job = stage.exec("lender", 0, &format!("{FLUX} submit -N2 sleep 3600")).await?;
        let running = format!("{FLUX} job wait-event -t 60 {} start", job.trim());
        stage.exec("lender", 0, &running).await?;
        stage.delete("joiner").await?;
        let leaving = |it: &MiniCluster| {
            let conditions = it.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|it| {
                it.type_ == "Joined" && it.reason == "Leaving" && it.message.contains("jobs on 1")
            })
        };
        stage.wait_for_object("joiner", leaving).await?;
        assert_eq!(stage.pods("joiner").await?.len(), 1);
        stage.exec("lender", 0, &format!("{FLUX} cancel {}", job.trim())).await?;
        stage.wait_until_deleted::<MiniCluster>("joiner").await?;
        wait_for_leases(stage, &[]).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn two_joiners_for_the_last_rank_one_gets_it() -> Result<()> {
    with_operator(async |stage| {
        stage.create("lender", lender(1)).await?;
        for name in ["one", "two"] {
            stage.create(name, joiner(1)).await?;
        }
        let has_joined =
            |it: &MiniCluster| it.status.as_ref().is_some_and(|status| status.joined == 1);
        let lender = stage.wait_for_object("lender", has_joined).await?;
        let leases = lender.status.context("no status")?.leases;
        let [lease] = leases.as_slice() else { anyhow::bail!("{leases:?}") };
        let other = if lease.name == "one" { "two" } else { "one" };
        let waits = stage.wait_for_reason(other, ConditionType::Joined, "NoFreeRanks").await?;
        assert!(waits.message.contains("1 missing"), "{}", waits.message);
        assert!(stage.pods(other).await?.is_empty());
        stage.delete(&lease.name).await?;
        stage.wait_for_reason(other, ConditionType::Joined, "Joined").await?;
        Ok(())
    })
    .await
}

/// B14: what does not fit is noticed before a broker starts, and the instance is not disturbed.
#[tokio::test]
async fn b14_a_joiner_that_does_not_fit_is_told_why() -> Result<()> {
    with_operator(async |stage| {
        let bursting = json!({ "spareRanks": 2, "clusters": [{ "name": "large", "cores": 512 }] });
        let spec = json!({ "interactive": true, "flux": { "bursting": bursting } });
        stage.create("lender", spec).await?;
        let restricted =
            json!({ "podSecurity": "restricted", "flux": { "join": { "name": "lender" } } });
        stage.create("other-user", restricted).await?;
        stage.create("large", joiner(1)).await?;
        let user =
            stage.wait_for_reason("other-user", ConditionType::Joined, "UidMismatch").await?;
        assert!(user.message.contains("user 1000") && user.message.contains("user 0"), "{user:?}");
        let cores = stage.wait_for_reason("large", ConditionType::Joined, "FewerCores").await?;
        assert!(cores.message.contains("expects 512"), "{cores:?}");
        stage.wait_for_event("FewerCores").await?;
        let lender = stage.miniclusters().get("lender").await?.status.context("no status")?;
        assert_eq!((lender.joined, lender.online.as_str()), (0, "0"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_chain_of_joiners_is_refused() -> Result<()> {
    with_operator(async |stage| {
        let joins = |name: &str| json!({ "flux": { "join": { "name": name } } });
        stage.create("one", joins("two")).await?;
        stage.create("two", joins("one")).await?;
        for (name, other) in [("one", "two"), ("two", "one")] {
            let reason = "LenderIsJoiner";
            let refused = stage.wait_for_reason(name, ConditionType::Joined, reason).await?;
            assert!(refused.message.contains(&format!("{other:?}")), "{refused:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn b5_a_munge_key_is_mounted_byte_for_byte() -> Result<()> {
    with_operator(async |stage| {
        let key: Vec<u8> = (0..=255).cycle().take(1024).collect();
        let secret = json!({ "metadata": { "name": "munge" },
            "data": { "munge.key": ByteString(key.clone()), "other": ByteString(vec![1]) } });
        let secret: Secret = serde_json::from_value(secret)?;
        stage.api::<Secret>().create(&PostParams::default(), &secret).await?;
        let flux = json!({ "mungeSecret": "munge" });
        stage.create("lender", json!({ "interactive": true, "flux": flux })).await?;
        stage.wait_for_status("lender", ConditionType::Ready, "True").await?;
        let dump = "od -An -v -tx1 /etc/munge/munge.key | tr -d ' \\n'; stat -Lc ' %a' /etc/munge/munge.key";
        let found = stage.exec("lender", 0, dump).await?;
        let expected: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found.trim(), format!("{expected} 400"));
        Ok(())
    })
    .await
}

/// A job that needs ranks which nobody has leased blocks Flux's simple scheduler.
#[tokio::test]
async fn a_job_that_waits_for_brokers_to_join_is_an_event() -> Result<()> {
    with_operator(async |stage| {
        let flux = json!({ "bursting": { "spareRanks": 1 }, "scheduler": { "simple": true } });
        stage.create("lender", json!({ "interactive": true, "flux": flux })).await?;
        stage.wait_for_status("lender", ConditionType::Ready, "True").await?;
        stage.exec("lender", 0, &format!("{FLUX} submit -N2 hostname")).await?;
        let blocked = stage.wait_for_reason("lender", ConditionType::Ready, "BlockedByJob").await?;
        assert_eq!(blocked.status, "True");
        assert!(blocked.message.contains("needs 2 nodes and 1 are online"), "{blocked:?}");
        stage.wait_for_event("BlockedByJob").await?;
        stage.create("joiner", joiner(1)).await?;
        stage.wait_for_reason("lender", ConditionType::Ready, "Quorum").await?;
        Ok(())
    })
    .await
}
