//! The core manager of Cluster API, as a process beside the testbed. It serves all namespaces: of one only
//! it cannot reconcile a topology. So one test at a time can run it; its webhooks are those of the test's
//! namespace.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use flux_operator_testbed::Layout;
use flux_operator_testkit::cluster::{install, with_timeout};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::TestNamespace;
use crate::access::apply;

/// Controllers without which a Cluster of a class is not reconciled. Their webhooks and caches are ready
/// when they start.
const CONTROLLERS: [&str; 3] =
    ["controller=\"clusterclass\"", "controller=\"topology/cluster\"", "controller=\"cluster\""];

/// How a manager says that a controller has started.
const STARTED: &str = "\"Starting workers\"";

/// A running manager. It is killed when this is dropped.
pub struct CoreManager {
    child: Child,
    /// Copies its log to a file beside those of the testbed.
    copying: tokio::task::JoinHandle<Result<()>>,
    log: PathBuf,
    webhooks: String,
    /// Its certificate.
    _folder: TempDir,
}

impl CoreManager {
    /// Fails when the manager exits, which it should not.
    pub async fn failed(&mut self) -> Result<()> {
        let status = self.child.wait().await?;
        bail!("the manager of Cluster API exited with {status}: see {}", self.log.display());
    }

    /// Stops it. Its webhooks are removed first: without it they would refuse everything.
    pub async fn stop(mut self, namespace: &TestNamespace) -> Result<()> {
        let name = &self.webhooks;
        let client = &namespace.client;
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        mutating.delete(name, &Default::default()).await?;
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        validating.delete(name, &Default::default()).await?;
        self.child.kill().await?;
        self.copying.await?
    }
}

/// Installs the CRDs of Cluster API, starts its core manager, and waits until it works.
pub async fn start_core(namespace: &TestNamespace) -> Result<CoreManager> {
    let bin = Layout::discover().bin();
    let files = bin.join("cluster-api");
    ensure!(
        files.is_dir() && bin.join("cluster-api-manager").is_file(),
        "Cluster API is not built: run `testbed build --with cluster-api`"
    );
    install(&namespace.client, crds(&files)?).await?;

    let folder = tempfile::tempdir()?;
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    std::fs::write(folder.path().join("tls.crt"), certificate.cert.pem())?;
    std::fs::write(folder.path().join("tls.key"), certificate.signing_key.serialize_pem())?;
    // The manager cannot choose a port itself.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();

    let mut child = Command::new(bin.join("cluster-api-manager"))
        .arg(format!("--webhook-cert-dir={}", folder.path().display()))
        .arg(format!("--webhook-port={port}"))
        .args(["--health-addr=0", "--diagnostics-address=0", "--leader-elect=false"])
        .arg("--feature-gates=ClusterTopology=true")
        // Only the newest version is installed, so there is nothing to migrate.
        .arg("--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields")
        .env("KUBECONFIG", namespace.testbed.kubeconfig())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("failed to start the manager of Cluster API")?;
    let lines = BufReader::new(child.stderr.take().context("it has no log")?).lines();
    let webhooks = format!("cluster-api-{}", namespace.namespace);
    let log = namespace.testbed.log(&webhooks);
    let mut file = File::create(&log)?;
    let lines = with_timeout(wait_until_started(lines, &mut file)).await??;
    let copying = tokio::spawn(copy(lines, file));

    let configurations =
        configurations(&files, &webhooks, namespace, port, &certificate.cert.pem());
    apply(&namespace.client, &configurations?).await?;
    Ok(CoreManager { child, copying, log, webhooks, _folder: folder })
}

type Log = Lines<BufReader<ChildStderr>>;

async fn wait_until_started(mut lines: Log, log: &mut File) -> Result<Log> {
    let (mut missing, mut last) = (CONTROLLERS.to_vec(), String::new());
    while !missing.is_empty() {
        let Some(line) = lines.next_line().await? else {
            bail!("the manager of Cluster API has exited: {last}");
        };
        if line.contains(STARTED) {
            missing.retain(|controller| !line.contains(controller));
        }
        writeln!(log, "{line}")?;
        last = line;
    }
    Ok(lines)
}

async fn copy(mut lines: Log, mut log: File) -> Result<()> {
    while let Some(line) = lines.next_line().await? {
        writeln!(log, "{line}")?;
    }
    Ok(())
}

/// The CRDs, with the version that the product uses only: conversion would need more webhooks.
fn crds(files: &Path) -> Result<Vec<CustomResourceDefinition>> {
    let mut crds = Vec::new();
    for entry in std::fs::read_dir(files)? {
        let text = std::fs::read_to_string(entry?.path())?;
        for mut object in serde_saphyr::from_multiple::<Value>(&text)? {
            if object["kind"] != "CustomResourceDefinition" {
                continue;
            }
            let versions = object["spec"]["versions"].as_array_mut().context("no versions")?;
            versions.retain(|version| version["storage"] == true);
            crds.push(serde_json::from_value(object)?);
        }
    }
    Ok(crds)
}

/// The webhooks of the manager, for objects of the test's namespace.
fn configurations(
    files: &Path,
    name: &str,
    namespace: &TestNamespace,
    port: u16,
    certificate: &str,
) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(files.join("manifests.yaml"))?;
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let authority = serde_json::to_value(k8s_openapi::ByteString(certificate.into()))?;
    for object in &mut objects {
        object["metadata"] = json!({ "name": name });
        let webhooks = object["webhooks"].as_array_mut().context("there are no webhooks")?;
        for webhook in webhooks {
            let path = webhook["clientConfig"]["service"]["path"].as_str().context("no path")?;
            let url = format!("https://127.0.0.1:{port}{path}");
            webhook["clientConfig"] = json!({ "url": url, "caBundle": authority });
            webhook["namespaceSelector"] =
                json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace.namespace } });
        }
    }
    Ok(objects)
}
