//! Reads the keys of a MiniCluster, for the file of an invitation.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use flux_operator_api::MiniCluster;
use flux_operator_plan::InvitationSecrets;
use flux_operator_plan::kubernetes::{secret_name, user_secret};
use flux_operator_wire::names::file;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use crate::kubectl::session::Session;

/// The key of a Secret with munge's key.
const MUNGE_KEY: &str = "munge.key";

/// The names of the Secrets with a MiniCluster's keys.
#[derive(Debug, PartialEq, Eq)]
struct SecretNames {
    certificate: String,
    report: String,
    munge: Option<String>,
}

impl SecretNames {
    fn of(lender: &MiniCluster, job: Option<&Job>) -> SecretNames {
        let own = secret_name(lender, job);
        let munge = lender.spec.flux.as_ref().map(|flux| flux.munge_secret.clone());
        SecretNames {
            certificate: user_secret(lender).map_or_else(|| own.clone(), ToOwned::to_owned),
            report: own,
            munge: munge.filter(|name| !name.is_empty()),
        }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        [&self.certificate, &self.report].into_iter().chain(&self.munge)
    }
}

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
    keys(&names, &secrets)
}

/// The data of the Secrets that exist, by their names.
type SecretData = BTreeMap<String, BTreeMap<String, ByteString>>;

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

/// The keys, from the Secrets that have them.
fn keys(names: &SecretNames, secrets: &SecretData) -> Result<InvitationSecrets> {
    let value = |name: &String, key: &str| -> Result<ByteString> {
        let secret = secrets.get(name).ok_or_else(|| {
            anyhow!("there is no Secret {name:?}\nhint: it must contain {key}; was it deleted?")
        })?;
        let value = secret.get(key).filter(|value| !value.0.is_empty());
        value.cloned().ok_or_else(|| {
            anyhow!(
                "the Secret {name:?} does not contain {key}\nhint: add it, or name another Secret"
            )
        })
    };
    let report = value(&names.report, file::REPORT_KEY)?;
    let report_key = std::str::from_utf8(&report.0)
        .ok()
        .and_then(|text| SealKey::parse(text).ok())
        .with_context(|| {
            let key = file::REPORT_KEY;
            format!("the Secret {:?} does not contain a valid {key}", names.report)
        })?;
    Ok(InvitationSecrets {
        certificate: value(&names.certificate, file::CERTIFICATE)?,
        report_key,
        munge: names.munge.as_ref().map(|name| value(name, MUNGE_KEY)).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{job, lender};
    use super::*;

    fn secrets(of: &[(&str, &[(&str, &str)])]) -> SecretData {
        let data = |keys: &[(&str, &str)]| {
            let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
            keys.iter().map(|(key, text)| ((*key).to_owned(), bytes(text))).collect()
        };
        of.iter().map(|(name, keys)| ((*name).to_owned(), data(keys))).collect()
    }

    #[test]
    fn keys_are_in_the_own_secret_unless_the_user_names_another() {
        let mut lender = lender();
        let own = "fs-flux-fsuid".to_owned();
        let names = SecretNames { certificate: own.clone(), report: own.clone(), munge: None };
        assert_eq!(SecretNames::of(&lender, Some(&job())), names);
        let flux = lender.spec.flux.as_mut().unwrap();
        (flux.curve_cert_secret, flux.munge_secret) = ("mine".into(), "munge".into());
        let names = SecretNames::of(&lender, Some(&job()));
        let munge = Some("munge".to_owned());
        assert_eq!(names, SecretNames { certificate: "mine".into(), report: own, munge });
    }

    #[test]
    fn all_keys_must_exist() {
        let names = SecretNames {
            certificate: "mine".into(),
            report: "own".into(),
            munge: Some("munge".into()),
        };
        let key = "0f".repeat(32);
        let (mine, own) =
            (("mine", &[("curve.cert", "c")][..]), ("own", &[("report.key", &*key)][..]));
        let munge = ("munge", &[("munge.key", "m")][..]);
        let read = keys(&names, &secrets(&[mine, own, munge])).unwrap();
        assert_eq!((read.certificate.0, read.munge.unwrap().0), (b"c".to_vec(), b"m".to_vec()));
        let short = ("own", &[("report.key", "0f")][..]);
        for (secrets, expected) in [
            (secrets(&[own, munge]), "there is no Secret \"mine\"\nhint: "),
            (secrets(&[mine, own]), "there is no Secret \"munge\"\nhint: "),
            (secrets(&[mine, ("own", &[]), munge]), "\"own\" does not contain report.key\nhint: "),
            (secrets(&[mine, short, munge]), "\"own\" does not contain a valid report.key"),
        ] {
            let error = keys(&names, &secrets).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
