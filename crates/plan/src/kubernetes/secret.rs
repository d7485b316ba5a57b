//! The Secret with the cluster's keys. It is created once and never rewritten: new and old
//! pods with different keys could not communicate.

use std::collections::BTreeMap;

use flux_operator_api::MiniCluster;
use flux_operator_flux::Certificate;
use flux_operator_wire::names::file;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::Rendering;

/// The keys of a cluster. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The certificate by which brokers authenticate each other.
    pub certificate: Certificate,
    /// The key that reports are sealed with; none if agents do not report.
    pub report: Option<SealKey>,
}

/// Name of the Secret with a cluster's keys.
pub fn secret_name(minicluster: &MiniCluster) -> String {
    user_secret(minicluster)
        .map_or_else(|| format!("{}-flux", minicluster.name_any()), str::to_owned)
}

/// Whether the operator creates the Secret.
pub fn owns_secret(minicluster: &MiniCluster) -> bool {
    user_secret(minicluster).is_none()
}

fn user_secret(minicluster: &MiniCluster) -> Option<&str> {
    let name = minicluster.spec.flux.as_ref()?.curve_cert_secret.as_str();
    (!name.is_empty()).then_some(name)
}

/// Keys that are not generated yet: everything of their Secret that needs no randomness.
#[derive(Clone, Debug)]
pub struct NewKeys {
    metadata: ObjectMeta,
    /// The certificate that the user provides; if there is none, one is generated.
    pub certificate: Option<Certificate>,
}

/// A certificate cannot be compared, so that no comparison can leak it by its timing. Plans
/// are compared only in tests.
impl PartialEq for NewKeys {
    fn eq(&self, other: &NewKeys) -> bool {
        let text = |keys: &NewKeys| {
            let certificate = keys.certificate.as_ref();
            certificate.map(|certificate| certificate.to_secret_text().as_bytes().to_vec())
        };
        self.metadata == other.metadata && text(self) == text(other)
    }
}

impl NewKeys {
    /// The keys of a cluster.
    pub fn of(rendering: &Rendering<'_>) -> NewKeys {
        let flux = rendering.minicluster.spec.flux.as_ref();
        let given = flux.map(|flux| flux.curve_cert.as_str()).filter(|text| !text.is_empty());
        NewKeys {
            metadata: rendering.metadata(rendering.secret_name()),
            // A certificate that cannot be parsed was refused before.
            certificate: given.and_then(|text| Certificate::parse(text).ok()),
        }
    }

    /// The Secret with these keys.
    pub fn secret(&self, keys: &Keys) -> Secret {
        let certificate = (file::CERTIFICATE, keys.certificate.to_secret_text());
        let report = keys.report.as_ref().map(|key| (file::REPORT_KEY, key.to_secret_text()));
        let data = std::iter::once(certificate)
            .chain(report)
            .map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())));
        Secret {
            metadata: self.metadata.clone(),
            immutable: Some(true),
            data: Some(BTreeMap::from_iter(data)),
            type_: Some("Opaque".into()),
            ..Secret::default()
        }
    }
}
