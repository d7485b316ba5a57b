//! The cluster that tests run against: the testbed, or the user's own.
//!
//! With `TESTBED=off` it is the cluster that `KUBECONFIG` names, otherwise the testbed, which
//! `make` has started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flux_operator_api::{Burst, BurstPolicy, FluxJob, FluxSetup, MiniCluster};
use flux_operator_testbed::{BUSYBOX_IMAGE, Testbed};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Config, Resource, ResourceExt};
use serde_json::Value;

/// A generous timeout, because machines are slow and noisy; a healthy cluster needs much less.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A client for the cluster under test.
pub async fn client() -> Result<Client> {
    Ok(Client::try_from(config().await?)?)
}

/// The configuration for the cluster under test, as administrator.
pub async fn config() -> Result<Config> {
    if testbed_is_off() {
        return Config::infer().await.context("TESTBED=off needs KUBECONFIG to name a cluster");
    }
    config_of(&testbed()?).await
}

/// The configuration for a testbed, as administrator.
pub async fn config_of(testbed: &Testbed) -> Result<Config> {
    let path = testbed.kubeconfig();
    let kubeconfig = Kubeconfig::read_from(&path)
        .with_context(|| format!("failed to read {}", path.display()))?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// kubectl for the cluster under test.
pub fn kubectl() -> Result<Command> {
    if testbed_is_off() { Ok(Command::new("kubectl")) } else { Ok(testbed()?.kubectl()) }
}

/// The program `flux-operator`, which `make` has built next to the tests.
pub fn program() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let folder = test.parent().and_then(Path::parent).context("tests are below deps")?;
    let program = folder.join("flux-operator");
    let missing =
        || format!("{} is missing: run `cargo build -p flux-operator`", program.display());
    program.canonicalize().with_context(missing)
}

/// An image with a shell: the testbed's own, or one from a public registry.
pub fn busybox_image() -> &'static str {
    if testbed_is_off() { "busybox:1.36" } else { BUSYBOX_IMAGE }
}

fn testbed_is_off() -> bool {
    std::env::var("TESTBED").is_ok_and(|testbed| testbed == "off")
}

/// The testbed that tests run on, named `TESTBED_NAME` or `default`.
pub fn testbed() -> Result<Testbed> {
    let name = std::env::var("TESTBED_NAME").unwrap_or_else(|_| "default".into()).parse()?;
    Testbed::find(&name).context("no testbed is running: start it with `make testbed-up`")
}

/// Installs our CRDs and waits until the API server serves them.
pub async fn install_crds(client: &Client) -> Result<()> {
    install(client, flux_operator_api::crd::all()).await
}

/// Installs CRDs and waits until the API server serves them.
pub async fn install(
    client: &Client,
    wanted: impl IntoIterator<Item = CustomResourceDefinition>,
) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in wanted {
        let name = crd.name_any();
        crds.patch(&name, &PatchParams::apply("flux-operator-tests").force(), &Patch::Apply(&crd))
            .await
            .with_context(|| format!("the API server refused the CRD {name}"))?;
        with_timeout(await_condition(crds.clone(), &name, conditions::is_crd_established()))
            .await
            .with_context(|| format!("the CRD {name} was not established"))??;
    }
    Ok(())
}

/// Asks the API server to create an object of one of our kinds with strict decoding, without
/// storing it. Returns the error message, if the API server refuses.
pub async fn refusal(client: &Client, manifest: &Value) -> Result<Option<String>> {
    let path = match manifest["kind"].as_str() {
        Some("FluxJob") => FluxJob::url_path(&(), Some("default")),
        Some("FluxSetup") => FluxSetup::url_path(&(), Some("default")),
        Some("BurstPolicy") => BurstPolicy::url_path(&(), Some("default")),
        Some("Burst") => Burst::url_path(&(), Some("default")),
        _ => MiniCluster::url_path(&(), Some("default")),
    };
    let request = http::Request::post(format!("{path}?dryRun=All&fieldValidation=Strict"))
        .header("Content-Type", "application/json")
        .body(manifest.to_string().into_bytes())?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message)),
        Err(error) => Err(error).context("the API server did not respond"),
    }
}

/// Runs a test in its own namespace, which is deleted afterwards unless the test failed: then its
/// contents may show why.
pub async fn in_namespace<F, T>(client: &Client, test: F) -> Result<T>
where
    F: AsyncFnOnce(&str) -> Result<T>,
{
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace: Namespace = serde_json::from_value(serde_json::json!({
        "metadata": { "name": name, "labels": { "flux-operator.test": "true" } }
    }))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let outcome =
        test(&name).await.with_context(|| format!("in namespace {name}, which is not deleted"))?;
    match namespaces.delete(&name, &DeleteParams::background()).await {
        Ok(_) => Ok(outcome),
        // The test has deleted the namespace itself.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(outcome),
        Err(error) => Err(error.into()),
    }
}

/// Awaits a future with a generous timeout.
pub async fn with_timeout<F: Future>(future: F) -> Result<F::Output> {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(output) => Ok(output),
        Err(_) => bail!("timed out after {} seconds", TIMEOUT.as_secs()),
    }
}

/// The first item of a watch for which `found` returns `Some`.
pub async fn first_match<S, T, E, R>(stream: S, matcher: impl FnMut(T) -> Option<R>) -> Result<R>
where
    S: Stream<Item = Result<T, E>>,
    E: std::error::Error + Send + Sync + 'static,
{
    let mut found = matcher;
    let mut matching = stream
        .map_err(anyhow::Error::from)
        .try_filter_map(|item| std::future::ready(Ok(found(item))))
        .boxed_local();
    match with_timeout(matching.next()).await? {
        Some(item) => item,
        None => bail!("the watch ended"),
    }
}
