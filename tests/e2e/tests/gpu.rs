//! GPUs: as many as in the manifest. No test needs a real one: Flux allocates what it is configured
//! with.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_tests_e2e::{condition, with_operator};
use serde_json::{Value, json};

#[tokio::test]
async fn a_job_gets_the_configured_gpus() -> Result<()> {
    with_operator(async |stage| {
        let flux = json!({ "resources": { "gpus": 1 } });
        let spec = with_gpu(
            flux,
            "sh -c 'echo $CUDA_VISIBLE_DEVICES; flux resource list -no {ngpus} -s all'",
        );
        stage.create("gpu", spec).await?;
        let finished = stage.wait_until_finished("gpu").await?;
        let log = stage.log("gpu", 0).await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0), "{log}");
        let mut lines: Vec<&str> = log.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0", "0", "2", "2"], "{log}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_job_that_requests_a_gpu_is_refused_without_one() -> Result<()> {
    with_operator(async |stage| {
        stage.create("none", with_gpu(json!({}), "hostname")).await?;
        let finished = stage.wait_until_finished("none").await?;
        let succeeded = condition(&finished, ConditionType::Succeeded).context("no condition")?;
        assert_eq!(
            (succeeded.status.as_str(), succeeded.reason.as_str()),
            ("False", "CommandFailed")
        );
        let log = stage.log("none", 0).await?;
        // What follows differs from scheduler to scheduler.
        assert!(log.contains("unsatisfiable"), "{log}");
        Ok(())
    })
    .await
}

/// Two tasks, each on a node with a GPU.
fn with_gpu(mut flux: Value, command: &str) -> Value {
    flux["optionFlags"] = "-g1".into();
    json!({
        "size": 2, "tasks": 2, "flux": flux, "logging": { "quiet": true },
        "containers": [{ "command": command }],
    })
}
