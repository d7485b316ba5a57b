//! The certificate authority of one testbed and the certificates it signs.
//!
//! Kubernetes identifies a client by its certificate: the common name is the user, the
//! organizations are the groups. All keys are generated at every start and are in `pki/`, which
//! only the owner can read.

use std::net::{IpAddr, Ipv4Addr};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use crate::files::{self, FileError};
use crate::layout::TestbedDirectory;
use crate::slot::Slot;

/// The organization whose members have all permissions.
const ADMINISTRATORS: &str = "system:masters";

/// The client that may make requests on behalf of other users.
pub(crate) const FRONT_PROXY: &str = "testbed-front-proxy";

/// Why the certificates could not be created.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A certificate could not be created.
    #[error("failed to create the certificate of {name:?}")]
    Certificate {
        /// The common name.
        name: String,
        /// Why.
        source: rcgen::Error,
    },
    /// A file could not be written.
    #[error("failed to write a certificate")]
    File(#[source] FileError),
}

/// A certificate to create: the file's stem, the common name, the organization and the hosts.
struct CertificateRequest {
    file: &'static str,
    name: String,
    organization: Option<&'static str>,
    hosts: Vec<SanType>,
}

/// Clients that get a kubeconfig: component and file stem are the same.
pub(crate) const CLIENTS: [&str; 6] =
    ["admin", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns"];

/// Creates the certificate authority and all certificates of a testbed.
pub(crate) fn create(home: &TestbedDirectory, slot: Slot) -> Result<(), PkiError> {
    files::create_private_directory(&home.pki("")).map_err(PkiError::File)?;
    let failed = |name: &str| {
        let name = name.to_owned();
        move |source| PkiError::Certificate { name, source }
    };

    const AUTHORITY: &str = "testbed-ca";
    let authority_key = KeyPair::generate().map_err(failed(AUTHORITY))?;
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = distinguished_name(AUTHORITY, None);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = parameters.self_signed(&authority_key).map_err(failed(AUTHORITY))?;
    write_pair(home, "ca", &authority.pem(), &authority_key)?;
    let issuer = Issuer::new(parameters, authority_key);

    for identity in certificate_requests(slot) {
        let key = KeyPair::generate().map_err(failed(&identity.name))?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = distinguished_name(&identity.name, identity.organization);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // etcd is a server for the API server and a client of itself.
        parameters.extended_key_usages = match identity.hosts.as_slice() {
            [] => vec![ExtendedKeyUsagePurpose::ClientAuth],
            _ => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        parameters.subject_alt_names = identity.hosts;
        let certificate = parameters.signed_by(&key, &issuer).map_err(failed(&identity.name))?;
        write_pair(home, identity.file, &certificate.pem(), &key)?;
    }

    let accounts = KeyPair::generate().map_err(failed("service accounts"))?;
    files::write(&home.pki("service-accounts.pub"), accounts.public_key_pem())
        .map_err(PkiError::File)?;
    files::write_private(&home.pki("service-accounts.key"), accounts.serialize_pem())
        .map_err(PkiError::File)
}

fn certificate_requests(slot: Slot) -> Vec<CertificateRequest> {
    let client = |file, name: &str, organization| CertificateRequest {
        file,
        name: name.to_owned(),
        organization,
        hosts: Vec::new(),
    };
    let server = |file, name: &str, addresses: &[Ipv4Addr], names: &[&str]| CertificateRequest {
        file,
        name: name.to_owned(),
        organization: None,
        hosts: alternative_names(addresses, names),
    };
    let node_name = slot.node_name();
    vec![
        client("admin", "testbed-admin", Some(ADMINISTRATORS)),
        // All controllers use this identity, see [`crate::control_plane`].
        client("kube-controller-manager", "system:kube-controller-manager", Some(ADMINISTRATORS)),
        client("kube-scheduler", "system:kube-scheduler", None),
        client("kubelet", &format!("system:node:{node_name}"), Some("system:nodes")),
        client("kube-proxy", "system:kube-proxy", None),
        // Kubernetes has no built-in role for a DNS server.
        client("coredns", "testbed-coredns", Some(ADMINISTRATORS)),
        client("apiserver-kubelet-client", "testbed-apiserver", Some(ADMINISTRATORS)),
        client("front-proxy", FRONT_PROXY, None),
        client("apiserver-etcd-client", "testbed-apiserver", None),
        server("etcd", "testbed-etcd", &[Ipv4Addr::LOCALHOST], &["localhost"]),
        server("kubelet-server", &node_name, &[slot.node_address()], &[&node_name]),
        server(
            "apiserver",
            "kube-apiserver",
            &[Ipv4Addr::LOCALHOST, slot.host_address(), slot.api_service_address()],
            &[
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
            ],
        ),
    ]
}

fn alternative_names(addresses: &[Ipv4Addr], names: &[&str]) -> Vec<SanType> {
    let addresses = addresses.iter().map(|address| SanType::IpAddress(IpAddr::V4(*address)));
    let names = names
        .iter()
        .map(|name| SanType::DnsName((*name).try_into().expect("these names are plain ASCII")));
    addresses.chain(names).collect()
}

fn distinguished_name(name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    if let Some(organization) = organization {
        distinguished.push(DnType::OrganizationName, organization);
    }
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn write_pair(
    home: &TestbedDirectory,
    file: &str,
    certificate: &str,
    key: &KeyPair,
) -> Result<(), PkiError> {
    files::write(&home.pki(&format!("{file}.crt")), certificate).map_err(PkiError::File)?;
    files::write_private(&home.pki(&format!("{file}.key")), key.serialize_pem())
        .map_err(PkiError::File)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_private_and_every_client_has_a_certificate() {
        let path = std::env::temp_dir().join(format!("testbed-pki-{}", std::process::id()));
        let home = TestbedDirectory::at(path.clone());
        create(&home, Slot::new(1).unwrap()).unwrap();
        for client in CLIENTS {
            let certificate = std::fs::read_to_string(home.pki(&format!("{client}.crt"))).unwrap();
            assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{client}");
        }
        for entry in std::fs::read_dir(home.pki("")).unwrap().flatten() {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            let is_key = entry.path().extension().is_some_and(|extension| extension == "key");
            assert_eq!(is_key, mode == 0o600, "{:?} {mode:o}", entry.path());
        }
        files::remove_tree(&path).unwrap();
    }

    #[test]
    fn the_api_servers_certificate_has_all_its_addresses() {
        let slot = Slot::new(2).unwrap();
        let server =
            certificate_requests(slot).into_iter().find(|each| each.file == "apiserver").unwrap();
        for address in ["127.0.0.1", "10.213.2.1", "10.215.32.1"] {
            assert!(server.hosts.contains(&SanType::IpAddress(address.parse().unwrap())));
        }
    }
}
