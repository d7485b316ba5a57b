//! Jobs that run in an instance of their own at a target, and come back with output and exit code.

use std::sync::atomic::AtomicUsize;

use anyhow::{Context, Result, ensure};
use flux_operator_api::Burst;
use flux_operator_api::burst::{BurstRun, RunState};
use flux_operator_api::condition::ConditionType;
use flux_operator_plan::bursting::BURST_LABEL;
use flux_operator_testkit::cluster::first_match;
use flux_operator_tests_e2e::TestNamespace;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use super::crashes::{crash_after_every_write, crash_after_every_write_at_target};
use super::steps::{
    FLUX, expect_no_secrets, expect_released, has_condition, other_cluster, start_primary, submit,
    wait_for_burst, wait_for_condition, wait_until_nothing_is_left, with_target,
};

/// What the job prints, besides Flux's own line about its exit code. Before that, its environment is looked
/// for in objects and logs. The argument has what shells change.
const SCRIPT: &str = r#"sleep 10; printf "%s|%s|%s\n" "$1" "$TOKEN" "$PWD"; exit 7"#;
const ARGUMENT: &str = r#"a 'b' "c" $HOME `id` {{x}} é"#;

/// A secret in the environment of the job.
const TOKEN: &str = "hunter2";

/// A target with enough nodes for a job that the MiniCluster's rank table does not have.
fn large_target() -> Value {
    let mut target = other_cluster();
    target["maxNodes"] = json!(9);
    target
}

/// A policy that runs all jobs elsewhere, and then a MiniCluster, which has no ranks for its nodes.
async fn start(home: &mut TestNamespace) -> Result<()> {
    let policy = json!({ "isolated": true, "targets": [large_target()], "limits": { "nodes": 9 } });
    home.create_policy("isolated", policy).await?;
    start_primary(home, "primary").await
}

/// The same with a policy that runs only jobs beyond the rank table elsewhere. The MiniCluster has fewer
/// ranks than the policy has nodes.
async fn start_with_small_table(home: &mut TestNamespace) -> Result<()> {
    let policy = json!({ "targets": [large_target()], "limits": { "nodes": 9 } });
    home.create_policy("large", policy).await?;
    let spec = json!({ "size": 2, "interactive": true,
        "flux": { "bursting": { "spareRanks": 2, "expose": { "type": "NodePort" } } } });
    home.create("primary", spec).await?;
    home.wait_for_status("primary", ConditionType::Ready, "True").await?;
    Ok(())
}

/// Submits a job of nine nodes with a task on each, which prints a line.
async fn submit_large(home: &TestNamespace) -> Result<String> {
    let quote = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    // `flux proxy` has a second shell read the words. `flux submit --env` would replace `$x`.
    let [script, argument] = [SCRIPT, ARGUMENT].map(|word| quote(&quote(word)));
    let token = quote(&format!("{TOKEN} $x"));
    let line = format!(
        "export TOKEN={token} && {FLUX} submit -N9 -n9 --urgency=hold --setattr=burstable --cwd=/tmp \
         -- sh -c {script} sh {argument}"
    );
    Ok(home.exec("primary", 0, &line).await?.trim().to_owned())
}

/// The run of a Burst, once it is over.
async fn wait_until_over(home: &TestNamespace, name: &str) -> Result<(Burst, BurstRun)> {
    let is_over = |it: &Burst| it.is_record() && it.finalizers().is_empty();
    let burst = home.wait_for_object(name, is_over).await.context("the run is never over")?;
    let run = burst.run().cloned().unwrap_or_default();
    Ok((burst, run))
}

/// Fails unless the job has run once on nine nodes, and everything has come back.
async fn expect_result(home: &TestNamespace, away: &TestNamespace, job: &str) -> Result<()> {
    let burst = wait_for_burst(home).await?;
    let name = burst.name_any();
    expect_environment_in_secret_alone(home, away).await?;
    let (burst, run) = wait_until_over(home, &name).await?;
    ensure!((run.state, run.exit_code) == (RunState::Failed, Some(7)), "{run:?}");
    ensure!(has_condition(&burst, "Finished", "True", "CommandFailed"), "{burst:?}");
    let map = home.api::<ConfigMap>().get(&run.output).await?;
    let output = map.data.unwrap_or_default().remove("output").unwrap_or_default();
    let expected = format!("{ARGUMENT}|{TOKEN} $x|/tmp");
    let printed = output.lines().filter(|line| *line == expected).count();
    ensure!(printed == 9, "nine tasks have printed:\n{output}");
    let events = home.exec("primary", 0, &format!("{FLUX} job eventlog {job}")).await?;
    let message = format!("ran as Burst {name} at target away: exit code 7");
    ensure!(events.contains(&message), "{events}");
    ensure!(!events.contains("alloc"), "it has run at home:\n{events}");
    wait_until_nothing_is_left(away).await?;
    expect_released(home, "primary").await?;
    let all = home.api::<Burst>().list(&ListParams::default()).await?;
    ensure!(all.items.len() == 1, "there is not one record: {all:?}");
    ensure!(!serde_json::to_string(&all.items)?.contains(TOKEN), "the status has the environment");
    let events = home.api::<Event>().list(&ListParams::default()).await?;
    ensure!(!serde_json::to_string(&events.items)?.contains(TOKEN), "an Event has it");
    Ok(())
}

