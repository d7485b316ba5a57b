//! Tests of the program `kubectl minicluster` on a real node.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::{kubectl, with_timeout};
use flux_operator_testkit::images::with_flux;
use flux_operator_testkit::{merge, smallest_minicluster};
use flux_operator_tests_e2e::plugin::{Plugin, text};
use flux_operator_tests_e2e::with_operator;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

#[tokio::test]
async fn create_with_flags_prints_the_output_of_every_host() -> Result<()> {
    with_operator(async |stage| {
        let plugin = Plugin::new(stage)?;
        let flags = flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let create =
            [&["create", "hello", "--size", "2"], &flags[..], &["--", "hostname"]].concat();
        let ran = plugin.run(&create).await?;
        assert_eq!(ran.code, Some(0), "{}", ran.errors);
        let mut hosts: Vec<&str> = ran.output.lines().collect();
        hosts.sort_unstable();
        assert_eq!(hosts, ["hello-0", "hello-1"]);
        assert!(ran.errors.contains("hello: Succeeded, "), "{}", ran.errors);

        let again = plugin.run(&create).await?;
        assert_eq!(again.code, Some(1));
        assert!(again.errors.contains("already exists\nhint: "), "{}", again.errors);

        let listed = plugin.run(&["list"]).await?.output;
        let rows: Vec<Vec<&str>> =
            listed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["NAME", "STATUS", "READY", "EXIT", "AGE"]);
        assert_eq!((rows[1][0], rows[1][1], rows[1][3]), ("hello", "Succeeded", "0"), "{listed}");
        let logs = plugin.run(&["logs", "hello"]).await?;
        assert_eq!((logs.code, logs.output), (Some(0), ran.output));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn create_exits_with_the_code_of_the_command_and_deletes_the_cluster() -> Result<()> {
    with_operator(async |stage| {
        let plugin = Plugin::new(stage)?;
        let containers = json!([{ "command": "sh -c 'echo out; exit 7'" }]);
        let manifest = manifest("fails", json!({ "containers": containers }));
        let ran =
            plugin.run_with_input(&["create", "--rm", "-f", "-"], &manifest.to_string()).await?;
        assert_eq!(ran.code, Some(7), "{}", ran.errors);
        assert!(ran.output.lines().any(|line| line == "out"), "{}", ran.output);
        assert!(ran.errors.contains("fails failed: CommandFailed: "), "{}", ran.errors);
        stage.wait_for_no_pods("fails").await?;
        let listed = plugin.run(&["list"]).await?;
        assert!(listed.errors.starts_with("No MiniClusters found in "), "{}", listed.output);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_invalid_field_is_named_and_nothing_is_created() -> Result<()> {
    with_operator(async |stage| {
        let plugin = Plugin::new(stage)?;
        let file = plugin.folder.path().join("wrong.yaml");
        std::fs::write(&file, manifest("wrong", json!({ "size": 0, "sizes": 1 })).to_string())?;
        let file = file.to_str().context("the path is not UTF-8")?;
        let ran = plugin.run(&["create", "-f", file]).await?;
        assert_eq!(ran.code, Some(1));
        assert!(ran.errors.contains("wrong.yaml: spec.size: is 0"), "{}", ran.errors);
        assert!(ran.errors.contains("wrong.yaml: spec.sizes: unknown field"), "{}", ran.errors);
        assert_eq!(stage.miniclusters().get_opt("wrong").await?, None);

        // Only the operator can refuse this.
        let spec = json!({ "flux": { "container": {} }, "autoscale": { "maxSize": 2 } });
        let refused = manifest("refused", spec).to_string();
        let ran = plugin.run_with_input(&["create", "-f", "-"], &refused).await?;
        assert_eq!(ran.code, Some(1));
        assert!(ran.errors.contains("refused was refused: spec.autoscale"), "{}", ran.errors);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_interactive_cluster_accepts_jobs_and_shells() -> Result<()> {
    with_operator(async |stage| {
        let plugin = Plugin::new(stage)?;
        let manifest = manifest("stays", json!({ "size": 2, "interactive": true })).to_string();
        let created = plugin.run_with_input(&["create", "-f", "-"], &manifest).await?;
        assert_eq!(created.code, Some(0), "{}", created.errors);
        assert!(created.errors.contains(" shell stays`"), "{}", created.errors);

        let words =
            ["submit", "stays", "-n1", "--watch", "--", "printf", "%s|", "a  b", "", "$HOME"];
        let submitted = plugin.run(&words).await?;
        assert_eq!(submitted.code, Some(0), "{}", submitted.errors);
        let (id, printed) = submitted.output.split_once('\n').context("there is no id")?;
        // Flux prints f instead of ƒ without a UTF-8 locale.
        assert!(id.starts_with(['ƒ', 'f']), "{id}");
        assert_eq!(printed, "a  b||$HOME|");
        let failed =
            plugin.run(&["submit", "stays", "--wait", "--quiet", "sh", "-c", "exit 3"]).await?;
        assert_eq!(failed.code, Some(3), "{}", failed.errors);

        let line = "flux run -N2 hostname; echo aside >&2; exit 5\n";
        let shell = plugin.run_with_input(&["shell", "stays"], line).await?;
        assert_eq!(shell.code, Some(5), "{}", shell.errors);
        let mut hosts: Vec<&str> = shell.output.lines().collect();
        hosts.sort_unstable();
        assert_eq!(hosts, ["stays-0", "stays-1"]);
        assert!(shell.errors.contains("aside"), "{}", shell.errors);
        let other = plugin.run_with_input(&["shell", "stays", "--rank", "1"], "hostname\n").await?;
        assert_eq!((other.code, other.output.trim()), (Some(0), "stays-1"), "{}", other.errors);

        let missing = plugin.run(&["logs", "stay"]).await?;
        assert_eq!(missing.code, Some(1));
        assert!(missing.errors.contains("hint: did you mean \"stays\"?"), "{}", missing.errors);
        let outside = plugin.run(&["logs", "stays", "--rank", "2"]).await?;
        assert!(outside.errors.contains("its own ranks are 0 to 1"), "{}", outside.errors);

        let deleted = plugin.run(&["delete", "--wait", "stays"]).await?;
        assert_eq!(deleted.code, Some(0), "{}", deleted.errors);
        assert_eq!(stage.pods("stays").await?.len(), 0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_cluster_that_is_not_ready_reports_why() -> Result<()> {
    with_operator(async |stage| {
        let plugin = Plugin::new(stage)?;
        stage.create("waits", json!({ "suspend": true })).await?;
        stage.wait_for_status("waits", ConditionType::Admitted, "False").await?;
        for words in [&["shell", "waits"][..], &["submit", "waits", "true"], &["logs", "waits"]] {
            let ran = plugin.run(words).await?;
            assert_eq!(ran.code, Some(1), "{words:?}");
            assert!(ran.errors.contains("spec.suspend is true\nhint: "), "{}", ran.errors);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_log_continues_with_the_next_lead_and_an_interrupt_leaves_the_cluster_running()
-> Result<()> {
    with_operator(async |stage| {
        let plugin = Plugin::new(stage)?;
        let spec = json!({
            "logging": { "quiet": true }, "restart": { "limit": 1 },
            "containers": [{ "launcher": true, "command": "echo begun; sleep 1000" }],
        });
        let mut create = plugin.command(&["create", "-f", "-"]);
        let mut create = create.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = create.stdin.take().context("the program has no standard input")?;
        input.write_all(manifest("again", spec).to_string().as_bytes()).await?;
        drop(input);
        let mut lines = BufReader::new(create.stdout.take().context("no standard output")?).lines();
        assert_eq!(with_timeout(lines.next_line()).await??.as_deref(), Some("begun"));
        let lead = stage.pod("again", 0).await?.name_any();
        stage.pod_api().delete(&lead, &DeleteParams::default()).await?;
        assert_eq!(with_timeout(lines.next_line()).await??.as_deref(), Some("begun"));

        let id = create.id().context("the program has already exited")?.to_string();
        ensure!(Command::new("kill").args(["-INT", &id]).status().await?.success());
        let output = with_timeout(create.wait_with_output()).await??;
        assert_eq!(output.status.code(), Some(130));
        assert!(text(&output.stderr).contains(" delete again`"), "{}", text(&output.stderr));
        let left = stage.miniclusters().get("again").await?;
        assert_eq!(left.metadata.deletion_timestamp, None);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn create_exits_when_the_cluster_is_deleted() -> Result<()> {
    with_operator(async |stage| {
        let plugin = Plugin::new(stage)?;
        let containers = json!([{ "command": "sleep 1000" }]);
        let manifest = manifest("gone", json!({ "containers": containers })).to_string();
        let words = ["create", "-f", "-"];
        let (ran, deleted) = tokio::join!(plugin.run_with_input(&words, &manifest), async {
            stage.wait_for_status("gone", ConditionType::Running, "True").await?;
            stage.delete("gone").await
        });
        deleted?;
        let ran = ran?;
        assert_eq!(ran.code, Some(1));
        assert!(ran.errors.contains("gone failed: it was deleted"), "{}", ran.errors);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn kubectl_finds_the_plugin() -> Result<()> {
    with_operator(async |stage| {
        let plugin = Plugin::new(stage)?;
        stage.create("found", json!({ "suspend": true })).await?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = [plugin.folder.path().to_owned()];
        let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path)))?;
        let mut command = Command::from(kubectl()?);
        command.args(["minicluster", "list", "-o", "name", "-n", &stage.namespace]);
        let ran = command.env("PATH", path).output().await?;
        assert_eq!(text(&ran.stdout), "minicluster.flux-framework.org/found\n");
        Ok(())
    })
    .await
}

/// The smallest MiniCluster, patched with `spec`, with the Flux of the test images.
fn manifest(name: &str, spec: Value) -> Value {
    let mut manifest = smallest_minicluster(name);
    merge(&mut manifest, &json!({ "spec": spec }));
    with_flux(&mut manifest);
    manifest
}

/// The flags that correspond to such a manifest.
fn flags() -> Vec<String> {
    let manifest = manifest("any", json!({}));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &manifest["spec"];
    let image = vec!["--image".into(), text(&spec["containers"][0]["image"])];
    let flux = match &spec["flux"]["container"]["image"] {
        Value::Null => vec!["--own-flux".into()],
        image => vec!["--flux-image".into(), text(image)],
    };
    [image, flux].concat()
}
