//! `kubectl minicluster ranks` on a real API server, without an operator: the test writes what it
//! would have written.

use std::process::{Command, Output};

use anyhow::{Context, Result};
use flux_operator_api::MiniCluster;
use flux_operator_testkit::cluster::{client, in_namespace, install_crds, kubectl, program};
use flux_operator_testkit::{merge, smallest_minicluster};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

#[tokio::test]
async fn a_lender_shows_all_ranks_and_a_joiner_its_own() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    in_namespace(&client, async |namespace| {
        let lends = json!({ "bursting": { "spareRanks": 4 } });
        let lender = create(&client, namespace, "first", lends).await?;
        let joins = json!({ "join": { "name": "first" } });
        let joiner = create(&client, namespace, "second", joins).await?;
        let without_job = plugin(namespace, &["ranks", "first"])?;
        let errors = String::from_utf8(without_job.stderr)?;
        assert!(errors.contains("it has no Job yet"), "{errors}");

        create_job(&client, namespace, &lender).await?;
        let lease = json!({ "ranks": "2-3", "holder": joiner.uid(), "namespace": namespace,
            "name": "second", "table": "t", "since": "2026-01-01T00:00:00Z", "state": "Active" });
        let status = json!({ "online": "0-2", "leases": [lease] });
        let api: Api<MiniCluster> = Api::namespaced(client.clone(), namespace);
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status("first", &PatchParams::default(), &patch).await?;
        let own = ["2 first-spare-0 second online", "3 first-spare-1 second offline"];
        let all = ["0-1 first-[0-1] first online", own[0], own[1], "4-5 first-spare-[2-3] - free"];
        assert_eq!(rows(namespace, "first")?, all);
        assert_eq!(rows(namespace, "second")?, own);
        Ok(())
    })
    .await
}

/// Creates a MiniCluster of two brokers.
async fn create(client: &Client, namespace: &str, name: &str, flux: Value) -> Result<MiniCluster> {
    let mut manifest = smallest_minicluster(name);
    merge(&mut manifest, &json!({ "spec": { "size": 2, "flux": flux } }));
    let api: Api<MiniCluster> = Api::namespaced(client.clone(), namespace);
    Ok(api.create(&PostParams::default(), &serde_json::from_value(manifest)?).await?)
}

/// Creates the Job of a MiniCluster of two brokers. It is suspended, so it has no pods.
async fn create_job(client: &Client, namespace: &str, of: &MiniCluster) -> Result<()> {
    let owner = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "name": of.name_any(), "uid": of.uid() });
    let containers = json!([{ "name": "a", "image": "busybox" }]);
    let job = json!({
        "metadata": {
            "name": of.name_any(), "ownerReferences": [owner],
            "annotations": { "flux-framework.org/ranks": "2",
                "flux-framework.org/table": "{\"spareRanks\":4}" },
        },
        "spec": {
            "suspend": true, "completionMode": "Indexed", "completions": 2, "parallelism": 2,
            "template": { "spec": { "restartPolicy": "Never", "containers": containers } },
        },
    });
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    Ok(())
}

/// The rows that the command prints, with single spaces.
fn rows(namespace: &str, name: &str) -> Result<Vec<String>> {
    let ran = plugin(namespace, &["ranks", name])?;
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    let output = String::from_utf8(ran.stdout)?;
    let single_spaced = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(output.lines().skip(1).map(single_spaced).collect())
}

/// The program, run as kubectl runs it.
fn plugin(namespace: &str, words: &[&str]) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    let shown = kubectl()?.args(["config", "view", "--raw", "--flatten"]).output()?;
    let (plugin, config) =
        (folder.path().join("kubectl-minicluster"), folder.path().join("kubeconfig"));
    std::os::unix::fs::symlink(program()?, &plugin)?;
    std::fs::write(&config, shown.stdout)?;
    let mut command = Command::new(plugin);
    command.args(["--namespace", namespace]).args(words).env("KUBECONFIG", config);
    command.output().context("failed to run the plugin")
}
