//! The operator in the cluster: installed as users install it, with its own
//! image, roles and Lease.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flux_operator_api::condition::ConditionType;
use flux_operator_install::{LEASE, OPERATOR, PORT, Settings};
use flux_operator_testkit::cluster::{first, patiently};
use flux_operator_testkit::images::import_operator;
use flux_operator_tests_e2e::access::{apply, delete_cluster_wide, settings};
use flux_operator_tests_e2e::{Stage, on_empty_stage};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, LogParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// How long a Lease lasts that is not given back.
const TERM: Duration = Duration::from_secs(15);

#[tokio::test]
async fn an_installed_operator_runs_miniclusters_and_hands_over() -> Result<()> {
    on_empty_stage(async |stage| {
        let install = Install::of(stage, 2).await?;
        let outcome = runs_and_hands_over(stage, &install).await;
        install.end(outcome).await
    })
    .await
}

async fn runs_and_hands_over(stage: &Stage, install: &Install) -> Result<()> {
    let leader = install.leader(None).await?;
    stage.create("stays", json!({ "size": 2, "interactive": true })).await?;
    stage.wait("stays", ConditionType::Ready, "True").await?;
    runs(stage, "first").await?;
    let counted = install.metrics(&leader).await?;
    for line in [
        "flux_operator_leader 1",
        "flux_operator_bring_up_seconds_count 1",
        r#"flux_operator_miniclusters{phase="Succeeded"} 1"#,
        r#"flux_operator_api_requests_total{resource="jobs",verb="create"} 2"#,
    ] {
        ensure!(counted.lines().any(|each| each == line), "{line} is not in\n{counted}");
    }
    // Half of the agents came to the other replica first, which sent them on.
    ensure!(counted.contains(r#"flux_operator_reports_total{outcome="heard"}"#), "{counted}");
    // A right that is missing shows here.
    ensure!(!counted.contains("flux_operator_reconcile_errors_total{"), "{counted}");

    let deleted = Instant::now();
    install.pods().delete(&leader, &DeleteParams::default()).await?;
    let next = install.leader(Some(&leader)).await?;
    let took = deleted.elapsed();
    ensure!(took < TERM, "the Lease was not given back: taking it took {took:?}");
    runs(stage, "second").await?;
    let counted = install.metrics(&next).await?;
    ensure!(counted.lines().any(|line| line == "flux_operator_leader 1"), "{counted}");
    Ok(())
}

/// Runs a MiniCluster of two to its end.
async fn runs(stage: &Stage, name: &str) -> Result<()> {
    let spec = json!({ "size": 2, "tasks": 2, "containers": [{ "command": "hostname" }] });
    stage.create(name, spec).await?;
    let status = stage.wait_for_end(name).await?.status.context("there is no status")?;
    ensure!(status.exit_code == Some(0), "{name} ended otherwise: {status:?}");
    Ok(())
}

/// An operator in the cluster.
struct Install {
    client: Client,
    settings: Settings,
}

impl Install {
    /// Installs an operator for the stage's namespace alone, because those of other
    /// tests have operators of their own, and waits until its pods are ready.
    async fn of(stage: &Stage, replicas: u16) -> Result<Install> {
        import_operator()?;
        let settings = Settings {
            watched: Some(stage.namespace.clone()),
            replicas,
            network_policy: true,
            ..settings(&format!("{}-operator", stage.namespace))
        };
        let client = stage.client.clone();
        apply(&client, &flux_operator_install::operator(&settings)).await?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &settings.namespace);
        let is_ready = move |deployment: Option<&Deployment>| {
            let status = deployment.and_then(|deployment| deployment.status.as_ref());
            status.and_then(|status| status.ready_replicas) == Some(i32::from(replicas))
        };
        let install = Install { client, settings };
        match patiently(await_condition(deployments, OPERATOR, is_ready)).await {
            Ok(Ok(_)) => Ok(install),
            Ok(Err(error)) => install.end(Err(error.into())).await,
            Err(error) => install.end(Err(error.context("the operator was never ready"))).await,
        }
    }

    /// Removes it unless the test failed: then its log may say why.
    async fn end<T>(&self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(outcome) => {
                let objects = flux_operator_install::operator(&self.settings);
                delete_cluster_wide(&self.client, &objects).await?;
                Ok(outcome)
            }
            Err(error) => {
                let log = self.log().await.unwrap_or_default();
                Err(error.context(format!("the operator's log was\n{log}")))
            }
        }
    }

    /// Waits for a leader, another than `before`, and returns its pod.
    async fn leader(&self, before: Option<&str>) -> Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let one = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
        first(watcher(leases, one).applied_objects(), |lease| {
            let holder = lease.spec?.holder_identity?;
            let pod = holder.split_once('_')?.0.to_owned();
            (Some(pod.as_str()) != before).then_some(pod)
        })
        .await
        .context("nobody took the Lease")
    }

    /// What a replica counts, asked through the API server.
    async fn metrics(&self, pod: &str) -> Result<String> {
        let namespace = &self.settings.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{PORT}/proxy/metrics");
        Ok(self.client.request_text(http::Request::get(path).body(Vec::new())?).await?)
    }

    async fn log(&self) -> Result<String> {
        let mut text = String::new();
        for pod in self.pods().list(&ListParams::default()).await? {
            let name = pod.name_any();
            text += &format!("{name}:\n{}", self.pods().logs(&name, &LogParams::default()).await?);
        }
        Ok(text)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }
}
