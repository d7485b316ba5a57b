//! Manifests that the Go operator accepts, each with the objects that it made of it.
//!
//! Our own are in `corpus/`. Manifests of users, in a folder of the same layout, are tested too
//! where `CORPUS` names such a folder or one is next to the project.

use std::path::{Path, PathBuf};

/// One manifest of the corpus.
#[derive(Clone, Debug)]
pub struct CorpusManifest {
    /// Its file's name without the extension.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Whether the Go operator's CRD accepts it with strict decoding.
    pub strict: bool,
    /// The objects that the Go operator created for it.
    pub rendered: String,
}

/// Every manifest: our own, and those of users.
pub fn examples() -> Vec<CorpusManifest> {
    let mut examples = own();
    examples.extend(of_users());
    examples
}

/// Our own manifests. Together they set every field of the Go operator's MiniCluster.
pub fn own() -> Vec<CorpusManifest> {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"))
}

/// Manifests of users. Without a folder of them there are none, and a line on the output says so.
pub fn of_users() -> Vec<CorpusManifest> {
    let folder = folder_of_users();
    if !folder.join("manifests").is_dir() {
        println!("only our own manifests: there is no corpus at {}", folder.display());
        return Vec::new();
    }
    read(&folder)
}

/// Whether the manifests of users are not the usual ones, but those that `CORPUS` names.
pub fn is_custom() -> bool {
    std::env::var_os("CORPUS").is_some()
}

fn folder_of_users() -> PathBuf {
    match std::env::var_os("CORPUS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
    }
}

/// Reads a folder: `manifests/`, `rendered/` with files of the same names, and the table in
/// `README.md`.
fn read(folder: &Path) -> Vec<CorpusManifest> {
    let index = std::fs::read_to_string(folder.join("README.md")).expect("a corpus has a README");
    let files = std::fs::read_dir(folder.join("manifests")).expect("a corpus has manifests");
    let mut examples: Vec<CorpusManifest> = files
        .map(|file| file.expect("the folder can be listed").path())
        .map(|path| {
            let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a manifest can be read");
            let strict = is_strict(&index, &name);
            let rendered = folder.join("rendered").join(format!("{name}.yaml"));
            let rendered = std::fs::read_to_string(rendered)
                .unwrap_or_else(|error| panic!("{name} is not in rendered/: {error}"));
            CorpusManifest { name, text, strict, rendered }
        })
        .collect();
    examples.sort_by(|a, b| a.name.cmp(&b.name));
    examples
}

/// Reads the README's table, in which a cell is `strict` or `lenient`. A manifest that the table
/// does not list must be accepted too.
fn is_strict(index: &str, name: &str) -> bool {
    let row = index.lines().find(|line| line.starts_with(&format!("| {name} |")));
    row.is_none_or(|row| row.contains("| strict |"))
}
