//! `kubectl minicluster queue`, `why`, `stop` and `resume` together with an operator.

use anyhow::Result;
use flux_operator_tests_e2e::on_stage;
use flux_operator_tests_e2e::plugin::Plugin;
use flux_operator_tests_e2e::queue::LONG;
use serde_json::json;

#[tokio::test]
async fn q33_what_waits_is_told_and_a_stopped_job_makes_room() -> Result<()> {
    on_stage(async |stage| {
        let plugin = Plugin::new(stage)?;
        stage.create_setup("main", json!({ "quota": { "nodes": 2 } })).await?;
        for name in ["a", "b"] {
            stage.submit(name, LONG, json!({})).await?;
            stage.job_is(name, "Running").await?;
        }
        stage.submit("c", LONG, json!({})).await?;
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
        assert_eq!(stage.job_is("c", "Waiting").await?.reason, "WaitingForQuota");

        let stopped = plugin.run(&["stop", "a"]).await?;
        assert!(stopped.output.contains("stopped: 1 node released"), "{}", stopped.errors);
        stage.job_is("a", "Suspended").await?;
        stage.job_is("c", "Running").await?;
        plugin.run(&["resume", "a"]).await?;
        stage.job_is("a", "Waiting").await?;

        plugin.run(&["stop", "main", "--drain"]).await?;
        stage.job_becomes("b", |status| status.admission.is_none()).await?;
        stage.job_becomes("c", |status| status.admission.is_none()).await?;
        let why = plugin.run(&["why", "c"]).await?.output;
        assert!(!why.contains("Admitted"), "{why}");
        plugin.run(&["resume", "main"]).await?;
        stage.job_is("a", "Running").await?;
        Ok(())
    })
    .await
}
