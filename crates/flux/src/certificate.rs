//! The CURVE certificate that all brokers of an instance share.
//!
//! A broker reads it from the file `bootstrap.curve_cert`, and can join the instance if it has
//! the same key as the lead. The text is ZPL (ZeroMQ RFC 4) as CZMQ and `flux keygen` write it.
//! flux-core supports only a part of ZPL; this module accepts the same part as flux-core 0.88
//! (`libzmqutil/cert.c`), so that every certificate accepted here works for a broker:
//!
//! ```text
//! #  ZeroMQ CURVE **Secret** Certificate
//! #  DO NOT DISTRIBUTE
//!
//! metadata
//!     name = "demo"
//! curve
//!     public-key = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
//!     secret-key = "<40 characters>"
//! ```
//!
//! The whole text is a secret. It is only returned by [`Certificate::to_secret_text`]. Errors
//! contain the line number and never the line, because an invalid line may still contain the key.

mod metadata;

use zeroize::Zeroizing;

use crate::secret_key::{KeyError, PublicKey, SecretKey};
use crate::z85::TEXT_LENGTH;
use metadata::MAX_LINE_LENGTH;
pub use metadata::{Keygen, Metadata, MetadataError};

const HEADER: &str = "\
#  ZeroMQ CURVE **Secret** Certificate
#  DO NOT DISTRIBUTE

metadata
";

/// A key pair with its metadata. `Debug` does not print the secret key.
#[derive(Clone, Debug)]
pub struct Certificate {
    secret_key: SecretKey,
    public_key: PublicKey,
    metadata: Metadata,
}

/// Why a text is not a certificate. Contains the line number, never the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// A line longer than flux-core accepts.
    #[error("certificate has more than {MAX_LINE_LENGTH} bytes in line {line}")]
    LineTooLong {
        /// From 1.
        line: usize,
    },
    /// Neither a section, nor an entry in one, nor a comment.
    #[error("certificate has an invalid line {line}")]
    InvalidLine {
        /// From 1.
        line: usize,
    },
    /// An entry that is not `key = "value"`.
    #[error("certificate has no quoted value in line {line}")]
    Value {
        /// From 1.
        line: usize,
    },
    /// Metadata that Flux does not accept.
    #[error("certificate has invalid metadata in line {line}")]
    Metadata {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        source: MetadataError,
    },
    /// A key that is not Z85.
    #[error("certificate has an invalid key in line {line}")]
    Key {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        source: KeyError,
    },
    /// The same key twice.
    #[error("certificate has a second key of the same kind in line {line}")]
    Duplicate {
        /// From 1.
        line: usize,
    },
    /// The lead's broker cannot authorize peers without a name.
    #[error("certificate has no name in its metadata")]
    NoName,
    /// No line `public-key`.
    #[error("certificate has no public key")]
    NoPublicKey,
    /// No line `secret-key`.
    #[error("certificate has no secret key")]
    NoSecretKey,
    /// The keys are not a pair.
    #[error("the public key of the certificate does not belong to its secret key")]
    Mismatch,
}

/// The section that a line is in.
#[derive(Clone, Copy)]
enum Section {
    None,
    Metadata,
    Curve,
}

impl Certificate {
    /// The certificate of `secret_key`. Same arguments, same certificate.
    pub fn new(secret_key: SecretKey, metadata: Metadata) -> Self {
        Self { public_key: secret_key.public_key(), secret_key, metadata }
    }

    /// Parses a certificate and checks that its keys are a pair.
    pub fn parse(text: &str) -> Result<Self, CertificateError> {
        let mut section = Section::None;
        let mut metadata = Metadata::empty();
        let mut secret_key = None;
        let mut public_key = None;
        for (index, content) in text.split('\n').enumerate() {
            let line = index + 1;
            if content.len() > MAX_LINE_LENGTH {
                return Err(CertificateError::LineTooLong { line });
            }
            let indented = content.starts_with([' ', '\t']);
            let content = strip(content);
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            match (indented, section) {
                (false, _) if content == "metadata" => section = Section::Metadata,
                (false, _) if content == "curve" => section = Section::Curve,
                (true, Section::Metadata) => {
                    let (key, value) = split_entry(content, line)?;
                    metadata
                        .set(key, value)
                        .map_err(|source| CertificateError::Metadata { line, source })?;
                }
                (true, Section::Curve) => {
                    let (key, value) = split_entry(content, line)?;
                    let bad = |source| CertificateError::Key { line, source };
                    let second = match key {
                        "public-key" => public_key.replace(value.parse().map_err(bad)?).is_some(),
                        "secret-key" => {
                            let key = SecretKey::parse(value).map_err(bad)?;
                            secret_key.replace(key).is_some()
                        }
                        _ => return Err(CertificateError::InvalidLine { line }),
                    };
                    if second {
                        return Err(CertificateError::Duplicate { line });
                    }
                }
                _ => return Err(CertificateError::InvalidLine { line }),
            }
        }
        if !metadata.has_name() {
            return Err(CertificateError::NoName);
        }
        let public_key: PublicKey = public_key.ok_or(CertificateError::NoPublicKey)?;
        let secret_key = secret_key.ok_or(CertificateError::NoSecretKey)?;
        let certificate = Self::new(secret_key, metadata);
        if certificate.public_key != public_key {
            return Err(CertificateError::Mismatch);
        }
        Ok(certificate)
    }

    /// The public key.
    pub fn public_key(&self) -> PublicKey {
        self.public_key
    }

    /// The certificate's metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The text of the certificate **with the secret key**, for a Kubernetes Secret or a file that
    /// only its owner can read. It is zeroed when dropped; copies of it are not.
    pub fn to_secret_text(&self) -> Zeroizing<String> {
        // Allocated with its full capacity, because a string that grows leaves copies in memory.
        let capacity = HEADER.len() + self.metadata.text_length() + 2 * TEXT_LENGTH + 64;
        let mut text = Zeroizing::new(String::with_capacity(capacity));
        text.push_str(HEADER);
        for (key, value) in self.metadata.iter() {
            for part in ["    ", key, " = \"", value, "\"\n"] {
                text.push_str(part);
            }
        }
        text.push_str("curve\n    public-key = \"");
        text.push_str(&self.public_key.to_string());
        text.push_str("\"\n    secret-key = \"");
        self.secret_key.write_secret_text(&mut text);
        text.push_str("\"\n");
        debug_assert!(text.len() <= capacity);
        text
    }
}

/// Trims what C's `isspace` matches.
fn strip(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c'])
}

/// Splits `key = "value"`. There are no escapes: the callers reject a value that contains a quote.
fn split_entry(content: &str, line: usize) -> Result<(&str, &str), CertificateError> {
    let entry = content.split_once('=').and_then(|(key, value)| {
        let value = strip(value).strip_prefix('"')?.strip_suffix('"')?;
        Some((strip(key), value))
    });
    entry.ok_or(CertificateError::Value { line })
}

#[cfg(test)]
mod tests;
