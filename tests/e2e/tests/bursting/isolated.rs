//! Jobs that run in an instance of their own at a target, and come back with output and exit code.

use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use flux_operator_api::burst::{BurstRun, RunState};
use flux_operator_api::{Burst, MiniCluster};
use flux_operator_plan::bursting::BURST_LABEL;
use flux_operator_tests_e2e::TestNamespace;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::crashes::{crash_after_every_write, crash_after_every_write_at_target};
use super::steps::{
    FLUX, expect_released, has_condition, other_cluster, start_primary, submit, wait_for_burst,
    wait_for_condition, wait_until_nothing_is_left, with_target,
};

/// What the job prints, besides Flux's own line about its exit code. The argument has what shells change.
const SCRIPT: &str = r#"printf "%s|%s|%s\n" "$1" "$TOKEN" "$PWD"; exit 7"#;
const ARGUMENT: &str = r#"a 'b' "c" $HOME `id` {{x}} é"#;

/// A target with enough nodes for a job that the MiniCluster's rank table does not have.
fn large_target() -> Value {
    let mut target = other_cluster();
    target["maxNodes"] = json!(9);
    target
}

async fn start(home: &mut TestNamespace) -> Result<()> {
    let policy = json!({ "targets": [large_target()], "limits": { "nodes": 9 },
        "selector": { "matchLabels": { "no": "spare-ranks" } } });
    home.create_policy("isolated", policy).await?;
    start_primary(home, "primary").await?;
    // The policy serves it now: it has no ranks for its nodes.
    home.edit::<MiniCluster>(
        "primary",
        json!({ "metadata": { "labels": { "no": "spare-ranks" } } }),
    )
    .await
}

/// Submits a job of nine nodes with a task on each, which prints a line.
async fn submit_large(home: &TestNamespace) -> Result<String> {
    let quote = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    // `flux proxy` has a second shell read the words.
    let [token, script, argument] =
        ["TOKEN=hunter2 $x", SCRIPT, ARGUMENT].map(|word| quote(&quote(word)));
    let words = format!(
        "-N9 -n9 --urgency=hold --setattr=burstable --env={token} --cwd=/tmp \
         -- sh -c {script} sh {argument}"
    );
    submit(home, "primary", &words).await
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
    let (burst, run) = wait_until_over(home, &name).await?;
    ensure!((run.state, run.exit_code) == (RunState::Failed, Some(7)), "{run:?}");
    ensure!(has_condition(&burst, "Finished", "True", "CommandFailed"), "{burst:?}");
    let map = home.api::<ConfigMap>().get(&run.output).await?;
    let output = map.data.unwrap_or_default().remove("output").unwrap_or_default();
    let expected = format!("{ARGUMENT}|hunter2 $x|/tmp");
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
    ensure!(
        !serde_json::to_string(&all.items)?.contains("hunter2"),
        "the status has the environment"
    );
    let events = home.api::<Event>().list(&ListParams::default()).await?;
    ensure!(!serde_json::to_string(&events.items)?.contains("hunter2"), "an Event has it");
    Ok(())
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
        let count = Mutex::new(0);
        let life = async {
            let job = submit_large(home).await?;
            expect_result(home, away, &job).await
        };
        tokio::select! {
            ended = crash_after_every_write(home, &count) => ended?,
            ended = life => ended?,
        }
        let count = count.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
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
        let count = Mutex::new(0);
        let life = async {
            let job = submit_large(home).await?;
            expect_result(home, away, &job).await
        };
        tokio::select! {
            ended = crash_after_every_write_at_target(home, away, &count) => ended?,
            ended = life => ended?,
        }
        let count = count.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        ensure!(count >= 8, "only {count} controllers were killed");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_run_whose_target_loses_it_has_failed_and_is_not_started_again() -> Result<()> {
    with_target(async |home, away| {
        start(home).await?;
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
        start(home).await?;
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
