//! `testbed-samples`: runs the examples of this repository on the testbed. For the Makefile.

use std::io::Write;

use anyhow::{Context, Result, bail};
use flux_operator_api::manifest;
use flux_operator_testbed::Testbed;
use flux_operator_testkit::samples;
use serde_json::{Value, json};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["import", name] => {
            let testbed = Testbed::find(&name.parse()?);
            samples::import_to(&testbed.with_context(|| format!("testbed {name} is not up"))?)
        }
        ["manifest", file] => print(file),
        _ => bail!("usage: testbed-samples import NAME | testbed-samples manifest FILE"),
    }
}

/// Prints the manifest in a file, adapted to the testbed, as one object for kubectl.
fn print(file: &str) -> Result<()> {
    let text = std::fs::read(file).with_context(|| format!("failed to read {file}"))?;
    let read = manifest::read(&text).with_context(|| format!("{file} is not a valid manifest"))?;
    let mut items: Vec<Value> = read.documents.into_iter().map(|it| it.value).collect();
    items.iter_mut().for_each(samples::adapt);
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    writeln!(std::io::stdout(), "{list:#}").context("failed to print")
}
