//! Batches: each line of the command is a separate job.

use anyhow::{Context, Result};
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use serde_json::{Value, json};

#[tokio::test]
async fn every_line_runs_unchanged() -> Result<()> {
    with_operator(async |stage| {
        // No shell interprets the script before it runs.
        let command = "echo \"$HOME\" 'a  b' `echo c`\n\nhostname\n";
        let post = "cat /tmp/fluxout/job-0.out /tmp/fluxout/job-2.out; ls /tmp/fluxout";
        let environment = json!({ "HOME": "/tmp" });
        let runner = json!({
            "command": command, "commands": { "post": post }, "environment": environment,
        });
        // Each job writes its files on its own node, so there is only one.
        let log = run(stage, "lines", 1, runner, 0).await?;
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines[..2], ["/tmp a  b c", "lines-0"], "{log}");
        assert!(!log.contains("job-1.out"), "{log}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_line_that_fails_fails_the_batch() -> Result<()> {
    with_operator(async |stage| {
        let command = "sh -c 'exit 3'\ntrue\n";
        run(stage, "fails", 2, json!({ "command": command }), 1).await?;
        run(stage, "refused", 2, json!({ "command": "--no-such-option true\ntrue\n" }), 1).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_raw_batch_is_the_users_own_script() -> Result<()> {
    with_operator(async |stage| {
        let command = "for word in 'a $b' \"c\"; do echo \"$word\"; done >$FLUX_OUTPUT_DIR/raw\n\
                       flux run hostname >>$FLUX_OUTPUT_DIR/raw\n";
        let commands = json!({ "prefix": "env MARK=1", "post": "cat /tmp/fluxout/raw" });
        let runner = json!({ "command": command, "batchRaw": true, "commands": commands });
        let log = run(stage, "raw", 2, runner, 0).await?;
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!((lines.len(), &lines[..2]), (3, &["a $b", "c"][..]), "{log}");
        // Which node a job gets is the scheduler's choice.
        assert!(["raw-0", "raw-1"].contains(&lines[2]), "{log}");
        Ok(())
    })
    .await
}

/// Runs a batch on `size` nodes to completion, checks its exit `code`, and returns the lead's log.
async fn run(
    stage: &TestNamespace,
    name: &str,
    size: u32,
    runner: Value,
    code: i32,
) -> Result<String> {
    let mut runner = runner;
    runner["batch"] = true.into();
    let spec = json!({ "size": size, "tasks": size, "logging": { "quiet": true }, "containers": [runner] });
    stage.create(name, spec).await?;
    let finished = stage.wait_until_finished(name).await?;
    let status = finished.status.context("there is no status")?;
    let log = stage.log(name, 0).await?;
    assert_eq!(status.exit_code, Some(code), "{status:?}: {log}");
    Ok(log)
}
