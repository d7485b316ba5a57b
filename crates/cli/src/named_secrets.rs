//! Secrets that the MiniClusters of a manifest name, such as the one in the file of an invitation.

use std::collections::{BTreeMap, BTreeSet};

use flux_operator_api::MiniCluster;
use flux_operator_api::manifest::Document;
use flux_operator_api::validate::Validate;
use flux_operator_wire::names::file;
use serde_json::Value;

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

    /// What is wrong with a Secret that a MiniCluster names; `None` if the document is not one.
    pub(crate) fn problems(&self, document: &Document) -> Option<Vec<String>> {
        let is_secret = document.kind() == Some("Secret") && document.api_version() == Some("v1");
        let keys = self.0.get(&(namespace(document), document.name()?)).filter(|_| is_secret)?;
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let has =
            |key: &str| ["data", "stringData"].iter().any(|it| is_text(&document.value[it][key]));
        let missing = keys.iter().filter(|key| !has(key));
        let problem =
            |key: &&str| format!("data: has no {key}, and the MiniCluster that names it needs it");
        Some(missing.map(problem).collect())
    }
}

fn namespace(document: &Document) -> Option<&str> {
    document.value["metadata"]["namespace"].as_str()
}
