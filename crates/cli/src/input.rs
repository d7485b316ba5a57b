//! Reads manifests from files and standard input.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Result, bail};
use flux_operator_api::MiniCluster;
use flux_operator_api::manifest::{self, Document, MAX_BYTES, Manifest, ReadError};
use flux_operator_api::validate::{self, Validate};

use crate::named_secrets::{NamedSecrets, is_secret};
use crate::print;

/// Why a manifest could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("failed to read {name}")]
    Read { name: String, source: io::Error },
    #[error("{name} is not a valid manifest")]
    Manifest { name: String, source: ReadError },
}

/// Reads the manifest in a file, or on standard input for `-`.
pub(crate) fn read_manifest(file: &Path) -> Result<Manifest, InputError> {
    parse(file, &read_bytes(file)?)
}

/// Reads a file, or standard input for `-`.
///
/// Reads at most the maximum size of a manifest, so that a device or an endless pipe causes an
/// error instead of exhausting memory.
pub(crate) fn read_bytes(file: &Path) -> Result<Vec<u8>, InputError> {
    read_limited(file).map_err(|source| InputError::Read { name: display_name(file), source })
}

/// Parses the manifest in `bytes`, which were read from `file`.
pub(crate) fn parse(file: &Path, bytes: &[u8]) -> Result<Manifest, InputError> {
    manifest::read(bytes)
        .map_err(|source| InputError::Manifest { name: display_name(file), source })
}

/// Parses and checks every object of a manifest that was read from `file`.
pub(crate) fn parse_checked(file: &Path, bytes: &[u8]) -> Result<Vec<Document>> {
    let name = display_name(file);
    let manifest = parse(file, bytes)?;
    for warning in &manifest.warnings {
        print::message(format_args!("{name}: warning: {warning}"));
    }
    check_documents(file, &manifest.documents)?;
    Ok(manifest.documents)
}

/// As [`parse_checked`], without the Secrets that MiniClusters of the manifest name.
pub(crate) fn parse_without_secrets(file: &Path, bytes: &[u8]) -> Result<Vec<Document>> {
    let documents = parse_checked(file, bytes)?;
    Ok(documents.into_iter().filter(|document| !is_secret(document)).collect())
}

/// Checks every object of a manifest that was read from `file`.
pub(crate) fn check_documents(file: &Path, documents: &[Document]) -> Result<()> {
    let secrets = NamedSecrets::of(documents);
    let problems = |document: &Document| {
        let label = document_label(file, document, documents.len());
        let checked =
            || validate::check_document(document).iter().map(ToString::to_string).collect();
        let problems: Vec<String> = secrets.problems(document).unwrap_or_else(checked);
        problems.into_iter().map(move |problem| format!("{label}: {problem}"))
    };
    let problems: Vec<String> = documents.iter().flat_map(problems).collect();
    if !problems.is_empty() {
        bail!("the manifest is not valid\n{}", problems.join("\n"));
    }
    Ok(())
}

/// The only object of a manifest that was read from `file`, which must be a MiniCluster. If there are
/// several, `only_one` is the end of the message: why they cannot be used, and a hint.
pub(crate) fn only_minicluster(
    file: &Path,
    documents: &[Document],
    only_one: &str,
) -> Result<MiniCluster> {
    let is_minicluster = |document: &Document| document.kind() == Some(MiniCluster::KIND);
    let name = display_name(file);
    match documents {
        [document] if is_minicluster(document) => Ok(validate::read_minicluster(&document.value)?),
        [_, _, ..] if documents.iter().all(is_minicluster) => {
            let mut names = HashSet::new();
            let mut named = documents.iter().filter_map(Document::name);
            if let Some(twice) = named.find(|name| !names.insert(*name)) {
                bail!("there are two MiniClusters named {twice:?}\nhint: rename one of them");
            }
            bail!("{name} has {} MiniClusters{only_one}", documents.len())
        }
        _ => {
            let kinds: Vec<&str> = documents.iter().filter_map(Document::kind).collect();
            let hint = match documents.iter().any(is_secret) {
                true => format!("\nhint: create them with `kubectl apply -f {}`", file.display()),
                false => String::new(),
            };
            bail!("{name} must have one MiniCluster, not {}{hint}", kinds.join(", "))
        }
    }
}

/// The file name, and the document if the file has several.
pub(crate) fn document_label(file: &Path, document: &Document, documents: usize) -> String {
    let file = display_name(file);
    let number = document.number;
    match (documents, document.kind(), document.name()) {
        (1, ..) => file,
        (_, Some(kind), Some(name)) => format!("{file} (document {number}, {kind} {name:?})"),
        (_, Some(kind), None) => format!("{file} (document {number}, {kind})"),
        (_, None, _) => format!("{file} (document {number})"),
    }
}

/// The objects of one kind.
pub(crate) fn objects_of_kind<K: Validate>(documents: &[Document]) -> Result<Vec<K>> {
    let of_kind = documents.iter().filter(|document| document.kind() == Some(K::KIND));
    of_kind.map(|document| Ok(validate::read(&document.value)?)).collect()
}

/// The name of the file in messages.
pub(crate) fn display_name(file: &Path) -> String {
    if is_standard_input(file) { "standard input".into() } else { file.display().to_string() }
}

fn read_limited(file: &Path) -> io::Result<Vec<u8>> {
    let limit = MAX_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if is_standard_input(file) {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(file)?.take(limit).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new("-")
}
