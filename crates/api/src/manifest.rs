//! Reading manifests: YAML text to documents.
//!
//! The text is YAML as `kubectl` reads it: several documents, comments, and JSON as
//! a subset. If a key is given twice, the last one counts. That is nearly
//! always a mistake, so it is reported as a warning.

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

/// The largest text that is read. The API server accepts no object above 3 MiB;
/// a file may contain a few.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;

/// The objects of a text, and warnings about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Every object that is not empty.
    pub documents: Vec<Document>,
    /// What was read but is probably a mistake.
    pub warnings: Vec<String>,
}

/// One object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its number among the text's objects, counted from 1.
    pub number: usize,
    /// Its content.
    pub value: Value,
}

impl Document {
    /// The object's `kind`, if it is a string.
    pub fn kind(&self) -> Option<&str> {
        self.value["kind"].as_str()
    }

    /// The object's `apiVersion`, if it is a string.
    pub fn api_version(&self) -> Option<&str> {
        self.value["apiVersion"].as_str()
    }

    /// The object's `metadata.name`, if it is a string.
    pub fn name(&self) -> Option<&str> {
        self.value["metadata"]["name"].as_str()
    }
}

/// Why a text could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is too long to be a manifest.
    #[error("the text has {bytes} bytes: a manifest has at most {MAX_BYTES}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The bytes are not text.
    #[error("not text: byte {offset} is not UTF-8")]
    NotText {
        /// Where the first such byte is.
        offset: usize,
    },
    /// The text is not YAML.
    #[error("not YAML: {reason}")]
    NotYaml {
        /// What is wrong, and on which line.
        reason: String,
    },
    /// There is no document.
    #[error("it contains no object")]
    Empty,
}

/// Reads every document of `bytes`, skipping empty ones.
pub fn read(bytes: &[u8]) -> Result<Manifest, ReadError> {
    if bytes.len() > MAX_BYTES {
        return Err(ReadError::TooLong { bytes: bytes.len() });
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| ReadError::NotText { offset: error.valid_up_to() })?;
    let mut warnings = Vec::new();
    let values = parse(text, DuplicateKeyPolicy::Error).or_else(|strict| {
        let values = parse(text, DuplicateKeyPolicy::LastWins)?;
        // It can be read after all, so strict parsing failed because of a duplicate key.
        warnings.push(format!("{}; the last one counts", without_advice(&strict)));
        Ok(values)
    });
    let values = values.map_err(|reason| ReadError::NotYaml { reason })?;
    let documents: Vec<Document> = values
        .into_iter()
        .filter(|value| !value.is_null())
        .zip(1..)
        .map(|(value, number)| Document { number, value })
        .collect();
    if documents.is_empty() { Err(ReadError::Empty) } else { Ok(Manifest { documents, warnings }) }
}

fn parse(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! { duplicate_keys: duplicate_keys };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| first_line(&error.to_string()))
}

/// The parser's message without the excerpt below it.
fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// The parser's message without its advice to programmers.
fn without_advice(message: &str) -> &str {
    message.split(", set DuplicateKeyPolicy").next().unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_numbered_without_the_empty_ones() {
        let manifest = read(b"kind: A\n---\n---\nkind: B\n").unwrap();
        let seen: Vec<_> =
            manifest.documents.iter().map(|d| (d.number, d.kind().unwrap())).collect();
        assert_eq!(seen, [(1, "A"), (2, "B")]);
    }

    #[test]
    fn a_duplicate_key_gives_a_warning_and_the_last_one_counts() {
        let manifest = read(b"kind: A\nkind: B\n").unwrap();
        assert_eq!(manifest.documents[0].kind(), Some("B"));
        assert_eq!(
            manifest.warnings,
            ["line 2 column 1: duplicate mapping key: kind; the last one counts"]
        );
    }

    #[test]
    fn an_invalid_manifest_is_refused_with_the_reason() {
        let cases: [(&[u8], &str); 4] = [
            (b"", "no object"),
            (b"# only a comment\n", "no object"),
            (b"a: \xff\n", "byte 3"),
            (b"a: [1\n", "not YAML"),
        ];
        for (bytes, expected) in cases {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let long = vec![b'x'; MAX_BYTES + 1];
        assert!(matches!(read(&long), Err(ReadError::TooLong { .. })));
    }
}