/// Fails unless the environment of the job that is started at the target is in a Secret there, and in
/// nothing else.
async fn expect_environment_in_secret_alone(
    home: &TestNamespace,
    away: &TestNamespace,
) -> Result<()> {
    let of_burst = watcher::Config::default().labels(BURST_LABEL);
    let pods = watcher(away.api::<Pod>(), of_burst).applied_objects();
    let is_running = |pod: &Pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
    };
    let started = first_match(pods, |pod| is_running(&pod).then_some(()));
    started.await.context("no pod is started at the target")?;
    let secrets = away.api::<Secret>().list(&ListParams::default().labels(BURST_LABEL)).await?;
    let values = secrets.items.into_iter().flat_map(|it| it.data.unwrap_or_default().into_values());
    let has_it = values.into_iter().any(|it| String::from_utf8_lossy(&it.0).contains(TOKEN));
    ensure!(has_it, "no Secret at the target has the environment");
    expect_no_secrets(home, away, &[TOKEN.to_owned()]).await
}

#[tokio::test]
async fn b23_b29_a_job_beyond_the_rank_table_runs_elsewhere_exactly_as_it_was_submitted()
-> Result<()> {
    with_target(async |home, away| {
        start(home).await?;
        let _controller = home.start_burst_controller().await?;
        let job = submit_large(home).await?;
        expect_result(home, away, &job).await?;
        let name = wait_for_burst(home).await?.name_any();
        home.api::<Burst>().delete(&name, &DeleteParams::default()).await?;
        home.wait_until_deleted::<Burst>(&name).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_every_write_runs_a_job_once() -> Result<()> {
    with_target(async |home, away| {
        start(home).await?;
        let count = AtomicUsize::new(0);
        let life = async {
            let job = submit_large(home).await?;
            expect_result(home, away, &job).await
        };
        tokio::select! {
            ended = crash_after_every_write(home, &count) => ended?,
            ended = life => ended?,
        }
        let count = count.into_inner();
        ensure!(count >= 10, "only {count} controllers were killed");
        Ok(())
    })
    .await
}

/// Secret, ConfigMap, Service and Job are created and deleted there.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_every_write_at_the_target_runs_a_job_once() -> Result<()>
{
    with_target(async |home, away| {
        start(home).await?;
        let count = AtomicUsize::new(0);
        let life = async {
            let job = submit_large(home).await?;
            expect_result(home, away, &job).await
        };
        tokio::select! {
            ended = crash_after_every_write_at_target(home, away, &count) => ended?,
            ended = life => ended?,
        }
        let count = count.into_inner();
        ensure!(count >= 8, "only {count} controllers were killed");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_run_whose_target_loses_it_has_failed_and_is_not_started_again() -> Result<()> {
    with_target(async |home, away| {
        start_with_small_table(home).await?;
        let _controller = home.start_burst_controller().await?;
        let words = "-N9 --urgency=hold --setattr=burstable --cwd=/tmp sleep inf";
        let job = submit(home, "primary", words).await?;
        let name = wait_for_burst(home).await?.name_any();
        let is_running = |it: &Burst| it.run().is_some_and(|run| run.state == RunState::Running);
        home.wait_for_object(&name, is_running).await?;
        let of_burst = ListParams::default().labels(BURST_LABEL);
        let jobs = away.api::<Job>().list(&of_burst).await?;
        for found in jobs {
            away.api::<Job>().delete(&found.name_any(), &DeleteParams::background()).await?;
        }
        let (_, run) = wait_until_over(home, &name).await?;
        ensure!((run.state, run.exit_code) == (RunState::Failed, None), "{run:?}");
        ensure!(run.message.contains("it was lost"), "{run:?}");
        let events = home.exec("primary", 0, &format!("{FLUX} job eventlog {job}")).await?;
        ensure!(events.contains("it was lost"), "{events}");
        wait_until_nothing_is_left(away).await
    })
    .await
}

#[tokio::test]
async fn a_job_that_is_bound_to_its_instance_waits_with_the_reason() -> Result<()> {
    with_target(async |home, away| {
        start_with_small_table(home).await?;
        let _controller = home.start_burst_controller().await?;
        let words = "-N9 --urgency=hold --setattr=burstable --setattr=dw=x --cwd=/tmp true";
        let job = submit(home, "primary", words).await?;
        let name = wait_for_burst(home).await?.name_any();
        let found = wait_for_condition(home, &name, "Prepared", "False", "NotPortable").await?;
        let message = found.run().map(|run| run.message.clone()).unwrap_or_default();
        ensure!(message.contains("use another file system"), "{message}");
        let (_, run) = wait_until_over(home, &name).await?;
        ensure!(run.state == RunState::Refused, "{run:?}");
        let states = home.exec("primary", 0, &format!("{FLUX} jobs -no {{state}} {job}")).await?;
        ensure!(states.trim() == "SCHED", "it does not wait: {states}");
        wait_until_nothing_is_left(away).await
    })
    .await
}
