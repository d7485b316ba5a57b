//! What the other Kubernetes cluster gets: the file of an invitation, or bare pods with copies of
//! what a worker of the lender has.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result, ensure};
use flux_operator_flux::bootstrap::HostEntry;
use flux_operator_flux::broker_config::BrokerConfig;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::bench_testbed::NAMESPACE;
use crate::connect::{BarePods, Lender, SIZE, WorkerSetup};
use crate::node_stage::pod;
use crate::under_test::{documents, our_program};

/// Invites with the command that a user types, and returns the objects of its file.
pub(super) async fn invite(lender: &Lender<'_>, joiner: &str) -> Result<Vec<Value>> {
    let ranks = SIZE.to_string();
    let mut command = std::process::Command::new(our_program()?);
    command
        .arg0("kubectl-minicluster")
        .env("KUBECONFIG", lender.bed.testbed.kubeconfig())
        .args(["--namespace", NAMESPACE, "invite", &lender.name])
        .args(["--ranks", &ranks, "--invitation", "bench", "--as", joiner]);
    let output = tokio::process::Command::from(command).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "failed to invite: {errors}");
    let mut objects = documents(&String::from_utf8(output.stdout)?)?;
    for object in &mut objects {
        object["metadata"]["namespace"] = NAMESPACE.into();
    }
    Ok(objects)
}

/// Exposes the lead at a port of its node, and prepares pods that connect to it.
pub(super) async fn bare_pods(lender: &Lender<'_>, client: &Client) -> Result<BarePods> {
    let home = &lender.bed.client;
    let node = lender.bed.testbed.slot().node_address();
    let lead = format!("tcp://{node}:{}", node_port(lender).await?);
    let WorkerSetup { flux, config } = lender.worker_setup().await?;
    let config = with_lead(&config, &lender.name, &lead)?;
    let worker = pod(home, &lender.name, 1).await?;
    let worker = serde_json::to_value(worker.spec.context("the worker has no spec")?)?;
    let Volumes { secrets, config_maps } = volumes(&worker);
    for name in secrets {
        let mut secret = objects::<Secret>(home).get(&name).await?;
        secret.metadata = named(&name);
        objects::<Secret>(client).create(&PostParams::default(), &secret).await?;
    }
    for name in config_maps {
        let mut config_map = objects::<ConfigMap>(home).get(&name).await?;
        config_map.metadata = named(&name);
        objects::<ConfigMap>(client).create(&PostParams::default(), &config_map).await?;
    }
    BarePods::like(client, &lender.name, &worker, &WorkerSetup { flux, config })
}

fn objects<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), NAMESPACE)
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// Creates a Service for the lead alone. It is deleted with the lender.
async fn node_port(lender: &Lender<'_>) -> Result<i32> {
    let client = &lender.bed.client;
    let lead = pod(client, &lender.name, 0).await?;
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": lead.name_any(),
        "uid": lead.uid() });
    let service = json!({
        "metadata": { "name": format!("{}-lead", lender.name), "ownerReferences": [owner] },
        "spec": {
            "type": "NodePort",
            "ports": [{ "port": 8050 }],
            "selector": {
                "batch.kubernetes.io/job-name": lender.name,
                "batch.kubernetes.io/job-completion-index": "0",
            },
        },
    });
    let service: Service = serde_json::from_value(service)?;
    let service = objects::<Service>(client).create(&PostParams::default(), &service).await?;
    let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
    ports.first().and_then(|port| port.node_port).context("the Service has no node port")
}

/// A broker configuration in which the lead has another address.
fn with_lead(config: &str, lender: &str, address: &str) -> Result<String> {
    let mut config = BrokerConfig::parse(config)?;
    let bootstrap = config.bootstrap.as_mut().context("there is no [bootstrap]")?;
    let lead = HostEntry::new(format!("{lender}-0").parse()?);
    // The first entry of a host sets its rank and its address.
    bootstrap.hosts.insert(0, HostEntry { connect: Some(address.to_owned()), ..lead });
    Ok(config.to_toml()?)
}

/// The objects in a pod's volumes that only its own namespace has.
#[derive(Debug, Default, PartialEq)]
struct Volumes {
    secrets: Vec<String>,
    config_maps: Vec<String>,
}

fn volumes(spec: &Value) -> Volumes {
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut found = Volumes::default();
    for volume in all(&spec["volumes"]) {
        found.secrets.extend(text(&volume["secret"]["secretName"]));
        found.config_maps.extend(text(&volume["configMap"]["name"]));
        for source in all(&volume["projected"]["sources"]) {
            found.secrets.extend(text(&source["secret"]["name"]));
            found.config_maps.extend(text(&source["configMap"]["name"]));
        }
    }
    // Every namespace has this one.
    found.config_maps.retain(|name| name != "kube-root-ca.crt");
    for names in [&mut found.secrets, &mut found.config_maps] {
        names.sort();
        names.dedup();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_has_another_address_and_all_hosts_keep_their_ranks() {
        let config = "[bootstrap]\ncurve_cert = \"/c\"\ndefault_port = 8050\n\
            default_connect = \"tcp://%h.svc:%p\"\nhosts = [{ host = \"a-[0-1]\" }]\n";
        let config = with_lead(config, "a", "tcp://192.0.2.1:30000").unwrap();
        let ranks = BrokerConfig::parse(&config).unwrap().bootstrap.unwrap().ranks().unwrap();
        let ranks: Vec<_> = ranks.iter().map(|it| (&*it.name, it.connect.as_deref())).collect();
        let expected =
            [("a-0", Some("tcp://192.0.2.1:30000")), ("a-1", Some("tcp://a-1.svc:8050"))];
        assert_eq!(ranks, expected);
    }

    #[test]
    fn what_volumes_name_is_found_once() {
        let found = volumes(&json!({ "volumes": [
            { "name": "a", "secret": { "secretName": "keys" } },
            { "name": "b", "configMap": { "name": "plan" } },
            { "name": "c", "emptyDir": {} },
            { "name": "d", "projected": { "sources": [
                { "secret": { "name": "keys" } },
                { "configMap": { "name": "kube-root-ca.crt" } },
            ] } },
        ] }));
        assert_eq!(
            found,
            Volumes { secrets: vec!["keys".into()], config_maps: vec!["plan".into()] }
        );
    }
}
