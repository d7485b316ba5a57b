//! An MPI program across several pods. Needs a real Flux (FLUX_ROOT), which starts it, and an MPI
//! compiler, such as the one in Debian's libmpich-dev.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flux_operator_testkit::images;
use flux_operator_tests_e2e::with_operator;
use serde_json::json;

#[tokio::test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-e2e"]
async fn processes_of_four_pods_add_up_their_ranks() -> Result<()> {
    let program = std::env::temp_dir().join(format!("allreduce-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/allreduce.c");
    let compiled = Command::new("mpicc").arg("-o").arg(&program).arg(source).status();
    let compiled = compiled.context("failed to run mpicc: install libmpich-dev")?;
    ensure!(compiled.success(), "mpicc failed");
    with_operator(async |stage| {
        let image = images::with_program(&program, "/opt/mpi/allreduce")?;
        std::fs::remove_file(&program)?;
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
