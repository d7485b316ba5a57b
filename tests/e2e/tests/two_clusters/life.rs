//! The life of an invitation: a job over both clusters, what may happen meanwhile, and its end.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::first_match;
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::runtime::{WatchStreamExt, watcher};

use super::joiner::{
    FLUX, JOINER, apply, file, hosts, invite, lease, revoke, set_invitations, start_lender,
    wait_for_joined, wait_for_lease, wait_until_joined,
};

/// How soon ranks are down after a revocation.
const REVOKED: Duration = Duration::from_secs(20);

/// Seed 001: a job that needs four nodes waits, and runs once two brokers of the other cluster have
/// joined. Then everything that is in between is restarted in turn.
#[tokio::test]
async fn a_waiting_job_runs_over_two_clusters_and_restarts_do_no_harm() -> Result<()> {
    with_two_clusters(async |home, away| {
        start_lender(home, "lender").await?;
        let submit = format!("{FLUX} submit -N4 --setattr=burstable hostname");
        let job = home.exec("lender", 0, &submit).await?;
        invite(home, away, "lender", "cloud", 2).await?;
        wait_until_joined(away).await?;
        let output = home.exec("lender", 0, &format!("{FLUX} job attach {}", job.trim())).await?;
        let mut printed: Vec<&str> = output.lines().collect();
        printed.sort_unstable();
        printed.dedup();
        ensure!(printed.len() == 4, "the job has printed {printed:?}");

        home.kill_gateway().await?;
        expect_four_hosts(home, "the gateway was killed").await?;

        home.stop_operator();
        expect_four_hosts(home, "the operator was killed").await?;
        home.start_operator().await?;

        let lead = home.pod("lender", 0).await?;
        home.pod_api().delete(&lead.name_any(), &DeleteParams::default()).await?;
        let of_lender = watcher::Config::default().labels("job-name=lender");
        let pods = watcher(home.pod_api(), of_lender).applied_objects();
        let is_other = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.labels().get("job-index").is_some_and(|it| it == "0") && pod.uid() != lead.uid()
        };
        first_match(pods, |pod| is_other(&pod).then_some(())).await?;
        home.wait_for_status("lender", ConditionType::Ready, "True").await?;
        wait_for_joined(home, "lender", 2).await?;
        expect_four_hosts(home, "the lead was replaced").await?;

        let link = format!("fotb{}", home.testbed.slot());
        on_node(away, &["ip", "link", "set", &link, "down"])?;
        wait_for_joined(home, "lender", 0).await.context("the other cluster is unreachable")?;
        ensure!(hosts(home, "lender", 2).await?.len() == 2, "home does not go on");
        on_node(away, &["ip", "link", "set", &link, "up"])?;
        // The route was lost with the interface.
        let (there, here) =
            (home.testbed.slot().node_address(), away.testbed.slot().node_address());
        let (there, here) = (there.to_string(), here.to_string());
        on_node(away, &["ip", "route", "replace", &there, "dev", &link, "src", &here])?;
        wait_for_joined(home, "lender", 2).await?;
        expect_four_hosts(home, "the other cluster was unreachable").await?;

        home.delete_and_wait::<MiniCluster>("lender").await?;
        home.wait_until_nothing_is_left("lender").await
    })
    .await
}

/// A job over all four hosts succeeds. Brokers may be restarting.
async fn expect_four_hosts(home: &TestNamespace, after: &str) -> Result<()> {
    let printed = hosts(home, "lender", 4).await.with_context(|| after.to_owned())?;
    ensure!(printed.len() == 4, "{after}: the job has printed {printed:?}");
    Ok(())
}

/// Runs a command in the network of a cluster's node.
fn on_node(stage: &TestNamespace, words: &[&str]) -> Result<()> {
    let process = stage.testbed.pid_of("containerd").context("the node has no containerd")?;
    let status = Command::new("nsenter")
        .args(["--target", &process.to_string(), "--net"])
        .args(words)
        .status()?;
    ensure!(status.success(), "{words:?} failed");
    Ok(())
}

/// The connections are closed at once; what runs there ends by Flux's policy, and home goes on.
#[tokio::test]
async fn a_revoked_invitation_ends_while_a_job_runs() -> Result<()> {
    with_two_clusters(async |home, away| {
        start_lender(home, "lender").await?;
        invite(home, away, "lender", "cloud", 2).await?;
        wait_until_joined(away).await?;
        let job = home.exec("lender", 0, &format!("{FLUX} submit -N4 sleep 3600")).await?;
        let job = job.trim();
        home.exec("lender", 0, &format!("{FLUX} job wait-event -t 60 {job} start")).await?;
        let start = Instant::now();
        let down = async {
            wait_for_joined(home, "lender", 0).await?;
            anyhow::Ok(start.elapsed())
        };
        let (took, ()) = tokio::try_join!(down, revoke(home, "lender", "cloud"))?;
        ensure!(took < REVOKED, "the ranks were down only after {took:?}");
        // The job has lost two of its nodes.
        home.exec("lender", 0, &format!("{FLUX} job wait-event -t 60 {job} finish")).await?;
        home.wait_for_object("lender", |it: &MiniCluster| lease(it, "cloud").is_none()).await?;
        ensure!(hosts(home, "lender", 2).await?.len() == 2, "home does not go on");
        away.wait_for_status(JOINER, ConditionType::Joined, "False").await?;
        Ok(())
    })
    .await
}

/// An invitation that nobody has used: its ranks are free again when it ends.
#[tokio::test]
async fn an_invitation_that_is_not_used_expires() -> Result<()> {
    with_two_clusters(async |home, away| {
        start_lender(home, "lender").await?;
        let soon = Timestamp::now() + SignedDuration::from_secs(8);
        // Kubernetes stores whole seconds.
        let soon = soon.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        set_invitations(home, "lender", &[("short", 2, &soon)]).await?;
        wait_for_lease(home, "lender", "short").await?;
        let late = file(home, "lender", "short").await?;
        home.wait_for_object("lender", |it: &MiniCluster| lease(it, "short").is_none()).await?;
        // It is of no use any more.
        apply(away, late).await?;
        away.wait_for_reason(JOINER, ConditionType::Joined, "InvitationExpired").await?;
        ensure!(away.pods(JOINER).await?.is_empty(), "it has pods");
        Ok(())
    })
    .await
}
