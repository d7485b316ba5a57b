//! The arguments of `flux broker`, including those that `flux start` adds.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use flux_operator_flux::BrokerConfig;
use flux_operator_flux::broker_config::BrokerConfigParseError;

use crate::options::{Flag, OptionError, Syntax, flag, switch};

/// The options of a broker.
#[derive(Debug, Default)]
pub struct BrokerOptions {
    pub config: Option<PathBuf>,
    pub attributes: Vec<(String, String)>,
    /// The initial program.
    pub program: Vec<OsString>,
}

/// Why a configuration could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("failed to read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("failed to parse {}", path.display())]
    Parse { path: PathBuf, source: BrokerConfigParseError },
}

const FLAGS: [Flag; 7] = [
    flag(Some('c'), "config-path"),
    flag(Some('S'), "setattr"),
    flag(Some('X'), "module-path"),
    flag(Some('s'), "security"),
    switch(Some('v'), "verbose"),
    switch(Some('q'), "quiet"),
    switch(None, "wait"),
];

impl BrokerOptions {
    /// Parses the arguments after `flux broker`.
    pub fn parse(arguments: &[OsString]) -> Result<Self, OptionError> {
        let parsed = Syntax { flags: &FLAGS, permute: false }.parse(arguments)?;
        let mut options = Self { program: parsed.rest, ..Self::default() };
        for (name, value) in parsed.values {
            match name {
                "config-path" => options.config = Some(PathBuf::from(value)),
                "setattr" => options.attributes.push(split_attribute(&value)),
                _ => {}
            }
        }
        Ok(options)
    }

    /// The configuration; an empty one if there is none.
    pub fn load_config(&self) -> Result<BrokerConfig, ConfigError> {
        match &self.config {
            Some(path) => load(path),
            None => Ok(BrokerConfig::default()),
        }
    }
}

/// Splits `name=value`; a name alone has an empty value.
pub fn split_attribute(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (name.to_owned(), value.to_owned())
}

/// Reads a file, or all files of a directory that end in `.toml`, in the order of their names.
fn load(path: &Path) -> Result<BrokerConfig, ConfigError> {
    let read = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    if path.is_dir() {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path).map_err(read)? {
            files.push(entry.map_err(read)?.path());
        }
        files.sort();
        for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "toml")) {
            text.push_str(&std::fs::read_to_string(file).map_err(read)?);
            text.push('\n');
        }
    } else {
        text = std::fs::read_to_string(path).map_err(read)?;
    }
    BrokerConfig::parse(&text)
        .map_err(|source| ConfigError::Parse { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> BrokerOptions {
        let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        BrokerOptions::parse(&words).unwrap()
    }

    #[test]
    fn options_end_at_the_program() {
        let options = parse("--config-path /etc/flux -Sa=b=c -S d flux submit -N 2 -S x=y");
        assert_eq!(options.config, Some(PathBuf::from("/etc/flux")));
        let attributes = [("a", "b=c"), ("d", "")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(options.attributes, attributes);
        assert_eq!(options.program.len(), 6);
    }

    #[test]
    fn all_toml_files_of_a_directory_are_loaded() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("b.toml"), "[resource]\nnoverify = true\n").unwrap();
        std::fs::write(directory.path().join("a.toml"), "[access]\nallow-root-owner = true")
            .unwrap();
        std::fs::write(directory.path().join("R"), "not toml {").unwrap();
        let config = load(directory.path()).unwrap();
        assert_eq!(config.resource.unwrap().noverify, Some(true));
        assert!(config.access.is_some());
        assert!(matches!(load(Path::new("/nosuch/x.toml")), Err(ConfigError::Read { .. })));
    }
}
