//! Runs the program `kubectl minicluster` in a test.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use anyhow::{Context, Result};
use flux_operator_testkit::cluster::{program, testbed, with_timeout};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::TestNamespace;

/// The program, under the name by which kubectl finds it.
pub struct Plugin {
    /// The directory that contains it.
    pub folder: TempDir,
    kubeconfig: PathBuf,
    namespace: String,
}

/// The result of running it.
pub struct PluginOutput {
    /// Its exit code.
    pub code: Option<i32>,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
}

impl Plugin {
    /// The plugin for a test namespace.
    pub fn new(stage: &TestNamespace) -> Result<Plugin> {
        let folder = tempfile::tempdir()?;
        std::os::unix::fs::symlink(program()?, folder.path().join("kubectl-minicluster"))?;
        let kubeconfig = testbed()?.kubeconfig();
        Ok(Plugin { folder, kubeconfig, namespace: stage.namespace.clone() })
    }

    /// The plugin with these arguments, in the test's namespace.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.folder.path().join("kubectl-minicluster"));
        command.args(["--namespace", &self.namespace]).args(words);
        command.env("KUBECONFIG", &self.kubeconfig).kill_on_drop(true);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Runs it.
    pub async fn run(&self, words: &[&str]) -> Result<PluginOutput> {
        Ok(plugin_output(with_timeout(self.command(words).output()).await??))
    }

    /// Runs it with this standard input.
    pub async fn run_with_input(&self, words: &[&str], input: &str) -> Result<PluginOutput> {
        let mut command = self.command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("the plugin has no standard input")?;
        stdin.write_all(input.as_bytes()).await?;
        drop(stdin);
        Ok(plugin_output(with_timeout(child.wait_with_output()).await??))
    }
}

/// The result of a process.
pub fn plugin_output(output: Output) -> PluginOutput {
    let (text, errors) = (text(&output.stdout), text(&output.stderr));
    PluginOutput { code: output.status.code(), output: text, errors }
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
