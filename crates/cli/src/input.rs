//! Reads manifests from files and standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Result, bail};
use flux_operator_api::MiniCluster;
use flux_operator_api::manifest::{self, Document, MAX_BYTES, Manifest, ReadError};
use flux_operator_api::validate::{self, Validate};

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
    let problems: Vec<String> = manifest
        .documents
        .iter()
        .flat_map(validate::check_document)
        .map(|problem| format!("{name}: {problem}"))
        .collect();
    if !problems.is_empty() {
        bail!("the manifest is not valid\n{}", problems.join("\n"));
    }
    Ok(manifest.documents)
}

/// Parses and checks the only MiniCluster of a manifest that was read from `file`.
pub(crate) fn parse_minicluster(file: &Path, bytes: &[u8]) -> Result<MiniCluster> {
    let documents = parse_checked(file, bytes)?;
    match documents.as_slice() {
        [document] if document.kind() == Some(MiniCluster::KIND) => {
            Ok(validate::read_minicluster(&document.value)?)
        }
        _ => {
            let kinds: Vec<&str> = documents.iter().filter_map(Document::kind).collect();
            bail!("{} must have one MiniCluster, not {}", display_name(file), kinds.join(", "))
        }
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
