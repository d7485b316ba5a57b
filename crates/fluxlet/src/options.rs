//! Parses arguments by the rules that getopt and Python's argparse share: `-n4`, `-n 4`,
//! `--nodes=4`, `--nodes 4`, unambiguous prefixes of long names, `--` as the end of options.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub short: Option<char>,
    pub long: &'static str,
    pub value: ValueMode,
}

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueMode {
    None,
    Required,
    /// Only as `--name=value`.
    Optional,
}

/// An option with a value.
pub const fn flag(short: Option<char>, long: &'static str) -> Flag {
    Flag { short, long, value: ValueMode::Required }
}

/// An option without a value.
pub const fn switch(short: Option<char>, long: &'static str) -> Flag {
    Flag { short, long, value: ValueMode::None }
}

/// The options that a command accepts.
#[derive(Clone, Copy, Debug)]
pub struct Syntax<'a> {
    pub flags: &'a [Flag],
    /// Whether options may follow positional arguments. If not, the first one ends the options.
    pub permute: bool,
}

/// Parsed arguments, in order.
#[derive(Debug, Default)]
pub struct ParsedArguments {
    pub values: Vec<(&'static str, String)>,
    pub rest: Vec<OsString>,
}

/// Why arguments are not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("unrecognized option '{option}'")]
    Unknown { option: String },
    #[error("option '{option}' requires an argument")]
    Missing { option: String },
    #[error("option '--{option}' doesn't allow an argument")]
    Unwanted { option: String },
}

impl Syntax<'_> {
    pub fn parse(&self, arguments: &[OsString]) -> Result<ParsedArguments, OptionError> {
        let mut parsed = ParsedArguments::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let bytes = word.as_bytes();
            if bytes == b"--" {
                break;
            }
            if let Some(long) = bytes.strip_prefix(b"--") {
                self.long(&String::from_utf8_lossy(long), &mut words, &mut parsed)?;
            } else if bytes.len() > 1 && bytes[0] == b'-' {
                self.short(&bytes[1..], &mut words, &mut parsed)?;
            } else {
                parsed.rest.push(word.clone());
                if !self.permute {
                    break;
                }
            }
        }
        parsed.rest.extend(words.cloned());
        Ok(parsed)
    }

    fn long<'w>(
        &self,
        text: &str,
        words: &mut impl Iterator<Item = &'w OsString>,
        parsed: &mut ParsedArguments,
    ) -> Result<(), OptionError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let option = || format!("--{name}");
        let flag = self.find(name).ok_or_else(|| OptionError::Unknown { option: option() })?;
        let value = match (flag.value, value) {
            (ValueMode::None, Some(_)) => {
                return Err(OptionError::Unwanted { option: flag.long.to_owned() });
            }
            (ValueMode::None, None) | (ValueMode::Optional, None) => String::new(),
            (_, Some(value)) => value,
            (ValueMode::Required, None) => {
                next(words).ok_or_else(|| OptionError::Missing { option: option() })?
            }
        };
        parsed.values.push((flag.long, value));
        Ok(())
    }

    fn short<'w>(
        &self,
        mut bytes: &[u8],
        words: &mut impl Iterator<Item = &'w OsString>,
        parsed: &mut ParsedArguments,
    ) -> Result<(), OptionError> {
        while let Some((letter, rest)) = bytes.split_first() {
            let option = || format!("-{}", char::from(*letter));
            let flag = self.flags.iter().find(|flag| flag.short == Some(char::from(*letter)));
            let flag = flag.ok_or_else(|| OptionError::Unknown { option: option() })?;
            if flag.value == ValueMode::Required {
                let value = if rest.is_empty() {
                    next(words).ok_or_else(|| OptionError::Missing { option: option() })?
                } else {
                    OsStr::from_bytes(rest).to_string_lossy().into_owned()
                };
                parsed.values.push((flag.long, value));
                return Ok(());
            }
            parsed.values.push((flag.long, String::new()));
            bytes = rest;
        }
        Ok(())
    }

    /// The flag of this name, or the only one with this prefix.
    fn find(&self, name: &str) -> Option<Flag> {
        if let Some(exact) = self.flags.iter().find(|flag| flag.long == name) {
            return Some(*exact);
        }
        let mut similar = self.flags.iter().filter(|flag| flag.long.starts_with(name));
        similar.next().copied().filter(|_| similar.next().is_none() && !name.is_empty())
    }
}

fn next<'w>(words: &mut impl Iterator<Item = &'w OsString>) -> Option<String> {
    words.next().map(|word| String::from_utf8_lossy(&word.clone().into_vec()).into_owned())
}

impl ParsedArguments {
    /// The last value of an option.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.values.iter().rfind(|(found, _)| *found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Every value of an option.
    pub fn all<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
        self.values.iter().filter(move |(found, _)| *found == name).map(|(_, value)| value.as_str())
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The positional arguments, as text.
    pub fn positional(&self) -> Vec<String> {
        self.rest.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: [Flag; 5] = [
        flag(Some('n'), "ntasks"),
        flag(Some('N'), "nodes"),
        switch(Some('v'), "verbose"),
        switch(None, "watch"),
        Flag { short: None, long: "progress", value: ValueMode::Optional },
    ];

    fn parse(words: &[&str], permute: bool) -> Result<ParsedArguments, OptionError> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Syntax { flags: &FLAGS, permute }.parse(&words)
    }

    #[test]
    fn all_spellings_are_parsed() {
        for words in [&["-n4"][..], &["-n", "4"], &["--ntasks=4"], &["--ntasks", "4"], &["--nta=4"]]
        {
            assert_eq!(parse(words, false).unwrap().get("ntasks"), Some("4"), "{words:?}");
        }
        assert_eq!(parse(&["-vvv"], false).unwrap().all("verbose").count(), 3);
        assert_eq!(parse(&["-vn4"], false).unwrap().get("ntasks"), Some("4"));
        assert_eq!(parse(&["--progress"], false).unwrap().get("progress"), Some(""));
    }

    #[test]
    fn the_first_word_ends_the_options() {
        let parsed = parse(&["-v", "ls", "-l", "--watch"], false).unwrap();
        assert_eq!(parsed.rest, ["ls", "-l", "--watch"]);
        let parsed = parse(&["--", "-v"], false).unwrap();
        assert_eq!(parsed.rest, ["-v"]);
        let parsed = parse(&["ls", "-v", "x"], true).unwrap();
        assert!(parsed.has("verbose"));
        assert_eq!(parsed.rest, ["ls", "x"]);
    }

    #[test]
    fn unknown_options_are_errors() {
        let unknown = |option: &str| OptionError::Unknown { option: option.to_owned() };
        assert_eq!(parse(&["--nosuch"], false).unwrap_err(), unknown("--nosuch"));
        assert_eq!(parse(&["-x"], false).unwrap_err(), unknown("-x"));
        assert_eq!(parse(&["--n=1"], false).unwrap_err(), unknown("--n"));
        assert!(matches!(parse(&["-n"], false), Err(OptionError::Missing { .. })));
        assert!(matches!(parse(&["--watch=1"], false), Err(OptionError::Unwanted { .. })));
    }
}
