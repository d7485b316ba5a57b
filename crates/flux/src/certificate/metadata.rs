//! The metadata of a certificate: its name, and where and when it was created.
//!
//! flux-core's parser is strict, and one invalid line makes a certificate unusable. So keys and
//! values are checked when they are set. This also prevents a value from injecting another line.

/// flux-core accepts lines of up to 255 bytes, including the newline.
pub(super) const MAX_LINE_LENGTH: usize = 254;

/// The length of a line of metadata without key and value: four spaces, ` = ` and two quotes.
const LINE_OVERHEAD: usize = 9;

/// The key that Flux requires in every certificate: the lead's broker authorizes its peers by it.
const NAME: &str = "name";

/// Keys and values, in the order they were set, including a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    entries: Vec<(String, String)>,
}

/// The metadata that `flux keygen` adds to the name. It is informational; Flux does not read it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keygen<'a> {
    /// The host on which the certificate was created.
    pub hostname: Option<&'a str>,
    /// When it was created, as `2026-11-15T04:47:33`.
    pub time: Option<&'a str>,
    /// The ID of the user who created it.
    pub userid: Option<u32>,
    /// The version of flux-core.
    pub flux_core_version: Option<&'a str>,
    /// The version of ZeroMQ.
    pub zmq_version: Option<&'a str>,
}

/// Why metadata is not valid. Does not contain it, because it may come from a damaged secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// A key that is empty, or has characters other than letters, digits, `-` and `.`.
    #[error("certificate metadata has a key that is not letters, digits, '-' and '.'")]
    Key,
    /// A value with quotes, newlines, underscores or other characters that Flux does not accept.
    #[error("certificate metadata has a value with a character that Flux does not accept")]
    Value,
    /// Key and value do not fit into a line.
    #[error("certificate metadata has a line of more than {MAX_LINE_LENGTH} bytes")]
    TooLong,
    /// The key is already set.
    #[error("certificate metadata has the same key twice")]
    Duplicate,
}

impl Metadata {
    /// Creates metadata with this name.
    pub fn new(name: &str) -> Result<Self, MetadataError> {
        let mut metadata = Self::empty();
        metadata.set(NAME, name)?;
        Ok(metadata)
    }

    /// Adds the metadata of `flux keygen`.
    pub fn with_keygen(mut self, keygen: &Keygen<'_>) -> Result<Self, MetadataError> {
        let Keygen { hostname, time, userid, flux_core_version, zmq_version } = *keygen;
        let userid = userid.map(|userid| userid.to_string());
        for (key, value) in [
            ("keygen.flux-core-version", flux_core_version),
            ("keygen.hostname", hostname),
            ("keygen.time", time),
            ("keygen.userid", userid.as_deref()),
            ("keygen.zmq-version", zmq_version),
        ] {
            if let Some(value) = value {
                self.set(key, value)?;
            }
        }
        Ok(self)
    }

    /// Adds one entry. Like `flux keygen`, it does not replace an existing one.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), MetadataError> {
        if key.len() + value.len() + LINE_OVERHEAD > MAX_LINE_LENGTH {
            return Err(MetadataError::TooLong);
        }
        let good = |byte: u8, others: &[u8]| byte.is_ascii_alphanumeric() || others.contains(&byte);
        if key.is_empty() || !key.bytes().all(|byte| good(byte, b"-.")) {
            return Err(MetadataError::Key);
        }
        if !value.bytes().all(|byte| good(byte, b".-:+=^!/*?&<>()[]{}@%$# \t")) {
            return Err(MetadataError::Value);
        }
        if self.get(key).is_some() {
            return Err(MetadataError::Duplicate);
        }
        self.entries.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.entries.iter().find(|(entry, _)| entry == key);
        found.map(|(_, value)| value.as_str())
    }

    /// All entries, in the order they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Metadata without a name. Only for the parser, which checks for the name at the end.
    pub(super) fn empty() -> Self {
        Self { entries: Vec::new() }
    }

    pub(super) fn has_name(&self) -> bool {
        self.get(NAME).is_some()
    }

    /// The length of the entries' text.
    pub(super) fn text_length(&self) -> usize {
        let line = |(key, value): (&str, &str)| key.len() + value.len() + LINE_OVERHEAD + 1;
        self.iter().map(line).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_values_cannot_start_a_line() {
        for value in [
            "a\"\ncurve\n    secret-key = \"",
            "a\nb",
            "a\rb",
            "a\"b",
            "a\\b",
            "a\0b",
            "snake_case",
            "naïve",
        ] {
            assert_eq!(Metadata::new(value), Err(MetadataError::Value), "{value:?}");
        }
        let mut metadata = Metadata::new("demo").unwrap();
        for key in ["", "a b", "a=b", "a\nb", "curve\n    secret-key", "a_b", "é"] {
            assert_eq!(metadata.set(key, ""), Err(MetadataError::Key), "{key:?}");
        }
    }

    #[test]
    fn a_line_must_fit_in_the_buffer_of_flux() {
        let longest = "a".repeat(MAX_LINE_LENGTH - LINE_OVERHEAD - NAME.len());
        assert_eq!(Metadata::new(&longest).unwrap().text_length(), MAX_LINE_LENGTH + 1);
        assert_eq!(Metadata::new(&format!("{longest}a")), Err(MetadataError::TooLong));
    }

    #[test]
    fn a_key_is_set_once() {
        let mut metadata = Metadata::new("demo").unwrap();
        assert_eq!(metadata.set("name", "other"), Err(MetadataError::Duplicate));
        assert_eq!(metadata.get("name"), Some("demo"));
    }

    #[test]
    fn keygen_adds_only_what_is_given() {
        let keygen = Keygen { hostname: Some("fs-0"), userid: Some(1000), ..Keygen::default() };
        let metadata = Metadata::new("demo").unwrap().with_keygen(&keygen).unwrap();
        let entries: Vec<_> = metadata.iter().collect();
        assert_eq!(
            entries,
            [("name", "demo"), ("keygen.hostname", "fs-0"), ("keygen.userid", "1000")]
        );
    }
}
