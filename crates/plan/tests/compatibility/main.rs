//! What the Go operator made of the corpus' manifests, and what we make of them.
//! Every difference is a row of docs/compatibility.md, and every row is one.

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
use flux_operator_testkit::corpus;
use row::rows;
use serde_json::{Value, json};
use visible::visible;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compatibility.md");

#[test]
#[ignore = "needs manifests of users: CORPUS=DIRECTORY make test-unit"]
fn what_differs_from_the_go_operator_in_the_corpus_is_written_down() {
    let examples = corpus::examples().unwrap();
    let rows = rows(&std::fs::read_to_string(DOCUMENT).unwrap());
    let mut used = BTreeSet::new();
    let mut unexplained: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for example in &examples {
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
    if corpus::is_another() {
        return;
    }
    let idle: Vec<_> = rows
        .iter()
        .enumerate()
        .filter(|(index, row)| row.only_with.is_none() && !used.contains(index))
        .map(|(_, row)| row)
        .collect();
    assert!(idle.is_empty(), "rows of {DOCUMENT} that explain nothing: {idle:#?}");
}

fn of_example(example: &corpus::Example, mut manifest: Value) -> Vec<Difference> {
    let theirs = documents(&example.rendered);
    let namespace = theirs.iter().find_map(|object| object.pointer("/metadata/labels/namespace"));
    manifest["metadata"]["namespace"] = namespace.cloned().unwrap_or(json!("default"));
    // As theirs does it, and as it is rendered where no cluster can be asked.
    manifest["spec"]["flux"]["container"]["delivery"] = json!("init");
    let ours = render::render(&manifest, objects::objects)
        .unwrap_or_else(|refusal| panic!("{}: {refusal}", example.name));
    differences(&visible(theirs, &manifest), &visible(ours, &manifest))
}

fn documents(text: &str) -> Vec<Value> {
    let manifest = flux_operator_api::manifest::read(text.as_bytes()).unwrap();
    manifest.documents.into_iter().map(|document| document.value).collect()
}
