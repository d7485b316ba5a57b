//! The offline check of all available manifests, without a cluster.

use flux_operator_api::{manifest, validate};
use flux_operator_testkit::bad::{self, InvalidManifest};
use flux_operator_testkit::corpus;

#[test]
fn invalid_manifests_are_refused_with_their_field() {
    let cases = bad::refused_by_schema().into_iter().chain(bad::refused_beyond_schema());
    for InvalidManifest { name, field, message, manifest: value } in cases {
        let document = manifest::Document { number: 1, value };
        let problems: Vec<String> =
            validate::check_document(&document).iter().map(ToString::to_string).collect();
        let problems = problems.join("\n");
        assert!(problems.contains(&field), "{name}: {problems:?}");
        assert!(problems.contains(message.as_deref().unwrap_or_default()), "{name}: {problems:?}");
    }
}

#[test]
fn q35_our_own_examples_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut count = 0;
    let inner = ["", "queue", "connected", "two-clusters"].map(|it| format!("{folder}/{it}"));
    let files = inner.map(|folder| std::fs::read_dir(folder).unwrap());
    for file in files.into_iter().flatten() {
        let file = file.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let manifest = manifest::read(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(manifest.warnings, Vec::<String>::new(), "{}", file.display());
        for document in &manifest.documents {
            assert_eq!(validate::check_document(document), Vec::new(), "{}", file.display());
        }
        count += 1;
    }
    assert!(count > 0, "no examples in {folder}");
}

#[test]
fn manifests_in_the_documentation_are_valid() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folders = ["guide", "concepts"].map(|name| format!("{root}/docs/{name}"));
    let pages = folders.into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let pages = pages.map(|file| file.unwrap().path());
    let mut count = 0;
    for file in pages.chain([format!("{root}/README.md").into()]) {
        let text = std::fs::read_to_string(&file).unwrap();
        let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for block in blocks {
            for document in manifest::read(block.as_bytes()).unwrap().documents {
                assert_eq!(validate::check_document(&document), Vec::new(), "{}", file.display());
                count += 1;
            }
        }
    }
    assert!(count > 0, "no manifest in the documents");
}

#[test]
fn the_corpus_is_valid() {
    for example in corpus::manifests() {
        let manifest = manifest::read(example.text.as_bytes()).unwrap();
        for document in &manifest.documents {
            assert_eq!(validate::check_document(document), Vec::new(), "{}", example.name);
        }
    }
}
