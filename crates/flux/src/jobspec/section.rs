//! Objects of a jobspec, taken apart key by key, and what can be wrong with them.

use std::num::NonZeroU32;

use serde_json::{Map, Value};

/// What the user can do if a jobspec is not what `flux submit` writes.
const ADVICE: &str = "submit the job with flux submit, flux run or flux batch";

/// Flux reads counts into a C `int`.
const MAX_COUNT: u64 = i32::MAX as u64;

/// How many characters of a key an error contains. Keys come from users and may be long or contain
/// control characters.
const MAX_KEY_LENGTH: usize = 64;

/// Why a job cannot run in another instance. Contains names from the jobspec, never values, because
/// its environment may contain secrets.
#[derive(Debug, thiserror::Error)]
pub enum JobRunError {
    /// It is not JSON, or nested too deeply.
    #[error("jobspec is not JSON")]
    NotJson {
        /// Where, and what is wrong there.
        source: serde_json::Error,
    },
    /// It has more values than a real one.
    #[error("jobspec has more than {limit} values: {ADVICE}")]
    TooManyValues {
        /// How many it may have.
        limit: usize,
    },
    /// It lacks a key.
    #[error("jobspec has no {part}: {ADVICE}")]
    Missing {
        /// The key, such as `tasks[0].command`.
        part: String,
    },
    /// It has a key that version 1 does not have.
    #[error("jobspec has {part}, which is not part of version 1: {ADVICE}")]
    Unknown {
        /// The key, such as `tasks[0].distribution`.
        part: String,
    },
    /// A value is not what version 1 allows.
    #[error("{part} of the jobspec is not {expected}: {ADVICE}")]
    NotExpected {
        /// Its key, such as `resources[0].count`.
        part: String,
        /// What version 1 allows.
        expected: &'static str,
    },
    /// It is the jobspec that Flux stores for its scheduler.
    #[error(
        "jobspec has no attributes.system.environment: \
         read the one that was submitted, with flux job info --original"
    )]
    NoEnvironment,
    /// A change cannot be applied to it.
    #[error("jobspec was changed at {part}, which cannot be applied: submit the job again")]
    NotUpdatable {
        /// Its path, such as `attributes.system.duration`.
        part: String,
    },
    /// It refers to something that exists only in the instance where the job was submitted.
    #[error("job can only run where it was submitted because {reason}: {advice}")]
    Bound {
        /// What that is.
        reason: &'static str,
        /// What the user can do.
        advice: &'static str,
    },
}

/// An object from which keys are taken one by one, so that none is overlooked.
pub(super) struct Section {
    /// Where it is in the jobspec; empty for the jobspec itself.
    path: String,
    keys: Map<String, Value>,
}

impl Section {
    pub(super) fn new(path: &str, value: Value) -> Result<Section, JobRunError> {
        match value {
            Value::Object(keys) => Ok(Section { path: path.to_owned(), keys }),
            _ => Err(not_expected(path, "an object")),
        }
    }

    /// Where this object is in the jobspec.
    pub(super) fn own_path(&self) -> &str {
        &self.path
    }

    /// The path of a key of this object.
    pub(super) fn path(&self, key: &str) -> String {
        let key = shown(key);
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.keys.remove(key)
    }

    pub(super) fn require(&mut self, key: &str) -> Result<Value, JobRunError> {
        self.take(key).ok_or_else(|| JobRunError::Missing { part: self.path(key) })
    }

    pub(super) fn section(&mut self, key: &str) -> Result<Section, JobRunError> {
        Section::new(&self.path(key), self.require(key)?)
    }

    /// The objects of a list.
    pub(super) fn sections(&mut self, key: &str) -> Result<Vec<Section>, JobRunError> {
        let path = self.path(key);
        let Value::Array(list) = self.require(key)? else {
            return Err(not_expected(&path, "a list"));
        };
        let of_entry = |(index, value)| Section::new(&format!("{path}[{index}]"), value);
        list.into_iter().enumerate().map(of_entry).collect()
    }

    /// The only object of a list.
    pub(super) fn only_section(&mut self, key: &str) -> Result<Section, JobRunError> {
        match <[Section; 1]>::try_from(self.sections(key)?) {
            Ok([section]) => Ok(section),
            Err(_) => Err(not_expected(&self.path(key), "a list with one entry")),
        }
    }

    pub(super) fn string(&mut self, key: &str) -> Result<String, JobRunError> {
        match self.require(key)? {
            Value::String(text) => Ok(text),
            _ => Err(not_expected(&self.path(key), "a string")),
        }
    }

    pub(super) fn boolean(&mut self, key: &str) -> Result<Option<bool>, JobRunError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(not_expected(&self.path(key), "true or false")),
        }
    }

    /// A count of at least 1. Ranges, which RFC 14 has, are not part of version 1.
    pub(super) fn count(&mut self, key: &str) -> Result<NonZeroU32, JobRunError> {
        let count = self.count_or_zero(key)?;
        NonZeroU32::new(count).ok_or_else(|| not_expected(&self.path(key), "at least 1"))
    }

    pub(super) fn count_or_zero(&mut self, key: &str) -> Result<u32, JobRunError> {
        let count = self.require(key)?.as_u64().filter(|count| *count <= MAX_COUNT);
        let count = count.and_then(|count| u32::try_from(count).ok());
        count.ok_or_else(|| not_expected(&self.path(key), "a whole number below 2147483648"))
    }

    /// Fails if there are keys that were not taken.
    pub(super) fn finish(self) -> Result<(), JobRunError> {
        match self.keys.keys().next() {
            None => Ok(()),
            Some(key) => Err(JobRunError::Unknown { part: self.path(key) }),
        }
    }

    /// The keys that were not taken.
    pub(super) fn into_rest(self) -> Map<String, Value> {
        self.keys
    }
}

/// A key, as an error contains it.
pub(super) fn shown(key: &str) -> String {
    key.chars().take(MAX_KEY_LENGTH).flat_map(char::escape_debug).collect()
}

pub(super) fn not_expected(path: &str, expected: &'static str) -> JobRunError {
    let part = if path.is_empty() { "the top level" } else { path };
    JobRunError::NotExpected { part: part.to_owned(), expected }
}
