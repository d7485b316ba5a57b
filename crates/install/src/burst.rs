//! The burst controller: a program of its own, with an account that can read Secrets and write
//! MiniClusters only in the namespaces that an administrator lists.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStrategy};
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::Value;

use crate::deployment::{Program, deployment};
use crate::{BURST_CONTROLLER, InstallSettings, PORT, roles, value};

/// How long the controller may take to stop: it has nothing to finish.
const GRACE_SECONDS: i64 = 2;

/// All objects of the burst controller.
pub fn burst_objects(settings: &InstallSettings) -> Vec<Value> {
    let account = ServiceAccount {
        metadata: settings.metadata(BURST_CONTROLLER),
        ..ServiceAccount::default()
    };
    let mut objects = vec![value(&account)];
    objects.extend(roles::burst_roles(settings));
    objects.push(value(&burst_deployment(settings)));
    objects
}

fn burst_deployment(settings: &InstallSettings) -> Deployment {
    let mut arguments = vec![
        "burst-controller".to_owned(),
        format!("--bind=[::]:{PORT}"),
        format!("--operator-url={}", settings.report_url()),
        format!("--agent-image={}", settings.image),
        format!("--cluster-domain={}", settings.cluster_domain),
    ];
    let served = settings.burst_namespaces.iter();
    arguments.extend(served.map(|namespace| format!("--serve={namespace}")));
    // The rights alone do not say it: those for --gke-image are the same.
    arguments.extend(settings.burst_clusters.commands.then(|| "--commands".to_owned()));
    arguments.extend(settings.gke_image.iter().map(|image| format!("--gke-image={image}")));
    if let Some(watched) = &settings.watched_namespace {
        arguments.push(format!("--namespace={watched}"));
    }
    let controller = Program {
        name: BURST_CONTROLLER,
        container: "burst-controller",
        selector: BTreeMap::from([("control-plane".to_owned(), BURST_CONTROLLER.to_owned())]),
        // Two would decide at the same time.
        replicas: 1,
        strategy: Some(DeploymentStrategy {
            type_: Some("Recreate".into()),
            ..DeploymentStrategy::default()
        }),
        arguments,
        environment: None,
        memory_request: "16Mi",
        // 10,000 pending jobs take some 10 MB; it is decided about four namespaces at the same time, and
        // 32 targets answer up to 1 MiB each.
        memory_limit: "256Mi",
        grace_seconds: GRACE_SECONDS,
    };
    deployment(settings, controller)
}
