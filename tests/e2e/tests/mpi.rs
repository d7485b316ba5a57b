//! An MPI program across several pods. Needs a real Flux (FLUX_ROOT), which starts it, and an MPI
//! compiler, such as the one in Debian's libmpich-dev.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::images;
use flux_operator_tests_e2e::with_operator;
use serde_json::{Value, json};

/// Compiles the program, and returns an image that has it.
fn image_with_program() -> Result<&'static str> {
    let directory = tempfile::tempdir()?;
    let program = directory.path().join("allreduce");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/allreduce.c");
    let compiled = Command::new("mpicc").arg("-o").arg(&program).arg(source).status();
    let compiled = compiled.context("failed to run mpicc: install libmpich-dev")?;
    ensure!(compiled.success(), "mpicc failed");
    images::with_program(&program, "/opt/mpi/allreduce")
}

/// The processes of two connected MiniClusters reach each other: pods of one Kubernetes cluster do.
#[tokio::test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-e2e"]
async fn processes_of_connected_clusters_add_up_their_ranks() -> Result<()> {
    with_operator(async |stage| {
        let image = image_with_program()?;
        let spec = |flux: Value| {
            let mut flux = flux;
            flux["container"] = json!({ "disable": true });
            json!({ "size": 2, "interactive": true, "flux": flux,
                "containers": [{ "image": image }] })
        };
        stage.create("lender", spec(json!({ "bursting": { "spareRanks": 2 } }))).await?;
        stage.create("joiner", spec(json!({ "join": { "name": "lender" } }))).await?;
        stage.wait_for_reason("joiner", ConditionType::Joined, "Joined").await?;
        let run = "flux proxy $fluxsocket flux run -N4 -n4 /opt/mpi/allreduce";
        let output = stage.exec("joiner", 0, &format!(". /mnt/flux/flux-view.sh && {run}")).await?;
        assert!(output.lines().any(|line| line == "sum of 4 ranks: 6"), "{output}");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-e2e"]
async fn processes_of_four_pods_add_up_their_ranks() -> Result<()> {
    with_operator(async |stage| {
        let image = image_with_program()?;
        let spec = json!({
            "size": 4, "tasks": 4,
            "logging": { "quiet": true },
            "flux": { "container": { "disable": true } },
            "containers": [{ "image": image, "command": "/opt/mpi/allreduce" }],
        });
        stage.create("mpi", spec).await?;
        let finished = stage.wait_until_finished("mpi").await?;
        let log = stage.log("mpi", 0).await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0), "{log}");
        assert_eq!(log.lines().collect::<Vec<_>>(), ["sum of 4 ranks: 6"]);
        Ok(())
    })
    .await
}
