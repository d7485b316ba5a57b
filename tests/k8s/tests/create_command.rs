//! `kubectl minicluster create` on a real API server, without an operator: the test writes the
//! status.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use flux_operator_api::{MiniCluster, Reason};
use flux_operator_testkit::cluster::{client, in_namespace, install_crds, kubectl, program};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tempfile::TempDir;

#[tokio::test]
async fn apply_failed_is_waited_for_and_not_ours_is_not() -> Result<()> {
    let refused = ["ApplyFailed", "NotOurs"].map(|reason| ("Accepted", reason));
    let printed = create("taken", &refused).await?;
    assert!(printed.contains("error: taken was refused: said of NotOurs"), "{printed}");
    assert!(printed.contains(&format!("hint: {}", Reason::NotOurs.remedy())), "{printed}");
    Ok(())
}

#[tokio::test]
async fn err_image_pull_is_waited_for_and_invalid_image_name_is_not() -> Result<()> {
    let unready = ["Unschedulable", "ErrImagePull", "InvalidImageName"];
    let reported = create("nameless", &unready.map(|reason| ("Ready", reason))).await?;
    let error = "error: nameless does not start: InvalidImageName: said of InvalidImageName";
    assert!(reported.contains(error), "{reported}");
    assert!(
        reported.contains(&format!("hint: {}", Reason::InvalidImageName.remedy())),
        "{reported}"
    );
    Ok(())
}

#[tokio::test]
async fn hints_include_the_namespace_and_omit_a_removed_cluster() -> Result<()> {
    let refused = [("Accepted", "NotOurs")];
    let reported = create("kept", &refused).await?;
    let (hint, command) =
        ("hint: remove this MiniCluster with `kubectl minicluster -n ", "delete kept`");
    assert!(reported.contains(hint) && reported.contains(command), "{reported}");
    let reported = create_with("removed", &["--rm"], &refused).await?;
    assert!(reported.contains("error: removed was refused"), "{reported}");
    assert!(!reported.contains("remove this"), "{reported}");
    Ok(())
}

/// Creates a MiniCluster and sets its condition to False with one reason after the other, each
/// after the previous one was printed. Returns what was printed after the last one, once the
/// program has failed.
async fn create(name: &str, reasons: &[(&str, &str)]) -> Result<String> {
    create_with(name, &[], reasons).await
}

async fn create_with(name: &str, flags: &[&str], reasons: &[(&str, &str)]) -> Result<String> {
    let client = client().await?;
    install_crds(&client).await?;
    let mut reported = String::new();
    in_namespace(&client, async |namespace| {
        let api: Api<MiniCluster> = Api::namespaced(client.clone(), namespace);
        let folder = tempfile::tempdir()?;
        let mut plugin = plugin(&folder, namespace, name, flags)?;
        let errors = plugin.stderr.take().context("the plugin has no standard error")?;
        let mut lines = BufReader::new(errors).lines();
        let mut shown = "waiting for the operator".to_owned();
        for (kind, reason) in reasons {
            // Wait for the line after which the next reason is written.
            loop {
                match lines.next().transpose()? {
                    Some(line) if line.contains(&shown) => break,
                    Some(_) => {}
                    None => bail!("it exited before it printed {shown:?}"),
                }
            }
            let patch = Patch::Merge(json!({ "status": status(kind, reason) }));
            api.patch_status(name, &PatchParams::default(), &patch).await?;
            shown = format!("{reason}: said of {reason}");
        }
        for line in lines {
            reported += &(line? + "\n");
        }
        assert_eq!(plugin.wait()?.code(), Some(1), "{reported}");
        Ok(())
    })
    .await?;
    Ok(reported)
}

/// The program, run as kubectl runs it, with its files in `folder`.
fn plugin(folder: &TempDir, namespace: &str, name: &str, flags: &[&str]) -> Result<Child> {
    let shown = kubectl()?.args(["config", "view", "--raw", "--flatten"]).output()?;
    let (plugin, config) =
        (folder.path().join("kubectl-minicluster"), folder.path().join("kubeconfig"));
    std::os::unix::fs::symlink(program()?, &plugin)?;
    std::fs::write(&config, shown.stdout)?;
    let words = ["create", name, "--image", "busybox"];
    let mut command = Command::new(plugin);
    command
        .args(["--namespace", namespace])
        .args(words)
        .args(flags)
        .args(["--", "hostname"])
        .env("KUBECONFIG", config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().context("failed to run the plugin")
}

fn status(kind: &str, reason: &str) -> Value {
    let condition = json!({
        "type": kind, "status": "False", "reason": reason, "message": format!("said of {reason}"),
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    json!({ "observedGeneration": 1, "phase": "Pending", "conditions": [condition] })
}
