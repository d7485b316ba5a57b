//! Names of workloads and setups. They are cheap to clone, because each is kept in several places.

use std::fmt;
use std::sync::Arc;

/// The uid of a workload, which distinguishes it from earlier objects with the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub Arc<str>);

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        Uid(text.into())
    }
}

/// The namespace and name of a setup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetupName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
}

impl SetupName {
    /// The setup `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> SetupName {
        SetupName { namespace: namespace.into(), name: name.into() }
    }
}

/// Parses `namespace/name`.
impl std::str::FromStr for SetupName {
    type Err = ParseSetupNameError;

    fn from_str(text: &str) -> Result<SetupName, ParseSetupNameError> {
        let (namespace, name) = text.split_once('/').ok_or(ParseSetupNameError)?;
        Ok(SetupName::new(namespace, name))
    }
}

impl fmt::Display for SetupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The text is not `namespace/name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseSetupNameError;

/// The queue that a workload names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueName {
    /// No queue is named: the only setup that serves the workload's namespace is used, or the one
    /// called `default` in that namespace.
    Unspecified,
    /// The setup of this name in the workload's namespace, otherwise in the operator's.
    Named(Arc<str>),
    /// This setup.
    Qualified(SetupName),
}

impl From<&str> for QueueName {
    fn from(text: &str) -> QueueName {
        match text.split_once('/') {
            _ if text.is_empty() => QueueName::Unspecified,
            Some((namespace, name)) => QueueName::Qualified(SetupName::new(namespace, name)),
            None => QueueName::Named(text.into()),
        }
    }
}
