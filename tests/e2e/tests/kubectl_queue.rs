//! `kubectl minicluster queue`, `why`, `stop` and `resume` together with an operator.

use anyhow::Result;
use flux_operator_tests_e2e::plugin::Plugin;
use flux_operator_tests_e2e::queue::LONG_COMMAND;
use flux_operator_tests_e2e::with_operator;
use serde_json::json;

#[tokio::test]
async fn q33_waiting_jobs_are_explained_and_a_stopped_job_releases_its_quota() -> Result<()> {
    with_operator(async |stage| {
        let plugin = Plugin::new(stage)?;
        stage.create_setup("main", json!({ "quota": { "nodes": 2 } })).await?;
        for name in ["a", "b"] {
            stage.submit(name, LONG_COMMAND, json!({})).await?;
            stage.wait_for_job_phase(name, "Running").await?;
        }
        stage.submit("c", LONG_COMMAND, json!({})).await?;
        // The operator reports a waiting job after some seconds; the plugin reports it at once.
        let queue = plugin.run(&["queue"]).await?;
        assert!(queue.output.contains("2/2 nodes"), "{}{}", queue.output, queue.errors);
        let last = queue.output.lines().last().unwrap_or_default();
        let words: Vec<&str> = last.split_whitespace().collect();
        let main = format!("{}/main", stage.namespace);
        let expected = ["0", &stage.namespace, "c", &main, "0", "1", "WaitingForQuota"];
        assert_eq!(words[..7], expected, "{}", queue.output);
        let why = plugin.run(&["why", "c"]).await?.output;
        assert!(why.contains("missing 1 node"), "{why}");
        assert!(why.contains("freed by  a (1 node)"), "{why}");
        // The operator reports the same later.
        assert_eq!(stage.wait_for_job_phase("c", "Waiting").await?.reason, "WaitingForQuota");

        let stopped = plugin.run(&["stop", "a"]).await?;
        assert!(stopped.output.contains("stopped: 1 node released"), "{}", stopped.errors);
        stage.wait_for_job_phase("a", "Suspended").await?;
        stage.wait_for_job_phase("c", "Running").await?;
        plugin.run(&["resume", "a"]).await?;
        stage.wait_for_job_phase("a", "Waiting").await?;

        plugin.run(&["stop", "main", "--drain"]).await?;
        stage.wait_for_job("b", |status| status.admission.is_none()).await?;
        stage.wait_for_job("c", |status| status.admission.is_none()).await?;
        let why = plugin.run(&["why", "c"]).await?.output;
        assert!(!why.contains("Admitted"), "{why}");
        plugin.run(&["resume", "main"]).await?;
        stage.wait_for_job_phase("a", "Running").await?;
        Ok(())
    })
    .await
}
