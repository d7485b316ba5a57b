//! Manifests that users of the Go operator have, kept beside the project.

use std::path::{Path, PathBuf};

/// One manifest of the corpus.
#[derive(Clone, Debug)]
pub struct Example {
    /// Its file's name without the ending.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Whether the Go operator's CRD accepts it under strict decoding.
    pub strict: bool,
    /// The objects that the Go operator made of it.
    pub rendered: String,
}

/// Every manifest of the corpus; `None`, and a line on the output, where the
/// folder is not there.
pub fn examples() -> Option<Vec<Example>> {
    let folder = folder();
    let Ok(files) = std::fs::read_dir(folder.join("manifests")) else {
        println!("skipped: there is no corpus at {}", folder.display());
        return None;
    };
    let index = std::fs::read_to_string(folder.join("README.md")).expect("the corpus has a README");
    let mut examples: Vec<Example> = files
        .map(|file| file.expect("the folder can be listed").path())
        .map(|path| {
            let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("an example can be read");
            let strict = is_strict(&index, &name);
            let rendered = folder.join("rendered").join(format!("{name}.yaml"));
            let rendered = std::fs::read_to_string(rendered).expect("an example was rendered");
            Example { name, text, strict, rendered }
        })
        .collect();
    examples.sort_by(|a, b| a.name.cmp(&b.name));
    Some(examples)
}

/// Whether the corpus is not the usual one, but what `CORPUS` names.
pub fn is_another() -> bool {
    std::env::var_os("CORPUS").is_some()
}

/// Where the corpus is: `CORPUS`, or beside the project.
fn folder() -> PathBuf {
    match std::env::var_os("CORPUS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
    }
}

/// Reads the README's table: name, example, strict or lenient. A manifest the
/// table does not list must be accepted too.
fn is_strict(index: &str, name: &str) -> bool {
    let row = index.lines().find(|line| line.starts_with(&format!("| {name} |")));
    row.is_none_or(|row| row.contains("| strict |"))
}
