//! The attributes of a broker: `-S name=value`, `flux getattr`.

use std::collections::BTreeMap;

/// Names and values, with Flux's defaults.
#[derive(Clone, Debug)]
pub struct Attributes(BTreeMap<String, String>);

/// Why an attribute was not changed; the messages are Flux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    #[error("unknown attribute")]
    Unknown,
    #[error("attribute may not be updated")]
    ReadOnly,
}

/// The default values.
const DEFAULTS: [(&str, &str); 15] = [
    ("broker.critical-ranks", "0"),
    ("broker.quorum-warn", "1m"),
    ("config.path", "-"),
    ("content.backing-module", "none"),
    ("instance-level", "0"),
    ("jobid-path", "/"),
    ("log-critical-level", "2"),
    ("log-forward-level", "3"),
    ("log-level", "7"),
    ("log-stderr-level", "3"),
    ("log-stderr-mode", "leader"),
    ("parent-uri", "-"),
    ("tbon.connect_timeout", "30s"),
    ("tbon.tcp_user_timeout", "20s"),
    ("tbon.topo", "kary:0"),
];

impl Attributes {
    /// The defaults, overridden by the values of the command line.
    pub fn new(given: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut attributes: BTreeMap<String, String> =
            DEFAULTS.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        attributes.extend(given);
        Self(attributes)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets any attribute, for the broker itself.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Sets an attribute for a user, who may only change log levels.
    pub fn update(&mut self, name: &str, value: &str) -> Result<(), SetError> {
        let current = self.0.get_mut(name).ok_or(SetError::Unknown)?;
        if !name.starts_with("log-") {
            return Err(SetError::ReadOnly);
        }
        *current = value.to_owned();
        Ok(())
    }

    pub fn all(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_can_only_change_log_levels() {
        let mut attributes = Attributes::new([("size".to_owned(), "4".to_owned())]);
        assert_eq!(attributes.update("log-level", "6"), Ok(()));
        assert_eq!(attributes.get("log-level"), Some("6"));
        assert_eq!(attributes.update("size", "5"), Err(SetError::ReadOnly));
        assert_eq!(attributes.update("nosuch", "5"), Err(SetError::Unknown));
    }

    #[test]
    fn the_command_line_overrides_defaults() {
        let given = [("tbon.topo", "kary:2"), ("any.thing", "")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let attributes = Attributes::new(given);
        assert_eq!(attributes.get("tbon.topo"), Some("kary:2"));
        assert_eq!(attributes.get("any.thing"), Some(""));
    }
}
