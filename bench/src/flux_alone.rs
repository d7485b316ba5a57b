//! Flux without Kubernetes: Flux's own share of a bring-up.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// The time, in seconds, that a Flux instance of this size takes on this machine to start, run
/// `hostname` on all brokers, and exit.
pub(crate) fn measure(size: u32) -> Result<f64> {
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
    ensure!(status.success(), "{} exited with {status}", program.display());
    Ok(started.elapsed().as_secs_f64())
}

/// The same Flux as in the images.
fn program() -> Result<PathBuf> {
    match std::env::var_os("FLUX_ROOT") {
        Some(root) => Ok(PathBuf::from(root).join("bin/flux")),
        None => flux_operator_testkit::images::static_program("fluxlet"),
    }
}
