//! Flux without Kubernetes: what of a bring-up is Flux's own.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// The seconds that a Flux of so many brokers on this machine takes to start, run `hostname` on
/// all of them, and end.
pub(crate) fn seconds(size: u32) -> Result<f64> {
    let program = program()?;
    let started = Instant::now();
    let status = Command::new(&program)
        .args(["start", &format!("-s{size}")])
        .arg(&program)
        .args(["run", &format!("-N{size}"), "hostname"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("failed to start {}", program.display()))?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    Ok(started.elapsed().as_secs_f64())
}

/// The Flux that is also in the images.
fn program() -> Result<PathBuf> {
    match std::env::var_os("FLUX_ROOT") {
        Some(root) => Ok(PathBuf::from(root).join("bin/flux")),
        None => flux_operator_testkit::images::static_program("fluxlet"),
    }
}
