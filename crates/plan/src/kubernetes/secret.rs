//! The Secret with the cluster's keys. It is created once and never rewritten: new and old
//! pods with different keys could not communicate.

use std::collections::BTreeMap;

use flux_operator_api::MiniCluster;
use flux_operator_flux::Certificate;
use flux_operator_wire::names::file;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec, Secret, SecretVolumeSource, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::Rendering;
use super::volume::KEYS_VOLUME;
use crate::joining::allows;

/// The longest name of an object.
const MAX_NAME: usize = 253;

/// The keys of a cluster. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The certificate by which brokers authenticate each other; none if it is in another Secret.
    pub certificate: Option<Certificate>,
    /// The key that reports are sealed with; none if agents do not report.
    pub report: Option<SealKey>,
}

/// Name of the Secret with a cluster's keys: the one that its Job mounts, if it has a Job.
///
/// The name has a part of the MiniCluster's uid. The kubelet keeps an immutable Secret as long as a
/// pod uses it. Pods of a MiniCluster that is created again with the same name would get the keys
/// of the former one, while its pods terminate.
pub fn secret_name(minicluster: &MiniCluster, job: Option<&Job>) -> String {
    let uid = minicluster.uid().unwrap_or_default();
    let own = job.filter(|job| job.owner_references().iter().any(|owner| owner.uid == uid));
    let name = minicluster.name_any();
    own.and_then(mounted_secret).unwrap_or_else(|| match short_uid(&uid) {
        short if short.is_empty() => format!("{name}-flux"),
        short => format!("{name}-flux-{short}"),
    })
}

/// The part of a Job's template that decisions use: the name of the Secret with the keys. Anyone can
/// create a Job with our label and a volume of any size.
pub fn with_keys_only(template: &PodTemplateSpec) -> PodTemplateSpec {
    let keys = keys_secret(template).filter(|name| name.len() <= MAX_NAME).map(|name| Volume {
        name: KEYS_VOLUME.into(),
        secret: Some(SecretVolumeSource { secret_name: Some(name), ..Default::default() }),
        ..Volume::default()
    });
    let spec = PodSpec { volumes: Some(keys.into_iter().collect()), ..PodSpec::default() };
    PodTemplateSpec { spec: Some(spec), metadata: None }
}

/// The Secret with keys that the pods of a Job mount. Earlier builds used another name.
pub(crate) fn mounted_secret(job: &Job) -> Option<String> {
    keys_secret(&job.spec.as_ref()?.template)
}

fn keys_secret(template: &PodTemplateSpec) -> Option<String> {
    let volumes = template.spec.as_ref()?.volumes.as_ref()?;
    let keys = volumes.iter().find(|volume| volume.name == KEYS_VOLUME)?;
    match (&keys.secret, &keys.projected) {
        (Some(secret), _) => secret.secret_name.clone(),
        (None, Some(projected)) => {
            Some(projected.sources.as_ref()?.first()?.secret.as_ref()?.name.clone())
        }
        (None, None) => None,
    }
}

/// The Secret of the user with the certificate. A joiner of a lender in this Kubernetes cluster uses
/// a copy of the lender's.
pub fn user_secret(minicluster: &MiniCluster) -> Option<&str> {
    let spec = &minicluster.spec;
    let name = spec.flux.as_ref()?.curve_cert_secret.as_str();
    let copies = spec.is_joiner() && spec.remote_lead().is_none();
    (!name.is_empty() && !copies).then_some(name)
}

/// The length of the part of a name that tells the keys of objects with the same name apart.
const SHORT_UID: usize = 8;

/// The start of a uid, for names.
fn short_uid(uid: &str) -> String {
    uid.chars().filter(char::is_ascii_alphanumeric).take(SHORT_UID).collect()
}

/// Name of the Secret with a joiner's copy of a lender's certificate. It is immutable, and another
/// instance may have another certificate, so the name has a part of the uid of the lender's Job.
pub(super) fn certificate_name(joiner: &str, job_uid: &str) -> String {
    format!("{joiner}-lender-{}", short_uid(job_uid))
}

/// A Secret with a copy of a lender's certificate, and of nothing else: the lender's own Secret
/// also has the key of its reports.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateCopy {
    metadata: ObjectMeta,
    /// Namespace of the lender's Secret.
    pub from_namespace: String,
    /// Name of the lender's Secret.
    pub from_name: String,
    /// Name of the lender.
    pub lender_name: String,
    /// Uid of the lender: another one of the same name may not allow the joiner.
    lender: String,
    /// The lender's user has made the Secret, so that it has no owner.
    is_users: bool,
}

