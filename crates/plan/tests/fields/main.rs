//! Every field of a MiniCluster is tested: the table fields.yaml has its effect on what is
//! rendered, or the name of a test that covers it. docs/reference/fields.md is generated from
//! the same table; docs/reference/queue.md comes from the CRDs alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/objects.rs"]
mod objects;
#[path = "../common/render.rs"]
mod render;

mod expectation;
mod go_operator;
mod manifest;
mod reference;
mod schema;
mod table;
mod test_names;

use std::collections::{BTreeMap, BTreeSet};

use flux_operator_api::crd;
use flux_operator_testkit::corpus;
use schema::leaves;
use table::{Entry, entries};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fields.yaml");
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");

#[test]
fn the_table_has_every_field_and_no_other() {
    let schema: BTreeSet<String> =
        leaves(&crd::minicluster()).into_iter().map(|leaf| leaf.path).collect();
    let table: BTreeSet<String> = entries_by_field().into_keys().collect();
    let missing: Vec<_> = schema.difference(&table).collect();
    assert!(missing.is_empty(), "not in {TABLE}: {missing:#?}");
    let unknown: Vec<_> = table.difference(&schema).collect();
    assert!(unknown.is_empty(), "no such field, but in {TABLE}: {unknown:#?}");
}

#[test]
fn every_field_does_what_the_table_says() {
    let wrong: Vec<String> = entries_by_field()
        .iter()
        .filter_map(|(field, entry)| {
            expectation::check(field, entry).err().map(|why| format!("{field}: {why}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_test_that_the_table_names_exists() {
    let known = test_names::all();
    for (field, entry) in entries_by_field() {
        for name in entry.tests() {
            assert!(known.contains(name), "{field}: there is no test {name}");
        }
    }
}

#[test]
fn our_corpus_sets_every_field_of_the_go_operator() {
    let fields = go_operator::fields(entries_by_field());
    let set = go_operator::set_by(&corpus::own_manifests());
    let missing: Vec<_> = fields.difference(&set).collect();
    assert!(missing.is_empty(), "no manifest of testkit's corpus sets {missing:#?}");
}

#[test]
fn the_reference_is_current() {
    let fields = reference::page(&leaves(&crd::minicluster()), &entries_by_field());
    let queue = reference::queue_page(&leaves(&crd::fluxjob()), &leaves(&crd::fluxsetup()));
    for (name, text) in [("fields.md", fields), ("queue.md", queue)] {
        let path = format!("{REFERENCE}/{name}");
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let current = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == current, "{path} is stale: run 'make manifests' and commit it");
    }
}

fn entries_by_field() -> BTreeMap<String, Entry> {
    entries(&std::fs::read_to_string(TABLE).unwrap())
}
