//! What all other tests depend on: a real node runs an Indexed Job whose pods find each other by
//! name, have readable logs, and run a program from an image volume.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use flux_operator_testkit::cluster::{
    busybox_image, client, first_match, in_namespace, with_timeout,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, LogParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

const SIZE: usize = 4;
const PORT: u16 = 8080;

#[tokio::test]
async fn pods_of_an_indexed_job_are_found_by_name_and_run_a_program_from_an_image_volume()
-> Result<()> {
    let client = client().await?;
    in_namespace(&client, async |namespace| {
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        services.create(&PostParams::default(), &headless_service()?).await?;
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        jobs.create(&PostParams::default(), &indexed_job()?).await?;
        // A name that is resolved too early does not exist, and that answer is cached.
        wait_for_addresses(&client, namespace).await.context("the pods have no addresses")?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        pods.create(&PostParams::default(), &caller()?).await?;
        with_timeout(await_condition(jobs, "smoke", conditions::is_job_completed()))
            .await
            .context("the Job did not complete")??;

        let mut printed = BTreeSet::new();
        for pod in pods.list(&ListParams::default().labels("job-name=smoke")).await? {
            let log = pods.logs(&pod.name_any(), &LogParams::default()).await?;
            printed.extend(log.lines().map(str::to_owned));
        }
        let expected = (0..SIZE).map(|index| format!("index {index} says hello from the volume"));
        assert_eq!(printed, expected.collect());
        Ok(())
    })
    .await
}

fn headless_service() -> Result<Service> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": "smoke" },
        "spec": {
            "clusterIP": "None",
            "selector": { "job-name": "smoke" },
            "publishNotReadyAddresses": true,
        },
    }))?)
}

/// Waits until the headless Service has an endpoint for every pod.
async fn wait_for_addresses(client: &Client, namespace: &str) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let of_service = watcher::Config::default().labels("kubernetes.io/service-name=smoke");
    let changes = watcher(slices, of_service).applied_objects();
    first_match(changes, |slice| (slice.endpoints.iter().flatten().count() == SIZE).then_some(()))
        .await
}

/// A pod that connects to every pod of the Job by name.
fn caller() -> Result<Pod> {
    let script = format!(
        "for index in $(seq 0 {}); do
           until nc smoke-$index.smoke.$NAMESPACE.svc.cluster.local {PORT} </dev/null; do sleep 0.2; done
         done",
        SIZE - 1
    );
    Ok(serde_json::from_value(json!({
        "metadata": { "name": "caller" },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "containers": [container(&script)],
        },
    }))?)
}

/// A Job whose pods wait for a connection, and then run a program from an image volume.
fn indexed_job() -> Result<Job> {
    let script = format!(
        "nc -l -p {PORT}
         /view/busybox echo index $JOB_COMPLETION_INDEX says hello from the volume"
    );
    let mut container = container(&script);
    container["volumeMounts"] =
        json!([{ "name": "tools", "mountPath": "/view", "subPath": "bin", "readOnly": true }]);
    Ok(serde_json::from_value(json!({
        "metadata": { "name": "smoke" },
        "spec": {
            "completionMode": "Indexed",
            "completions": SIZE,
            "parallelism": SIZE,
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "subdomain": "smoke",
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    "containers": [container],
                    "volumes": [{
                        "name": "tools",
                        "image": { "reference": busybox_image(), "pullPolicy": "IfNotPresent" },
                    }],
                },
            },
        },
    }))?)
}

fn container(script: &str) -> Value {
    json!({
        "name": "smoke",
        "image": busybox_image(),
        "command": ["/bin/sh", "-c", script],
        "env": [{
            "name": "NAMESPACE",
            "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } },
        }],
    })
}
