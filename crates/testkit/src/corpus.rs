//! Manifests that the Go operator accepts, each with the objects that it created for it.
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
pub fn manifests() -> Vec<CorpusManifest> {
    let mut manifests = own_manifests();
    manifests.extend(user_manifests());
    manifests
}

/// Our own manifests. Together they set every field of the Go operator's MiniCluster.
pub fn own_manifests() -> Vec<CorpusManifest> {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"))
}

/// Manifests of users. If there is no folder of them, prints that and returns none.
pub fn user_manifests() -> Vec<CorpusManifest> {
    let folder = user_folder();
    if !folder.join("manifests").is_dir() {
        println!("only our own manifests: there is no corpus at {}", folder.display());
        return Vec::new();
    }
    read(&folder)
}

/// Whether `CORPUS` names the folder with the manifests of users.
pub fn is_custom() -> bool {
    std::env::var_os("CORPUS").is_some()
}

fn user_folder() -> PathBuf {
    match std::env::var_os("CORPUS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
    }
}

/// Reads a folder: `manifests/`, `rendered/` with files of the same names, and `README.md` with the
/// table.
fn read(folder: &Path) -> Vec<CorpusManifest> {
    let index = std::fs::read_to_string(folder.join("README.md")).expect("a corpus has a README");
    let files = std::fs::read_dir(folder.join("manifests")).expect("a corpus has manifests");
    let mut manifests: Vec<CorpusManifest> = files
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
    manifests.sort_by(|a, b| a.name.cmp(&b.name));
    manifests
}

/// Reads the README's table, in which a cell is `strict` or `lenient`. A manifest that the table
/// does not list must be accepted too.
fn is_strict(index: &str, name: &str) -> bool {
    let row = index.lines().find(|line| line.starts_with(&format!("| {name} |")));
    row.is_none_or(|row| row.contains("| strict |"))
}
