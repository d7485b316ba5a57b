//! Brokers that join a lender without agent, lease and permission: what a user would do by hand.
//!
//! They are in bare pods with the image and the volumes of the lender's worker, and have its
//! configuration and its certificate. Only the host name differs.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher;
use serde_json::{Value, json};

use crate::node_stage::{LIMIT, pod, pods};
use crate::waiting::{time_without, within};

use super::SIZE;
use super::lender::{Lender, WorkerSetup};

/// The label of these pods.
const SELECTOR: &str = "bench=by-hand";

/// Flux rejects a certificate that others can read, so it is copied to where the configuration
/// expects it. The shell stays: if it executed `flux`, the broker's start would be the shell's.
/// Releases of Flux before 0.82 read the host name from the variable and ignore the attribute.
const SCRIPT: &str = r#"
umask 077
mkdir -p /mnt/flux/config/curve /mnt/flux/run
cp /flux_operator_keys/curve.cert /mnt/flux/config/curve/
printf '%s' "$CONFIG" > /mnt/flux/broker.toml
FLUX_FAKE_HOSTNAME="$HOST" "$FLUX" broker --config-path=/mnt/flux -Shostname="$HOST" \
    -Srundir=/mnt/flux/run -Sstatedir=/mnt/flux/run -Stbon.topo=kary:0 -Stbon.connect_timeout=5s
exit $?
"#;

/// Pods that are ready to be created.
pub(crate) struct BarePods {
    client: Client,
    pods: Vec<Pod>,
}

impl BarePods {
    /// Prepares one pod for each spare rank of the lender, in the lender's Kubernetes cluster.
    pub(super) async fn prepare(client: &Client, lender: &Lender<'_>) -> Result<BarePods> {
        let setup = lender.worker_setup().await?;
        let worker = pod(client, &lender.name, 1).await?;
        let worker = serde_json::to_value(worker.spec.context("the worker has no spec")?)?;
        BarePods::like(client, &lender.name, &worker, &setup)
    }

    /// Prepares one pod for each spare rank of a lender, with the spec and the setup of a worker.
    pub(crate) fn like(
        client: &Client,
        lender: &str,
        worker: &Value,
        setup: &WorkerSetup,
    ) -> Result<BarePods> {
        let pods = (0..SIZE).map(|index| bare_pod(lender, index, worker, setup)).collect();
        Ok(BarePods { client: client.clone(), pods: serde_json::from_value(pods)? })
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect()
    }

    /// Creates them.
    pub(crate) async fn create(&self) -> Result<()> {
        for pod in &self.pods {
            pods(&self.client).create(&PostParams::default(), pod).await?;
        }
        Ok(())
    }

    /// Deletes them, and waits until they are deleted.
    pub(crate) async fn delete(&self) -> Result<()> {
        let selected = ListParams::default().labels(SELECTOR);
        let at_once = DeleteParams::default().grace_period(0);
        pods(&self.client).delete_collection(&at_once, &selected).await?;
        let selected = watcher::Config::default().labels(SELECTOR);
        within(LIMIT, "no pod is left", time_without(pods(&self.client), selected)).await?;
        Ok(())
    }
}

fn bare_pod(lender: &str, index: u32, worker: &Value, setup: &WorkerSetup) -> Value {
    let name = format!("{lender}-hand-{index}");
    let mut spec = worker.clone();
    spec["hostname"] = name.clone().into();
    spec["nodeName"] = Value::Null;
    let container = &mut spec["containers"][0];
    container["command"] = json!(["sh", "-c", SCRIPT]);
    container["readinessProbe"] = Value::Null;
    container["env"] = json!([
        { "name": "FLUX", "value": setup.flux },
        { "name": "CONFIG", "value": setup.config },
        { "name": "HOST", "value": format!("{lender}-spare-{index}") },
    ]);
    let (key, value) = SELECTOR.split_once('=').expect("it selects one label");
    json!({ "metadata": { "name": name, "labels": { key: value } }, "spec": spec })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_pod_has_the_workers_volumes_but_not_its_agent_and_node() {
        let worker = json!({
            "nodeName": "node", "hostname": "lend-1", "volumes": [{ "name": "v" }],
            "containers": [{ "name": "lend", "command": ["agent"], "env": [], "image": "flux" }],
        });
        let setup = WorkerSetup { flux: "/bin/flux".into(), config: "[bootstrap]".into() };
        let pod = bare_pod("lend", 1, &worker, &setup);
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("lend-hand-1"));
        let spec = pod.spec.unwrap();
        assert_eq!((spec.node_name, spec.volumes.unwrap().len()), (None, 1));
        let container = &spec.containers[0];
        assert_eq!(container.command.as_ref().unwrap()[0], "sh");
        let host = &container.env.as_ref().unwrap()[2];
        assert_eq!(host.value.as_deref(), Some("lend-spare-1"));
    }
}
