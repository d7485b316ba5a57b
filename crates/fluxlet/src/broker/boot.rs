//! Determines a broker's rank, the hosts of all ranks, and how to reach the lead.
//!
//! There are three methods, as in Flux: from the `[bootstrap]` table; by `flux start -s`, which
//! starts several brokers on this host; or as a task of a job, where the brokers find each other
//! through the instance that runs the job. Otherwise a broker is an instance of size 1.

use std::env;

use flux_operator_flux::{
    Bootstrap, BootstrapError, Certificate, CertificateError, Metadata, SecretKey,
};
use serde::{Deserialize, Serialize};

use super::nested;
use crate::secure::SharedKey;

/// The attribute in which `flux start -s` passes a [`LocalBoot`] to a broker.
pub const LOCAL_BOOT: &str = "fluxlet.boot";

/// A broker's rank and how it reaches the others.
pub struct Boot {
    pub method: &'static str,
    pub rank: u32,
    /// The host of each rank.
    pub hosts: Vec<String>,
    /// The endpoint that the lead binds to; `None` for workers and for an instance of size 1.
    pub listen: Option<String>,
    /// The endpoint at which workers reach the lead.
    pub lead: Option<String>,
    pub key: Option<SharedKey>,
    /// Set in a nested instance.
    pub nested: Option<nested::Nested>,
}

/// What `flux start -s` passes to each broker.
#[derive(Serialize, Deserialize)]
pub struct LocalBoot {
    pub rank: u32,
    pub size: u32,
    pub endpoint: String,
    pub certificate: String,
}

/// Why a broker could not determine its rank.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("bad [bootstrap] table")]
    Bootstrap { source: BootstrapError },
    #[error("config: initialize: Config file error [bootstrap]: {hostname} not found in hosts")]
    Absent { hostname: String },
    #[error("{host} has no {key} address in config")]
    Address { host: String, key: &'static str },
    #[error("failed to read the certificate {path}")]
    ReadCertificate { path: String, source: std::io::Error },
    #[error("certificate {path} can be read by others")]
    OpenCertificate { path: String },
    #[error("bad certificate {path}")]
    Certificate { path: String, source: CertificateError },
    #[error("failed to generate a certificate")]
    Random { source: flux_operator_flux::secret_key::RandomnessError },
    #[error("bad attribute {LOCAL_BOOT}")]
    Local { source: serde_json::Error },
    #[error("failed to join the job that this broker is a task of")]
    Nested { source: nested::NestedError },
}

/// Determines the rank of the broker on `hostname`.
pub fn boot(
    bootstrap: Option<&Bootstrap>,
    hostname: &str,
    local: Option<&str>,
) -> Result<Boot, BootError> {
    if let Some(text) = local {
        return boot_locally(text, hostname);
    }
    if let Some(bootstrap) = bootstrap.filter(|table| !table.hosts.is_empty()) {
        return boot_from_table(bootstrap, hostname);
    }
    let task = nested::ParentTask::from_environment(|name| env::var(name).ok());
    if let Some(task) = task {
        return nested::boot(&task, hostname).map_err(|source| BootError::Nested { source });
    }
    let hosts = vec![hostname.to_owned()];
    Ok(Boot { method: "single", rank: 0, hosts, listen: None, lead: None, key: None, nested: None })
}

fn boot_from_table(bootstrap: &Bootstrap, hostname: &str) -> Result<Boot, BootError> {
    let ranks = bootstrap.ranks().map_err(|source| BootError::Bootstrap { source })?;
    let found = ranks.iter().zip(0u32..).find(|(host, _)| host.name == hostname);
    let (_, rank) = found.ok_or_else(|| BootError::Absent { hostname: hostname.to_owned() })?;
    let lead = &ranks[0];
    let missing = |key| BootError::Address { host: lead.name.clone(), key };
    let (mut listen, mut connect) = (None, None);
    if rank > 0 {
        connect = Some(lead.connect.clone().ok_or_else(|| missing("connect"))?);
    } else if ranks.len() > 1 {
        listen = Some(lead.bind.clone().ok_or_else(|| missing("bind"))?);
    }
    let key = match (&bootstrap.curve_cert, ranks.len()) {
        (Some(path), 2..) => Some(SharedKey::new(&read_certificate(path)?)),
        _ => None,
    };
    let hosts = ranks.into_iter().map(|host| host.name).collect();
    Ok(Boot { method: "config", rank, hosts, listen, lead: connect, key, nested: None })
}

fn boot_locally(text: &str, hostname: &str) -> Result<Boot, BootError> {
    let local: LocalBoot =
        serde_json::from_str(text).map_err(|source| BootError::Local { source })?;
    let key = SharedKey::new(&read_certificate(&local.certificate)?);
    let hosts = vec![hostname.to_owned(); local.size as usize];
    let lead = (local.rank > 0).then(|| local.endpoint.clone());
    let listen = (local.rank == 0 && local.size > 1).then_some(local.endpoint);
    let rank = local.rank;
    Ok(Boot { method: "start", rank, hosts, listen, lead, key: Some(key), nested: None })
}

/// Reads a certificate. Like Flux, it rejects one that others can read.
fn read_certificate(path: &str) -> Result<Certificate, BootError> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |source| BootError::ReadCertificate { path: path.to_owned(), source };
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(BootError::OpenCertificate { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    Certificate::parse(&text)
        .map_err(|source| BootError::Certificate { path: path.to_owned(), source })
}

/// Generates a new certificate.
pub fn new_certificate(name: &str) -> Result<Certificate, BootError> {
    let key = SecretKey::from_os().map_err(|source| BootError::Random { source })?;
    let metadata = Metadata::new(name).expect("names given here are plain words");
    Ok(Certificate::new(key, metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(certificate: &str) -> Bootstrap {
        let text = format!(
            "curve_cert = {certificate:?}\ndefault_port = 8050\ndefault_bind = \"tcp://*:%p\"\n\
             default_connect = \"tcp://%h:%p\"\nhosts = [{{ host = \"fs-[0-3]\" }}]"
        );
        let config = format!("[bootstrap]\n{text}");
        flux_operator_flux::BrokerConfig::parse(&config).unwrap().bootstrap.unwrap()
    }

    #[test]
    fn the_rank_is_the_position_in_the_table() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = new_certificate("test").unwrap().to_secret_text();
        std::fs::write(file.path(), text.as_bytes()).unwrap();
        let table = table(file.path().to_str().unwrap());
        let worker = boot(Some(&table), "fs-2", None).unwrap();
        assert_eq!((worker.rank, worker.hosts.len()), (2, 4));
        assert_eq!(worker.lead.as_deref(), Some("tcp://fs-0:8050"));
        let lead = boot(Some(&table), "fs-0", None).unwrap();
        assert_eq!(lead.listen.as_deref(), Some("tcp://*:8050"));
        let absent = boot(Some(&table), "other", None).err().unwrap();
        assert_eq!(
            absent.to_string(),
            "config: initialize: Config file error [bootstrap]: other not found in hosts"
        );
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(file.path(), open).unwrap();
        assert!(matches!(boot(Some(&table), "fs-2", None), Err(BootError::OpenCertificate { .. })));
    }
}
