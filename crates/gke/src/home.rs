//! The Secret at home, from which the burst controller reads the kubeconfig.

use flux_operator_wire::{BURST_LABEL, KUBECONFIG_KEY};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::pace::{Pace, until_done};
use crate::settings::Settings;
use crate::trouble::{Failure, Trouble};
use k8s_openapi::api::core::v1::Secret;

/// Under which name the Secret's fields are applied.
const FIELD_MANAGER: &str = "flux-operator-gke";

/// Writes the kubeconfig.
pub(crate) async fn write(
    client: &Client,
    settings: &Settings,
    kubeconfig: &str,
    pace: Pace,
) -> Result<(), Failure> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &settings.namespace);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": settings.secret, "labels": { BURST_LABEL: settings.name } },
        "stringData": { KUBECONFIG_KEY: kubeconfig },
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let attempt = async || {
        let written = secrets.patch(&settings.secret, &parameters, &Patch::Apply(&secret)).await;
        let doing = "write the Secret with the kubeconfig";
        written.map(|_| Some(())).map_err(|error| Trouble::of_kubernetes(doing, &error))
    };
    until_done(pace, attempt).await
}
