//! What is wrong between documents that are checked in one run.

use std::collections::BTreeMap;

use flux_operator_api::MiniCluster;
use flux_operator_api::manifest::Document;
use flux_operator_api::minicluster::LenderName;
use flux_operator_api::validate::{self, Validate};
use flux_operator_plan::{OfflineLender, Valid, lender_of};
use kube::ResourceExt;

/// A document, and how messages name it.
pub(super) struct LabelledDocument<'a> {
    pub(super) label: String,
    pub(super) document: &'a Document,
}

/// For each document, whether one before it is the same object.
pub(super) fn duplicates<'a>(documents: &'a [LabelledDocument<'_>]) -> Vec<Option<String>> {
    let mut first = BTreeMap::new();
    let find = |it: &'a LabelledDocument<'_>| {
        let (kind, name) = (it.document.kind()?, it.document.name()?);
        let namespace = it.document.value["metadata"]["namespace"].as_str();
        let other = first.insert((kind, namespace, name), &it.label)?;
        Some(format!("has the kind, namespace and name of {other}: rename one"))
    };
    documents.iter().map(find).collect()
}

/// For each document, why it cannot join the MiniCluster that it names, if that is one of them.
pub(super) fn join_warnings(documents: &[LabelledDocument<'_>]) -> Vec<Option<String>> {
    let miniclusters: Vec<Option<Valid>> = documents.iter().map(minicluster).collect();
    let mut lenders: BTreeMap<LenderName, OfflineLender> = BTreeMap::new();
    for minicluster in miniclusters.iter().flatten() {
        let name = LenderName {
            namespace: minicluster.namespace().unwrap_or_default(),
            name: minicluster.name_any(),
        };
        let minicluster = minicluster.clone();
        let lender = OfflineLender { minicluster, lead: String::new(), leases: Vec::new() };
        lenders.entry(name).or_insert(lender);
    }
    let check = |joiner: &Option<Valid>| {
        let joiner = joiner.as_ref()?;
        let lender = lenders.get_mut(&lender_of(joiner)?)?;
        let error = lender.lease(joiner).err()?;
        // One line for each problem.
        Some(error.to_string().replace("\nhint: ", ": "))
    };
    miniclusters.iter().map(check).collect()
}

/// The MiniCluster, if it is valid.
fn minicluster(it: &LabelledDocument<'_>) -> Option<Valid> {
    let document = Some(it.document).filter(|it| it.kind() == Some(MiniCluster::KIND))?;
    if !validate::check_document(document).is_empty() {
        return None;
    }
    let mut minicluster = validate::read_minicluster(&document.value).ok()?;
    minicluster.metadata.namespace.get_or_insert_with(|| "default".into());
    Valid::check(minicluster).ok()
}
