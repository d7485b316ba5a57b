//! Generates keys for a cluster, with the operating system's random number generator.

use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_plan::kubernetes::{Keys, NewCertificate, NewKeys};
use flux_operator_wire::seal::SealKey;

/// Why no keys could be generated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyGenerationError {
    #[error("failed to read random bytes from the operating system")]
    Randomness,
}

/// Generates the keys of a cluster that has none yet: a report key, and a certificate unless the
/// user or a lender provides one.
pub(crate) fn generate_keys(new: &NewKeys) -> Result<Keys, KeyGenerationError> {
    let certificate = match &new.certificate {
        NewCertificate::Given(given) => Some(given.clone()),
        NewCertificate::Generated => Some(generate_certificate()?),
        NewCertificate::Elsewhere => None,
    };
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| KeyGenerationError::Randomness)?;
    Ok(Keys { certificate, report: Some(SealKey::from_bytes(bytes)) })
}

fn generate_certificate() -> Result<Certificate, KeyGenerationError> {
    let key = SecretKey::from_os().map_err(|_| KeyGenerationError::Randomness)?;
    let metadata = Metadata::new("flux-operator").expect("Flux accepts all its characters");
    Ok(Certificate::new(key, metadata))
}
