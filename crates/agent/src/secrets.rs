//! The two secrets of a cluster: the certificate that brokers share, and the
//! key that seals reports.
//!
//! Neither is ever printed; errors contain the path but never the content.

use std::io;
use std::path::{Path, PathBuf};

use flux_operator_flux::{Certificate, CertificateError};
use flux_operator_wire::names::file;
use flux_operator_wire::seal::{SealKey, SealKeyError};
use zeroize::Zeroizing;

use crate::files::{self, WriteError};

/// The maximum size of a secret that is read; a certificate has some 400 bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// Why the broker has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFileError {
    /// Its file cannot be read.
    #[error("failed to read the certificate {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not valid.
    #[error("the certificate {path:?} is not valid")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: CertificateError,
    },
    /// The broker's copy cannot be written.
    #[error("failed to copy the certificate")]
    Copy {
        /// Why.
        source: WriteError,
    },
}

/// Why a key that seals messages cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReportKeyError {
    /// Its file cannot be read.
    #[error("failed to read the key {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not valid.
    #[error("the key {path:?} is not valid")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: SealKeyError,
    },
}

/// Checks the certificate and copies it to a file that only its owner can read, as Flux
/// requires.
pub fn copy_certificate(secrets: &Path, copy: &Path) -> Result<(), CertificateFileError> {
    let path = secrets.join(file::CERTIFICATE);
    let text = match read(&path) {
        Ok(text) => text,
        Err(source) => return Err(CertificateFileError::Read { path, source }),
    };
    if let Err(source) = Certificate::parse(&text) {
        return Err(CertificateFileError::Parse { path, source });
    }
    files::write(copy, text.as_bytes(), 0o600)
        .map_err(|source| CertificateFileError::Copy { source })
}

/// Reads the key that seals reports.
pub fn read_report_key(secrets: &Path) -> Result<SealKey, ReportKeyError> {
    read_key(secrets.join(file::REPORT_KEY))
}

/// Reads the key of an invitation to another Kubernetes cluster.
pub fn read_invitation_key(secrets: &Path) -> Result<SealKey, ReportKeyError> {
    read_key(secrets.join(file::INVITATION_KEY))
}

fn read_key(path: PathBuf) -> Result<SealKey, ReportKeyError> {
    let text = match read(&path) {
        Ok(text) => text,
        Err(source) => return Err(ReportKeyError::Read { path, source }),
    };
    SealKey::parse(&text).map_err(|source| ReportKeyError::Parse { path, source })
}

fn read(path: &Path) -> io::Result<Zeroizing<String>> {
    use std::io::Read;
    let mut file = std::fs::File::open(path)?.take(MAX_BYTES);
    // Allocated with its full capacity: a string that grows leaves copies in memory.
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize + 1));
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_flux::{Metadata, SecretKey};
    use std::error::Error;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_copy_is_readable_only_by_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let certificate =
            Certificate::new(SecretKey::from_bytes([7; 32]), Metadata::new("test").unwrap());
        let text = certificate.to_secret_text();
        std::fs::write(directory.path().join("curve.cert"), text.as_bytes()).unwrap();
        let copy = directory.path().join("copy");
        copy_certificate(directory.path(), &copy).unwrap();
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), *text);
        assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn errors_do_not_contain_the_secret() {
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("copy");
        let error = copy_certificate(directory.path(), &copy).unwrap_err();
        assert!(matches!(error, CertificateFileError::Read { .. }));
        let hidden = "curve\n    secret-key = \"visible?\"\n";
        std::fs::write(directory.path().join("curve.cert"), hidden).unwrap();
        std::fs::write(directory.path().join("report.key"), hidden).unwrap();
        let certificate = copy_certificate(directory.path(), &copy).unwrap_err();
        let key = read_report_key(directory.path()).unwrap_err();
        for error in [&certificate as &dyn Error, &key] {
            let shown = format!("{error} {error:?} {:?}", error.source());
            assert!(!shown.contains("visible"), "{shown}");
        }
        assert!(!copy.exists());
    }
}