impl CertificateCopy {
    /// The copy for a joiner.
    pub(crate) fn of(
        rendering: &Rendering<'_>,
        lender: &MiniCluster,
        job: &Job,
    ) -> CertificateCopy {
        let name = certificate_name(rendering.name(), &job.uid().unwrap_or_default());
        CertificateCopy {
            metadata: rendering.metadata(name),
            from_namespace: lender.namespace().unwrap_or_default(),
            from_name: user_secret(lender)
                .map_or_else(|| secret_name(lender, Some(job)), ToOwned::to_owned),
            is_users: user_secret(lender).is_some(),
            lender_name: lender.name_any(),
            lender: lender.uid().unwrap_or_default(),
        }
    }

    /// Whether the lender allows it. It must be read from the API server: a namespace that it does
    /// not allow any more must not get its certificate.
    pub fn is_allowed_by(&self, lender: &MiniCluster) -> bool {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        lender.metadata.uid.as_ref() == Some(&self.lender) && allows(lender, namespace)
    }

    /// The Secret, from the lender's; `None` if that is another's, or has no certificate.
    pub fn secret(&self, lender: Secret) -> Option<Secret> {
        let is_own = lender.owner_references().iter().any(|owner| owner.uid == self.lender);
        if !is_own && !self.is_users {
            return None;
        }
        let certificate = lender.data?.remove(file::CERTIFICATE)?;
        Some(Secret {
            metadata: self.metadata.clone(),
            immutable: Some(true),
            data: Some(BTreeMap::from([(file::CERTIFICATE.to_owned(), certificate)])),
            type_: Some("Opaque".into()),
            ..Secret::default()
        })
    }
}

/// Keys that are not generated yet: everything of their Secret that needs no randomness.
#[derive(Clone, Debug)]
pub struct NewKeys {
    metadata: ObjectMeta,
    /// Where the certificate comes from.
    pub certificate: NewCertificate,
}

/// Where a certificate comes from.
#[derive(Clone, Debug)]
pub enum NewCertificate {
    /// The user provides it.
    Given(Certificate),
    /// It is generated.
    Generated,
    /// It is in another Secret: the user's, or a copy of the lender's.
    Elsewhere,
}

/// A certificate cannot be compared, so that no comparison can leak it by its timing. Plans
/// are compared only in tests.
impl PartialEq for NewKeys {
    fn eq(&self, other: &NewKeys) -> bool {
        let text = |keys: &NewKeys| match &keys.certificate {
            NewCertificate::Given(given) => Some(given.to_secret_text().as_bytes().to_vec()),
            NewCertificate::Generated => Some(Vec::new()),
            NewCertificate::Elsewhere => None,
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
            certificate: match given.and_then(|text| Certificate::parse(text).ok()) {
                _ if rendering.has_certificate_elsewhere() => NewCertificate::Elsewhere,
                Some(given) => NewCertificate::Given(given),
                // One that cannot be parsed was refused before.
                None => NewCertificate::Generated,
            },
        }
    }

    /// The Secret with these keys.
    pub fn secret(&self, keys: &Keys) -> Secret {
        let certificate =
            keys.certificate.as_ref().map(|it| (file::CERTIFICATE, it.to_secret_text()));
        let report = keys.report.as_ref().map(|key| (file::REPORT_KEY, key.to_secret_text()));
        let data = certificate
            .into_iter()
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

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_testkit::smallest_minicluster;
    use serde_json::{Value, json};

    fn job(volume: Value) -> Job {
        let owner = json!({ "apiVersion": "", "kind": "MiniCluster", "name": "fs", "uid": "1-2a" });
        let other = json!({ "name": "data", "secret": { "secretName": "theirs" } });
        let pod = json!({ "containers": [{ "name": "fs" }], "volumes": [other, volume] });
        serde_json::from_value(json!({ "metadata": { "ownerReferences": [owner] },
            "spec": { "template": { "metadata": { "labels": { "a": "b" } }, "spec": pod } } }))
        .unwrap()
    }

    /// Also of what the operator keeps of a Job in memory.
    #[test]
    fn a_running_cluster_keeps_the_secret_that_its_pods_mount() {
        let mut manifest = smallest_minicluster("fs");
        manifest["metadata"]["uid"] = json!("1-2a");
        let minicluster: MiniCluster = serde_json::from_value(manifest).unwrap();
        assert_eq!(secret_name(&minicluster, None), "fs-flux-12a");
        let plain = json!({ "name": KEYS_VOLUME, "secret": { "secretName": "fs-flux" } });
        let sources =
            json!([{ "secret": { "name": "fs-flux" } }, { "secret": { "name": "copy" } }]);
        let projected = json!({ "name": KEYS_VOLUME, "projected": { "sources": sources } });
        for volume in [plain, projected] {
            let mut earlier = job(volume);
            let spec = earlier.spec.as_mut().unwrap();
            spec.template = with_keys_only(&spec.template);
            assert_eq!(spec.template.spec.as_ref().unwrap().volumes.as_ref().unwrap().len(), 1);
            assert_eq!(secret_name(&minicluster, Some(&earlier)), "fs-flux");
            earlier.metadata.owner_references = None;
            assert_eq!(secret_name(&minicluster, Some(&earlier)), "fs-flux-12a", "another's Job");
        }
    }
}
