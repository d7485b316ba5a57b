//! Secrets that the MiniClusters of a manifest name, such as the one in the file of an invitation.

use std::collections::{BTreeMap, BTreeSet};

use flux_operator_api::MiniCluster;
use flux_operator_api::manifest::Document;
use flux_operator_api::validate::Validate;
use flux_operator_wire::names::file;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::ByteString;

/// The key of a Secret with munge's key.
const MUNGE_KEY: &str = "munge.key";

/// The Secrets that MiniClusters name, by namespace and name, and the keys that they must have.
pub(crate) struct NamedSecrets<'a>(BTreeMap<(Option<&'a str>, &'a str), BTreeSet<&'static str>>);

impl<'a> NamedSecrets<'a> {
    /// Those that the MiniClusters among `documents` name.
    pub(crate) fn of(documents: impl IntoIterator<Item = &'a Document>) -> NamedSecrets<'a> {
        let mut named: BTreeMap<_, BTreeSet<&'static str>> = BTreeMap::new();
        for document in documents.into_iter().filter(|it| it.kind() == Some(MiniCluster::KIND)) {
            let flux = &document.value["spec"]["flux"];
            let instance = &flux["bursting"]["leadBroker"]["instance"];
            let is_invited = instance.is_object() && instance["direct"] != true;
            let mut add = |field: &str, keys: &[&'static str]| {
                if let Some(name) = flux[field].as_str().filter(|name| !name.is_empty()) {
                    named.entry((namespace(document), name)).or_default().extend(keys);
                }
            };
            add(
                "curveCertSecret",
                match is_invited {
                    true => &[file::CERTIFICATE, file::INVITATION_KEY],
                    false => &[file::CERTIFICATE],
                },
            );
            add("mungeSecret", &[MUNGE_KEY]);
        }
        NamedSecrets(named)
    }

    /// What is wrong with a Secret; `None` if the document is not one.
    pub(crate) fn problems(&self, document: &Document) -> Option<Vec<String>> {
        if !is_secret(document) {
            return None;
        }
        let name = document.name().unwrap_or_default();
        let Some(keys) = self.0.get(&(namespace(document), name)) else {
            let message = "metadata.name: no MiniCluster that is given with this Secret names it in the \
                same metadata.namespace: spec.flux.curveCertSecret is the name of the Secret with the \
                certificate of a MiniCluster";
            return Some(vec![message.to_owned()]);
        };
        Some(keys.iter().filter_map(|key| problem(document, key)).collect())
    }
}

/// Whether a document is a Secret.
pub(crate) fn is_secret(document: &Document) -> bool {
    document.kind() == Some("Secret") && document.api_version() == Some("v1")
}

/// What is wrong with a key of a Secret. The message does not contain its value.
fn problem(secret: &Document, key: &str) -> Option<String> {
    let (text, data) = (&secret.value["stringData"][key], &secret.value["data"][key]);
    let value = match text.as_str() {
        // The API server prefers it to `data`.
        Some(text) => text.as_bytes().to_vec(),
        None if data.is_null() => Vec::new(),
        None => match serde_json::from_value::<ByteString>(data.clone()) {
            Ok(value) => value.0,
            Err(_) => return Some(format!("data: {key} is not in base64")),
        },
    };
    if value.is_empty() {
        return Some(format!("data: has no {key}, and the MiniCluster that names it needs it"));
    }
    let is_key = || str::from_utf8(&value).is_ok_and(|text| SealKey::parse(text).is_ok());
    (key == file::INVITATION_KEY && !is_key()).then(|| {
        format!(
            "data: {key} is not 64 hexadecimal digits: use the file of the invitation unchanged"
        )
    })
}

fn namespace(document: &Document) -> Option<&str> {
    document.value["metadata"]["namespace"].as_str()
}
