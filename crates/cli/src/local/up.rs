//! `flux-operator local up`: start a MiniCluster and leave it running.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::{input, print};

use super::{SourceArguments, home, parse_request, programs};

/// Start a MiniCluster and leave it running, for `exec` and `down`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let file = &arguments.source.filename;
    let manifest = input::read_bytes(file)?;
    let request = parse_request(file, &manifest)?;
    let programs = programs(arguments.source.flux_root.as_deref())?;
    let instance = home()?.instance(request.name());
    if instance.record().is_ok() {
        bail!(
            "a local cluster {0:?} is running already: stop it with `flux-operator local down {0}`",
            request.name()
        );
    }
    let mut command = Command::new(&programs.agent);
    command.args(["local", "hold", "--filename", "-"]);
    if let Some(root) = &arguments.source.flux_root {
        command.arg("--flux-root").arg(root);
    }
    // A process group of its own, so that ^C in this terminal does not stop it.
    let mut child = command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Not inherited: a reader of our standard error would wait until the cluster stops.
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to start the cluster's supervisor")?;
    child
        .stdin
        .take()
        .expect("it was piped")
        .write_all(&manifest)
        .context("failed to pass on the manifest")?;
    let mut errors = child.stderr.take().expect("it was piped");
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it was piped")).read_line(&mut line)?;
    if line.trim() != "ready" {
        let status = child.wait()?;
        bail!("the cluster stopped before it was ready ({status})");
    }
    let name = request.name();
    print::output(format!(
        "{name} is up: flux-operator local exec {name} -- flux resource list\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}
