//! A gateway in the test's namespace, installed as users install it.

use anyhow::{Context, Result};
use flux_operator_install::{GATEWAY, InstallSettings, PORT, gateway_objects};
use flux_operator_operator::GatewayLocation;
use flux_operator_testkit::cluster::{first_match, with_timeout};
use flux_operator_testkit::images::import_operator_to;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, LogParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};

use crate::TestNamespace;
use crate::access::{apply, settings};

impl TestNamespace {
    /// Installs a gateway for this namespace, waits until it is ready, and has the operator use it.
    pub async fn start_gateway(&mut self) -> Result<()> {
        import_operator_to(&self.testbed)?;
        let settings = InstallSettings {
            watched_namespace: Some(self.namespace.clone()),
            gateway: true,
            ..settings(&self.namespace)
        };
        let reports = self.report_url()?.replace("http://", "");
        let mut objects = gateway_objects(&settings);
        for object in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
            let container = &mut object["spec"]["template"]["spec"]["containers"][0];
            for argument in container["args"].as_array_mut().context("no arguments")? {
                // The operator of a test is outside of the cluster.
                if argument.as_str().is_some_and(|it| it.starts_with("--report-address")) {
                    *argument = format!("--report-address={reports}").into();
                }
            }
        }
        apply(&self.client, &objects).await?;
        let deployments: Api<Deployment> = self.api();
        let is_ready = |deployment: Option<&Deployment>| {
            let status = deployment.and_then(|deployment| deployment.status.as_ref());
            status.and_then(|status| status.ready_replicas) == Some(1)
        };
        with_timeout(await_condition(deployments, GATEWAY, is_ready))
            .await
            .context("the gateway was never ready")??;
        self.gateway = Some(GatewayLocation::Service {
            namespace: self.namespace.clone(),
            name: GATEWAY.to_owned(),
        });
        Ok(())
    }

    /// Kills the gateway's pod, and waits until another one is ready.
    pub async fn kill_gateway(&self) -> Result<()> {
        let before = self.gateway_pod().await?;
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pod_api().delete(&before.name_any(), &at_once).await?;
        let of_gateway = watcher::Config::default().labels("control-plane=gateway");
        let pods = watcher(self.pod_api(), of_gateway).applied_objects();
        first_match(pods, |pod: Pod| (pod.uid() != before.uid() && is_ready(&pod)).then_some(()))
            .await
    }

    /// The gateway's pod.
    pub async fn gateway_pod(&self) -> Result<Pod> {
        let of_gateway = ListParams::default().labels("control-plane=gateway");
        let mut pods = self.pod_api().list(&of_gateway).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods.pop().context("there is no pod of the gateway")
    }

    /// The gateway's metrics.
    pub async fn gateway_metrics(&self) -> Result<String> {
        let (pod, namespace) = (self.gateway_pod().await?.name_any(), &self.namespace);
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{PORT}/proxy/metrics");
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(self.client.request_text(request).await?)
    }

    /// The gateway's log.
    pub async fn gateway_log(&self) -> Result<String> {
        let pod = self.gateway_pod().await?.name_any();
        Ok(self.pod_api().logs(&pod, &LogParams::default()).await?)
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}
