//! `flux-operator local up`: start MiniClusters and leave them running.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use flux_operator_api::MiniCluster;
use flux_operator_local::{Home, Programs, RunRequest};
use kube::ResourceExt;

use crate::{input, print};

use super::{SourceArguments, connected, home, programs};

/// Start a MiniCluster and leave it running, for `exec` and `down`. MiniClusters that join it may
/// be in the same manifest, or be started later.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let file = &arguments.source.filename;
    let documents = input::parse_without_secrets(file, &input::read_bytes(file)?)?;
    let home = home()?;
    let connected = connected(&home, &documents)?;
    let miniclusters = match &connected {
        Some(request) => request.miniclusters().into_iter().cloned().collect(),
        None => {
            let only_one = " and none joins another\n\
                hint: set flux.join in one, or use a file for each";
            vec![input::only_minicluster(file, &documents, only_one)?]
        }
    };
    let root = arguments.source.flux_root.as_deref();
    let programs = programs(root)?;
    for minicluster in &miniclusters {
        check_not_running(&home, &minicluster.name_any())?;
    }
    match &connected {
        Some(request) => request.check(&home)?.iter().for_each(print_remarks),
        None => {
            for request in miniclusters.iter().cloned().map(RunRequest::new) {
                let request = request?;
                request.check(&home.instance(request.name()))?;
                let notes = request.notes().iter();
                notes.for_each(|note| print::message(format_args!("note: {note}")));
            }
        }
    }
    let mut started: Vec<String> = Vec::new();
    for minicluster in &miniclusters {
        let name = minicluster.name_any();
        if let Err(error) = start(minicluster, &programs, root) {
            // All or none of them. The one that failed has removed its files itself.
            for name in started.iter().rev() {
                let _ = home.instance(name).stop();
            }
            return Err(error);
        }
        started.push(name);
    }
    let lines = started.iter().map(|name| describe(&home, name) + "\n");
    print::output(lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what is not as the manifest of one of several MiniClusters says.
fn print_remarks(request: &RunRequest) {
    let name = request.name();
    for warning in request.warnings() {
        print::message(format_args!("warning: {name}: {warning}"));
    }
    for note in request.notes() {
        print::message(format_args!("note: {name}: {note}"));
    }
}

fn check_not_running(home: &Home, name: &str) -> Result<()> {
    if home.instance(name).record().is_ok() {
        bail!(
            "a local cluster {name:?} is running already: \
             stop it with `flux-operator local down {name}`"
        );
    }
    Ok(())
}

/// Starts the supervisor of a MiniCluster, and waits until enough brokers are online.
fn start(minicluster: &MiniCluster, programs: &Programs, flux_root: Option<&Path>) -> Result<()> {
    let manifest = serde_json::to_vec(minicluster).context("failed to print the manifest")?;
    let mut command = Command::new(&programs.agent);
    command.args(["local", "hold", "--filename", "-"]);
    if let Some(root) = flux_root {
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
    Ok(())
}

/// What is running now, and what to do with it.
fn describe(home: &Home, name: &str) -> String {
    let joins = home.instance(name).record().ok().and_then(|record| record.joins);
    let joined = joins.map(|it| format!(" as {it}"));
    let joined = joined.unwrap_or_default();
    format!("{name} is up{joined}: flux-operator local exec {name} -- flux resource list")
}
