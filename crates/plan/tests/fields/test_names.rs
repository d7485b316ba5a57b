//! The names of the tests in the repository.

use std::collections::BTreeSet;
use std::path::Path;

/// The folders with tests, relative to this crate.
const FOLDERS: [&str; 3] = ["../../tests/e2e/tests", "../../tests/k8s/tests", "../../crates"];

/// Every function that is marked as a test.
pub fn all() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = BTreeSet::new();
    FOLDERS.iter().for_each(|folder| collect(&root.join(folder), &mut names));
    names
}

fn collect(path: &Path, names: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), names);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        let text = std::fs::read_to_string(path).unwrap();
        // `#[test]` and `#[tokio::test]`.
        names.extend(text.split("test]\n").skip(1).filter_map(|rest| {
            let function = rest.split_once("fn ")?.1;
            Some(function.split_once('(')?.0.to_owned())
        }));
    }
}
