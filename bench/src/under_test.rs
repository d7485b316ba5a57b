//! The operators under test: a name, a shell command, CRDs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use flux_operator_testkit::images::static_program;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::bench_testbed::BenchTestbed;
use crate::usage::{Usage, process_tree_usage};

/// Which operators to measure.
#[derive(clap::Args)]
#[group(id = "contestants")]
pub(crate) struct Options {
    /// An operator, as NAME=COMMAND; ours if none is given. The command is run by `sh -c` with
    /// KUBECONFIG, BENCH_HOST_ADDRESS (where pods can reach it), BENCH_PORT (free to listen on) and
    /// BENCH_AGENT_IMAGE
    #[arg(long = "operator", value_name = "NAME=COMMAND", value_parser = pair)]
    operators: Vec<(String, String)>,

    /// The CRDs of an operator, as NAME=FILE; ours if not given
    #[arg(long = "crds", value_name = "NAME=FILE", value_parser = pair)]
    crds: Vec<(String, String)>,
}

/// An operator under test.
#[derive(Clone, Debug)]
pub(crate) struct OperatorUnderTest {
    /// Its name in tables.
    pub(crate) name: String,
    command: String,
    crds: Option<PathBuf>,
}

impl Options {
    /// The operators, each with its CRDs.
    pub(crate) fn operators(&self) -> Result<Vec<OperatorUnderTest>> {
        let mut given = self.operators.clone();
        if given.is_empty() {
            given.push(("ours".into(), our_command()?));
        }
        if let Some((unknown, _)) =
            self.crds.iter().find(|(name, _)| given.iter().all(|(known, _)| known != name))
        {
            bail!("--crds names {unknown:?}, but there is no such --operator");
        }
        let crds_of = |name: &str| self.crds.iter().find(|(of, _)| of == name);
        let operator = |(name, command): (String, String)| OperatorUnderTest {
            crds: crds_of(&name).map(|(_, file)| file.into()),
            name,
            command,
        };
        Ok(given.into_iter().map(operator).collect())
    }
}

/// Our program, built as for a release.
pub(crate) fn our_program() -> Result<PathBuf> {
    static_program("flux-operator")
}

/// The command of our operator. Arguments can be added at its end.
pub(crate) fn our_command() -> Result<String> {
    let address = "\"$BENCH_HOST_ADDRESS:$BENCH_PORT\"";
    Ok(format!(
        "exec '{}' run --bind {address} --report-url http://{address} \
         --agent-image \"$BENCH_AGENT_IMAGE\"",
        our_program()?.display()
    ))
}

impl OperatorUnderTest {
    /// An operator with our CRDs.
    pub(crate) fn new(name: &str, command: String) -> OperatorUnderTest {
        OperatorUnderTest { name: name.to_owned(), command, crds: None }
    }

    /// The CRDs it needs, as JSON.
    pub(crate) fn crds(&self) -> Result<Vec<Value>> {
        match &self.crds {
            Some(file) => read_documents(file),
            None => {
                let ours = flux_operator_api::crd::all();
                ours.iter().map(|crd| Ok(serde_json::to_value(crd)?)).collect()
            }
        }
    }

    /// Starts it on a testbed. It is killed when the result is dropped.
    pub(crate) fn start(&self, bed: &BenchTestbed) -> Result<RunningOperator> {
        let log = bed.log_of(&self.name);
        let failed = || format!("failed to write {}", log.display());
        let output = File::create(&log).with_context(failed)?;
        let errors = output.try_clone().with_context(failed)?;
        let environment = bed.environment()?;
        let address = address(&environment);
        let child = Command::new("sh")
            .args(["-c", &self.command])
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("failed to start operator {:?}", self.name))?;
        let process = child.id().context("the operator exited at once")?;
        Ok(RunningOperator { name: self.name.clone(), child, process, log, address })
    }
}

/// A running operator.
pub(crate) struct RunningOperator {
    name: String,
    child: Child,
    process: u32,
    log: PathBuf,
    /// The address on which it may serve metrics.
    pub(crate) address: String,
}

impl RunningOperator {
    /// Its resource usage so far.
    pub(crate) fn usage(&self) -> Usage {
        process_tree_usage(self.process)
    }

    /// Awaits a future, and fails if the operator exits meanwhile.
    pub(crate) async fn while_alive<T>(
        &mut self,
        future: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let outcome = tokio::select! {
            outcome = future => outcome,
            status = self.child.wait() => Err(match status {
                Ok(status) => anyhow::anyhow!("the operator exited with {status}"),
                Err(error) => error.into(),
            }),
        };
        outcome.with_context(|| {
            format!("with operator {:?}, whose log ends:\n{}", self.name, tail(&self.log))
        })
    }
}

impl Drop for RunningOperator {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.process).ok().and_then(Pid::from_raw) {
            // It may have exited already.
            let _ended = kill_process_group(group, Signal::KILL);
        }
    }
}

fn address(environment: &[(&str, String)]) -> String {
    let value = |wanted| environment.iter().find(|(name, _)| *name == wanted).map(|(_, it)| it);
    let [host, port] = ["BENCH_HOST_ADDRESS", "BENCH_PORT"].map(value);
    format!("{}:{}", host.map_or("", String::as_str), port.map_or("", String::as_str))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// Every document of a YAML file.
pub(crate) fn read_documents(file: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("failed to read {}", file.display()))?;
    documents(&text).with_context(|| format!("{} is not valid YAML", file.display()))
}

/// Every document of a YAML text.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(all.into_iter().filter(|document| !document.is_null()).collect())
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if is_name(name) && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(format!("expected a short name, an equals sign and a value, not {text:?}")),
    }
}

/// It becomes part of the name of a testbed.
fn is_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !text.is_empty() && text.len() <= 16 && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_has_a_name_and_a_command_with_any_characters() {
        assert_eq!(pair("go=exec a --b=c"), Ok(("go".into(), "exec a --b=c".into())));
        assert!(pair("go").is_err() && pair("=a").is_err() && pair("G o=a").is_err());
    }

    #[test]
    fn crds_for_an_unknown_operator_are_an_error() {
        let options = Options {
            operators: vec![("a".into(), "true".into())],
            crds: vec![("b".into(), "file".into())],
        };
        assert!(options.operators().unwrap_err().to_string().contains("\"b\""));
    }

    #[test]
    fn empty_documents_are_left_out() {
        assert_eq!(documents("---\na: 1\n---\n---\nb: 2\n").unwrap().len(), 2);
    }
}
