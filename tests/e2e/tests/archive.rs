//! An archive of one cluster's jobs is restored in the next.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flux_operator_testkit::images::flux_root;
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use serde_json::json;

#[tokio::test]
async fn a_flux_without_archive_support_reports_it_and_runs_the_command() -> Result<()> {
    with_operator(async |stage| {
        // The node is this machine.
        let folder = NodeDirectory::new(&stage.namespace)?;
        let log = run(stage, &folder.0, "first", "flux run --job-name=remembered true").await?;
        let has_archives = flux_root().is_some();
        assert_eq!(log.contains("fluxlet does not support archives"), !has_archives, "{log}");
        assert_eq!(folder.0.join("state.tgz").is_file(), has_archives, "{log}");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-e2e"]
async fn jobs_of_the_first_cluster_are_listed_in_the_second() -> Result<()> {
    with_operator(async |stage| {
        let folder = NodeDirectory::new(&stage.namespace)?;
        let first = run(stage, &folder.0, "first", "flux run --job-name=remembered true").await?;
        assert!(folder.0.join("state.tgz").is_file(), "nothing was saved: {first}");
        let jobs = "flux jobs -a -n -o '{name} {status}'; flux run --job-name=failed false";
        let second = run(stage, &folder.0, "second", &format!("{jobs}; true")).await?;
        assert!(second.lines().any(|line| line == "remembered COMPLETED"), "{second}");
        let third = run(stage, &folder.0, "third", "flux jobs -a -n -o '{name} {status}'").await?;
        let mut known: Vec<&str> = third.lines().collect();
        known.sort_unstable();
        assert_eq!(known, ["failed FAILED", "remembered COMPLETED"]);
        Ok(())
    })
    .await
}

/// Runs a launcher to completion and returns the lead's log.
async fn run(stage: &TestNamespace, folder: &Path, name: &str, command: &str) -> Result<String> {
    let volumes = json!({ "archive": { "path": "/archive", "hostPath": folder } });
    let spec = json!({
        "size": 2,
        "logging": { "quiet": true },
        "archive": { "path": "/archive/state.tgz" },
        "containers": [{ "launcher": true, "command": command, "volumes": volumes }],
    });
    stage.create(name, spec).await?;
    let finished = stage.wait_until_finished(name).await?;
    let log = stage.log(name, 0).await?;
    assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0), "{log}");
    Ok(log)
}

/// A directory on the node that is removed after the test.
struct NodeDirectory(PathBuf);

impl NodeDirectory {
    fn new(name: &str) -> Result<NodeDirectory> {
        let folder = std::env::temp_dir().join(format!("flux-operator-{name}"));
        std::fs::create_dir_all(&folder)?;
        Ok(NodeDirectory(folder))
    }
}

impl Drop for NodeDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("failed to remove {}: {error}", self.0.display());
        }
    }
}
