//! Fresh keys for a cluster, from the system's randomness.

use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_plan::kubernetes::{Keys, NewKeys};
use flux_operator_wire::seal::SealKey;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("the system gives no randomness")]
    Randomness,
}

/// The keys of a cluster that has none yet: the user's certificate or a fresh
/// one, and a fresh key for reports.
pub(crate) fn new_keys(new: &NewKeys) -> Result<Keys, KeyError> {
    let certificate = match &new.certificate {
        Some(given) => given.clone(),
        None => fresh_certificate()?,
    };
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| KeyError::Randomness)?;
    Ok(Keys { certificate, report: Some(SealKey::from_bytes(bytes)) })
}

fn fresh_certificate() -> Result<Certificate, KeyError> {
    let key = SecretKey::from_os().map_err(|_| KeyError::Randomness)?;
    let metadata = Metadata::new("flux-operator").expect("this name has the alphabet Flux takes");
    Ok(Certificate::new(key, metadata))
}
