//! What the Go operator creates from the manifests of the corpus, and what we create from them.
//! Every difference has a row in docs/compatibility.md, and every row has a difference.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/objects.rs"]
mod objects;
#[path = "../common/render.rs"]
mod render;

mod difference;
mod row;
mod visible;

use std::collections::{BTreeMap, BTreeSet};

use difference::{Difference, differences};
use flux_operator_plan::RefusalReason;
use flux_operator_testkit::corpus;
use row::{Row, rows};
use serde_json::{Value, json};
use visible::visible;

/// The example whose brokers join a cluster elsewhere that has no hosts for them.
const NO_HOSTS: &str = "joined";

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compatibility.md");

/// Our own manifests are always there, so this never passes on nothing; those of users are compared
/// too, where there are any.
#[test]
fn every_difference_has_a_row_and_every_row_is_a_difference() {
    let rows = rows(&std::fs::read_to_string(DOCUMENT).unwrap());
    let used = explain(&corpus::own_manifests(), &rows);
    assert_no_idle(&rows, &used, |row| row.is_shown);
    let users = corpus::user_manifests();
    let used = explain(&users, &rows);
    if !users.is_empty() && !corpus::is_custom() {
        assert_no_idle(&rows, &used, |row| row.only_with.is_none());
    }
}

/// The indexes of the rows that explain the differences. A difference without a row is a failure.
fn explain(examples: &[corpus::CorpusManifest], rows: &[Row]) -> BTreeSet<usize> {
    let mut used = BTreeSet::new();
    let mut unexplained: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for example in examples {
        let manifest = documents(&example.text).remove(0);
        for difference in of_example(example, manifest.clone()) {
            match rows.iter().position(|row| row.explains(&difference, &manifest)) {
                Some(row) => _ = used.insert(row),
                None => {
                    unexplained.entry(difference.to_string()).or_default().push(&example.name);
                }
            }
        }
    }
    let unexplained: Vec<String> = unexplained
        .iter()
        .map(|(difference, names)| {
            format!("{difference}\n    {} times, as in {}", names.len(), names[0])
        })
        .collect();
    assert!(unexplained.is_empty(), "not in {DOCUMENT}:\n{}", unexplained.join("\n"));
    used
}

fn assert_no_idle(rows: &[Row], used: &BTreeSet<usize>, must_be_used: impl Fn(&Row) -> bool) {
    let idle: Vec<_> = rows
        .iter()
        .enumerate()
        .filter(|(index, row)| must_be_used(row) && !used.contains(index))
        .map(|(_, row)| row)
        .collect();
    assert!(idle.is_empty(), "rows of {DOCUMENT} that explain nothing: {idle:#?}");
}

fn of_example(example: &corpus::CorpusManifest, mut manifest: Value) -> Vec<Difference> {
    let theirs = documents(&example.rendered);
    // The Go operator's pods have their namespace as a label.
    let labels = ["/metadata/labels", "/spec/template/metadata/labels"];
    let namespace = theirs.iter().find_map(|object| {
        labels.iter().find_map(|labels| object.pointer(labels)?.get("namespace"))
    });
    manifest["metadata"]["namespace"] = namespace.cloned().unwrap_or(json!("default"));
    // As the Go operator does, and as it is rendered where no cluster can be queried.
    manifest["spec"]["flux"]["container"]["delivery"] = json!("init");
    let ours = match render::render(&manifest, objects::objects) {
        Ok(objects) => objects,
        Err(refusal) if refusal.reason == RefusalReason::NotYetSupported => Vec::new(),
        // The Go operator's brokers start, and have no ranks.
        Err(refusal) if example.name == NO_HOSTS => {
            assert_eq!(refusal.reason, RefusalReason::Invalid);
            assert_eq!(refusal.problems[0].path, "spec.flux.bursting.clusters");
            Vec::new()
        }
        Err(refusal) => panic!("{}: {refusal}", example.name),
    };
    differences(&visible(theirs, &manifest), &visible(ours, &manifest))
}

fn documents(text: &str) -> Vec<Value> {
    let manifest = flux_operator_api::manifest::read(text.as_bytes()).unwrap();
    manifest.documents.into_iter().map(|document| document.value).collect()
}
