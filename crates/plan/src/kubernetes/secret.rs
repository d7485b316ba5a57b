//! The Secret with the cluster's keys. Made once, never rewritten: new and old
//! pods with different keys could not talk to each other.

use std::collections::BTreeMap;

use flux_operator_api::MiniCluster;
use flux_operator_flux::Certificate;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use super::Rendering;

/// The certificate's key in the Secret.
pub const CERTIFICATE_KEY: &str = "curve.cert";

/// The report key's key in the Secret.
pub const REPORT_KEY: &str = "report.key";

/// The keys of a cluster. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub struct Keys {
    /// What brokers know each other by.
    pub certificate: Certificate,
    /// What reports are sealed with; none where nobody listens.
    pub report: Option<SealKey>,
}

/// Name of the Secret with a cluster's keys.
pub fn secret_name(minicluster: &MiniCluster) -> String {
    given(minicluster).map_or_else(|| format!("{}-flux", minicluster.name_any()), str::to_owned)
}

/// Whether the Secret is ours to make.
pub fn owns_secret(minicluster: &MiniCluster) -> bool {
    given(minicluster).is_none()
}

fn given(minicluster: &MiniCluster) -> Option<&str> {
    let name = minicluster.spec.flux.as_ref()?.curve_cert_secret.as_str();
    (!name.is_empty()).then_some(name)
}

/// The Secret of a cluster.
pub fn secret(rendering: &Rendering<'_>, keys: &Keys) -> Secret {
    let certificate = (CERTIFICATE_KEY, keys.certificate.to_secret_text());
    let report = keys.report.as_ref().map(|key| (REPORT_KEY, key.to_secret_text()));
    let data = std::iter::once(certificate)
        .chain(report)
        .map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())));
    Secret {
        metadata: rendering.metadata(rendering.secret_name()),
        immutable: Some(true),
        data: Some(BTreeMap::from_iter(data)),
        type_: Some("Opaque".into()),
        ..Secret::default()
    }
}
