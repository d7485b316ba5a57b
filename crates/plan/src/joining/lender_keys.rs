//! Where the keys of a lender are, and the keys that an invitation needs.

use std::collections::BTreeMap;

use flux_operator_api::MiniCluster;
use flux_operator_wire::names::file;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;

use super::invitation_file::{InvitationSecrets, MUNGE_KEY};
use crate::kubernetes::{secret_name, user_secret};

/// The names of the Secrets with a MiniCluster's keys.
#[derive(Debug, PartialEq, Eq)]
pub struct SecretNames {
    certificate: String,
    report: String,
    munge: Option<String>,
}

/// The data of the Secrets that exist, by their names.
pub type SecretData = BTreeMap<String, BTreeMap<String, ByteString>>;

/// Why the keys of a MiniCluster are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LenderKeysError {
    /// There is no such Secret.
    #[error("there is no Secret {name:?}")]
    NoSecret {
        /// Its name.
        name: String,
        /// The key that it must contain.
        key: &'static str,
    },
    /// A Secret lacks a key.
    #[error("the Secret {name:?} does not contain {key}")]
    NoKey {
        /// Its name.
        name: String,
        /// The key.
        key: &'static str,
    },
    /// A key of a Secret is malformed.
    #[error("the Secret {name:?} does not contain a valid {key}")]
    InvalidKey {
        /// Its name.
        name: String,
        /// The key.
        key: &'static str,
    },
}

impl SecretNames {
    /// The Secrets of a MiniCluster with this Job.
    pub fn of(lender: &MiniCluster, job: Option<&Job>) -> SecretNames {
        let own = secret_name(lender, job);
        let munge = lender.spec.flux.as_ref().map(|flux| flux.munge_secret.clone());
        SecretNames {
            certificate: user_secret(lender).map_or_else(|| own.clone(), ToOwned::to_owned),
            report: own,
            munge: munge.filter(|name| !name.is_empty()),
        }
    }

    /// All of them; one may be there twice.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        [&self.certificate, &self.report].into_iter().chain(&self.munge)
    }

    /// The keys, from the Secrets that have them.
    pub fn keys(&self, secrets: &SecretData) -> Result<InvitationSecrets, LenderKeysError> {
        let value = |name: &String, key: &'static str| {
            let secret = secrets.get(name);
            let secret =
                secret.ok_or_else(|| LenderKeysError::NoSecret { name: name.clone(), key })?;
            let value = secret.get(key).filter(|value| !value.0.is_empty());
            value.cloned().ok_or_else(|| LenderKeysError::NoKey { name: name.clone(), key })
        };
        let report = value(&self.report, file::REPORT_KEY)?;
        let report_key =
            std::str::from_utf8(&report.0).ok().and_then(|text| SealKey::parse(text).ok());
        let invalid =
            || LenderKeysError::InvalidKey { name: self.report.clone(), key: file::REPORT_KEY };
        Ok(InvitationSecrets {
            certificate: value(&self.certificate, file::CERTIFICATE)?,
            report_key: report_key.ok_or_else(invalid)?,
            munge: self.munge.as_ref().map(|name| value(name, MUNGE_KEY)).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secrets(of: &[(&str, &[(&str, &str)])]) -> SecretData {
        let data = |keys: &[(&str, &str)]| {
            let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
            keys.iter().map(|(key, text)| ((*key).to_owned(), bytes(text))).collect()
        };
        of.iter().map(|(name, keys)| ((*name).to_owned(), data(keys))).collect()
    }

    #[test]
    fn keys_are_in_the_own_secret_unless_the_user_names_another() {
        let lender = |flux| -> MiniCluster {
            let lender = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
                "metadata": { "name": "fs", "uid": "fsuid" },
                "spec": { "containers": [{}], "flux": flux } });
            serde_json::from_value(lender).unwrap()
        };
        let own = "fs-flux-fsuid".to_owned();
        let names = SecretNames { certificate: own.clone(), report: own.clone(), munge: None };
        assert_eq!(SecretNames::of(&lender(json!({})), None), names);
        let flux = json!({ "curveCertSecret": "mine", "mungeSecret": "munge" });
        let munge = Some("munge".to_owned());
        let names = SecretNames { certificate: "mine".into(), report: own, munge };
        assert_eq!(SecretNames::of(&lender(flux), None), names);
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
        let read = names.keys(&secrets(&[mine, own, munge])).unwrap();
        assert_eq!((read.certificate.0, read.munge.unwrap().0), (b"c".to_vec(), b"m".to_vec()));
        let short = ("own", &[("report.key", "0f")][..]);
        for (secrets, expected) in [
            (secrets(&[own, munge]), "there is no Secret \"mine\""),
            (secrets(&[mine, own]), "there is no Secret \"munge\""),
            (secrets(&[mine, ("own", &[]), munge]), "\"own\" does not contain report.key"),
            (secrets(&[mine, short, munge]), "\"own\" does not contain a valid report.key"),
        ] {
            let error = names.keys(&secrets).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
