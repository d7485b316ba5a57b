//! What users do again and again: invite under the same name, revoke, delete the joiner and apply it.

use anyhow::{Context, Result, ensure};
use flux_operator_api::MiniCluster;
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use k8s_openapi::api::core::v1::Secret;

use super::joiner::{
    JOINER, hosts, invite, lease, revoke, start_lender, wait_for_joined, wait_until_joined,
};

/// Everything has the same name each time, and the operators are restarted in between.
#[tokio::test]
async fn the_same_names_are_invited_and_join_again() -> Result<()> {
    with_two_clusters(async |home, away| {
        start_lender(home, "lender").await?;
        for turn in ["the first time", "the second time"] {
            invite(home, away, "lender", "cloud", 2).await.context(turn)?;
            restart(home).await?;
            expect_four_hosts(home, away).await.context(turn)?;
            if turn == "the second time" {
                // The joiner is deleted by mistake, and the same file is applied again. The new one can
                // use the invitation when the former has not asked for a minute.
                away.delete_and_wait::<MiniCluster>(JOINER).await?;
                restart(away).await?;
                invite(home, away, "lender", "cloud", 2).await?;
                expect_four_hosts(home, away).await.context("it was applied again")?;
            }
            revoke(home, "lender", "cloud").await.context(turn)?;
            restart(home).await?;
            home.wait_for_object("lender", |it: &MiniCluster| lease(it, "cloud").is_none()).await?;
            away.delete_and_wait::<MiniCluster>(JOINER).await?;
            away.delete_and_wait::<Secret>(&format!("{JOINER}-invitation")).await?;
            away.wait_until_nothing_is_left(JOINER).await?;
        }
        ensure!(hosts(home, "lender", 2).await?.len() == 2, "home does not go on");
        Ok(())
    })
    .await
}

async fn restart(stage: &mut TestNamespace) -> Result<()> {
    stage.stop_operator();
    stage.start_operator().await
}

/// The joiner has joined, and a job runs on the hosts of both clusters.
async fn expect_four_hosts(home: &TestNamespace, away: &TestNamespace) -> Result<()> {
    wait_until_joined(away).await?;
    wait_for_joined(home, "lender", 2).await?;
    let printed = hosts(home, "lender", 4).await?;
    ensure!(printed.len() == 4, "the job has printed {printed:?}");
    Ok(())
}
