//! An operator that is installed in the cluster as users install it.

use anyhow::{Context, Result};
use flux_operator_install::{
    BURST_CONTROLLER, BurstClusters, InstallSettings, LEASE, OPERATOR, PORT,
};
use flux_operator_testkit::cluster::{first_match, with_timeout};
use flux_operator_testkit::images::import_operator;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use crate::TestNamespace;
use crate::access::{apply, delete_cluster_scoped, settings};

/// An installed operator.
pub struct Installation {
    client: Client,
    /// Its settings.
    pub settings: InstallSettings,
}

impl Installation {
    /// Installs an operator for the test's namespace only, because other tests have operators of
    /// their own, and waits until its pods are ready.
    pub async fn namespaced(stage: &TestNamespace, replicas: u16) -> Result<Installation> {
        Installation::start(stage, Some(stage.namespace.clone()), replicas).await
    }

    /// Installs an operator for all namespaces, and a burst controller for the test's. No other operator may run at the same time.
    pub async fn cluster_wide(stage: &TestNamespace) -> Result<Installation> {
        Installation::start(stage, None, 1).await
    }

    async fn start(
        stage: &TestNamespace,
        watched: Option<String>,
        replicas: u16,
    ) -> Result<Installation> {
        import_operator()?;
        // The burst controller asks the operator for jobs, which checks who asks. For that it needs rights
        // of a cluster.
        let burst_namespaces = match &watched {
            Some(_) => Vec::new(),
            None => vec![stage.namespace.clone()],
        };
        let settings = InstallSettings {
            watched_namespace: watched,
            replicas,
            network_policy: true,
            burst_namespaces,
            burst_clusters: BurstClusters::default(),
            ..settings(&format!("{}-operator", stage.namespace))
        };
        let client = stage.client.clone();
        apply(&client, &flux_operator_install::operator_objects(&settings)).await?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &settings.namespace);
        let has_ready = |replicas: u16| {
            move |deployment: Option<&Deployment>| {
                let status = deployment.and_then(|deployment| deployment.status.as_ref());
                status.and_then(|status| status.ready_replicas) == Some(i32::from(replicas))
            }
        };
        let install = Installation { client, settings };
        let has_bursts = !install.settings.burst_namespaces.is_empty();
        let others = has_bursts.then_some((BURST_CONTROLLER, 1));
        for (name, replicas) in [(OPERATOR, replicas)].into_iter().chain(others) {
            let ready = await_condition(deployments.clone(), name, has_ready(replicas));
            let ready = with_timeout(ready).await.with_context(|| format!("{name} is never ready"));
            if let Err(error) = ready.and_then(|it| Ok(it?)) {
                return install.uninstall(Err(error)).await;
            }
        }
        Ok(install)
    }

    /// Uninstalls it unless the test failed: then its log may show why.
    pub async fn uninstall<T>(&self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(outcome) => {
                let objects = flux_operator_install::operator_objects(&self.settings);
                delete_cluster_scoped(&self.client, &objects).await?;
                Ok(outcome)
            }
            Err(error) => {
                let log = self.log().await.unwrap_or_default();
                Err(error.context(format!("the operator's log was\n{log}")))
            }
        }
    }

    /// Waits for a leader other than `before`, and returns its pod.
    pub async fn wait_for_leader(&self, before: Option<&str>) -> Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let one = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
        first_match(watcher(leases, one).applied_objects(), |lease| {
            let holder = lease.spec?.holder_identity?;
            let pod = holder.split_once('_')?.0.to_owned();
            (Some(pod.as_str()) != before).then_some(pod)
        })
        .await
        .context("no replica acquired the Lease")
    }

    /// The metrics of a replica, read through the API server.
    pub async fn metrics(&self, pod: &str) -> Result<String> {
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

    /// Its pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }
}
