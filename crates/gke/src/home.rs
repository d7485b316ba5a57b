//! The Secret at home, from which the burst controller reads the kubeconfig.

use flux_operator_wire::{BURST_LABEL, KUBECONFIG_KEY};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::pace::{Pace, in_time};
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
    let mut now = pace;
    loop {
        let attempt = async {
            let written =
                secrets.patch(&settings.secret, &parameters, &Patch::Apply(&secret)).await;
            let doing = "write the Secret with the kubeconfig";
            written.map_err(|error| Trouble::of_kubernetes(doing, &error))
        };
        match in_time(attempt).await {
            Ok(_) => return Ok(()),
            Err(Trouble::Final(failure)) => return Err(failure),
            Err(Trouble::Passing(why)) => tracing::warn!("{why}; it is tried again"),
        }
        now = now.wait().await;
    }
}
