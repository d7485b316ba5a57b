//! Runs a program in a pod, connected to our standard streams, or to get its output.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::ResourceExt;
use kube::api::{AttachParams, AttachedProcess, ListParams};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy, stderr, stdin, stdout};

use super::outcome::{mount_path, not_ready_reason};
use super::rank_pod::RankPod;
use super::session::Session;
use super::{exit_code, pods, terminal};
use crate::print;

/// A pod whose broker accepts jobs.
pub(super) struct ExecPod {
    pod: String,
    container: String,
    /// The directory with Flux and its files.
    pub(super) mount: String,
}

impl ExecPod {
    /// Finds the pod of a rank of a MiniCluster, or its first pod; if it is not running, the error
    /// says why.
    pub(super) async fn find(session: &Session, name: &str, rank: Option<u32>) -> Result<ExecPod> {
        let minicluster = session.minicluster(name).await?;
        let RankPod { index, described } = RankPod::find(&minicluster, rank)?;
        if let Some(reason) = not_ready_reason(&minicluster) {
            let logs = session.command(&format!("logs -f {name}"));
            bail!("{name} is not ready: {reason}\nhint: follow its log with `{logs}`");
        }
        let of_rank = ListParams::default().labels(&pods::index_selector(name, index));
        let pod = match session.pods().list(&of_rank).await {
            Ok(listed) => pods::newest(listed.items),
            Err(error) => return Err(session.explain(error, "failed to list the pods").await),
        };
        let Some(pod) = pod.filter(|pod| pods::is_running(pod, name)) else {
            bail!("{described} is not running now\nhint: try again, or on another rank");
        };
        let mount =
            mount_path(&minicluster).context("its manifest is not valid for this version")?;
        Ok(ExecPod { pod: pod.name_any(), container: name.into(), mount })
    }
}

/// Runs a program in a pod. With `input` it reads our standard input, and gets a terminal if we
/// have one. Returns its exit code.
pub(super) async fn exec(
    session: &Session,
    pod: &ExecPod,
    words: &[String],
    input: bool,
) -> Result<ExitCode> {
    let terminal = input && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let parameters = AttachParams::default()
        .container(&pod.container)
        .stdin(input)
        .stdout(true)
        // A terminal has only one output stream.
        .stderr(!terminal)
        .tty(terminal);
    let mut process = match session.pods().exec(&pod.pod, words, &parameters).await {
        Ok(process) => process,
        Err(error) => {
            return Err(session.explain(error, "failed to start a program in the pod").await);
        }
    };
    let status = process.take_status().context("the program has no status")?;
    let raw = match terminal {
        true => Some(terminal::RawMode::enter().context("failed to set up the terminal")?),
        false => None,
    };
    if let Some(sizes) = process.terminal_size() {
        tokio::spawn(terminal::send_sizes(sizes));
    }
    if input {
        copy_input(&mut process);
    }
    copy_output(&mut process).await.map_err(print::write_error)?;
    let status = status.await;
    drop(raw);
    exit_code_of(status)
}

/// What a program has printed, and whether it succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CapturedOutput {
    /// Its standard output.
    pub(super) output: String,
    /// Its standard error.
    pub(super) errors: String,
    /// Whether its exit code is 0.
    pub(super) success: bool,
}

/// Runs a program in a pod, without input. Returns what it prints.
pub(super) async fn capture(
    session: &Session,
    pod: &ExecPod,
    words: &[String],
) -> Result<CapturedOutput> {
    let parameters =
        AttachParams::default().container(&pod.container).stdin(false).stdout(true).stderr(true);
    let mut process = match session.pods().exec(&pod.pod, words, &parameters).await {
        Ok(process) => process,
        Err(error) => {
            return Err(session.explain(error, "failed to start a program in the pod").await);
        }
    };
    let status = process.take_status().context("the program has no status")?;
    let (output, errors) = (process.stdout(), process.stderr());
    let (output, errors) = tokio::try_join!(read_all(output), read_all(errors))
        .context("failed to read the output of a program in the pod")?;
    let success = exit_code_of(status.await)? == ExitCode::SUCCESS;
    Ok(CapturedOutput { output, errors, success })
}

async fn read_all(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Copies our standard input to the program, until the input ends or the program exits.
fn copy_input(process: &mut AttachedProcess) {
    let Some(mut to) = process.stdin() else { return };
    tokio::spawn(async move {
        let _program_exited = copy(&mut stdin(), &mut to).await;
        let _program_ended = to.shutdown().await;
    });
}

/// Prints the program's output until it exits.
async fn copy_output(process: &mut AttachedProcess) -> std::io::Result<()> {
    let (output, errors) = (process.stdout(), process.stderr());
    let output = async {
        let Some(mut output) = output else { return Ok(0) };
        copy(&mut output, &mut stdout()).await
    };
    let errors = async {
        let Some(mut errors) = errors else { return Ok(0) };
        copy(&mut errors, &mut stderr()).await
    };
    tokio::try_join!(output, errors)?;
    stdout().flush().await?;
    stderr().flush().await
}

/// The exit code of a program, from the last status that Kubernetes sends.
fn exit_code_of(status: Option<Status>) -> Result<ExitCode> {
    let Some(status) = status else {
        bail!("the connection was lost\nhint: the program may still be running in the pod");
    };
    if status.status.as_deref() == Some("Success") {
        return Ok(ExitCode::SUCCESS);
    }
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let code = causes
        .filter(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .find_map(|cause| cause.message.as_deref()?.parse().ok());
    let message = status.message.unwrap_or_default();
    code.map(exit_code).ok_or_else(|| {
        anyhow!("failed to run the program: {message}\nhint: the image needs /bin/sh")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(status: serde_json::Value) -> Result<ExitCode> {
        exit_code_of(Some(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn the_exit_code_is_that_of_the_program() {
        let causes = json!({ "causes": [{ "reason": "ExitCode", "message": "7" }] });
        let failed = json!({ "status": "Failure", "reason": "NonZeroExitCode", "details": causes });
        assert_eq!(of(failed).unwrap(), ExitCode::from(7));
        assert_eq!(of(json!({ "status": "Success" })).unwrap(), ExitCode::SUCCESS);
    }

    #[test]
    fn a_program_that_did_not_run_is_an_error() {
        let error = of(json!({ "status": "Failure", "message": "no such file" })).unwrap_err();
        assert!(error.to_string().contains("no such file"), "{error}");
        assert!(exit_code_of(None).is_err());
    }
}
