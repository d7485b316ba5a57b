//! Reads the keys of a MiniCluster, for the file of an invitation.

use anyhow::{Result, anyhow};
use flux_operator_api::MiniCluster;
use flux_operator_plan::{InvitationSecrets, LenderKeysError, SecretData, SecretNames};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use crate::kubectl::session::Session;

/// The Job of a MiniCluster, if it has one.
pub(super) async fn job(session: &Session, name: &str) -> Result<Option<Job>> {
    match session.api::<Job>().get_opt(name).await {
        Ok(job) => Ok(job),
        Err(error) => Err(session.explain(error, &format!("failed to get the Job {name:?}")).await),
    }
}

/// Fails if the user may not read the keys of a MiniCluster. They need not exist yet.
pub(super) async fn check_permission(
    session: &Session,
    lender: &MiniCluster,
    job: Option<&Job>,
) -> Result<()> {
    read_all(session, lender, &SecretNames::of(lender, job)).await.map(drop)
}

/// Reads the keys of a MiniCluster.
pub(super) async fn read(
    session: &Session,
    lender: &MiniCluster,
    job: Option<&Job>,
) -> Result<InvitationSecrets> {
    let names = SecretNames::of(lender, job);
    let secrets = read_all(session, lender, &names).await?;
    names.keys(&secrets).map_err(explained)
}

async fn read_all(
    session: &Session,
    lender: &MiniCluster,
    names: &SecretNames,
) -> Result<SecretData> {
    let mut secrets = SecretData::new();
    for name in names.all() {
        if secrets.contains_key(name) {
            continue;
        }
        match session.api::<Secret>().get_opt(name).await {
            Ok(found) => {
                let data = found.map(|secret| secret.data.unwrap_or_default());
                secrets.extend(data.map(|data| (name.clone(), data)));
            }
            Err(error) => {
                let cluster = lender.name_any();
                let what =
                    format!("failed to get the Secret {name:?} with the keys of {cluster:?}");
                return Err(session.explain(error, &what).await);
            }
        }
    }
    Ok(secrets)
}

/// What to do about a key that is missing.
fn explained(error: LenderKeysError) -> anyhow::Error {
    match &error {
        LenderKeysError::NoSecret { key, .. } => {
            anyhow!("{error}\nhint: it must contain {key}; was it deleted?")
        }
        LenderKeysError::NoKey { .. } => {
            anyhow!("{error}\nhint: add it, or name another Secret")
        }
        LenderKeysError::InvalidKey { .. } => anyhow!(error),
    }
}
