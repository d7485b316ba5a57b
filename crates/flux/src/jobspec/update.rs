//! Changes of a jobspec after its job was submitted. Follows Flux RFC 21.
//!
//! Flux keeps a jobspec as it was submitted, and its changes as events `jobspec-update`: paths, such as
//! `attributes.system.duration`, and values. flux-core 0.88 lets `flux update` change the duration, and
//! the queue with its constraints. Plugins may allow more, and change a job themselves.

use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::run::MAX_VALUES;
use super::section::{JobRunError, shown};
use crate::count_values;

/// How many keys a path may have. Those that flux-core changes have three.
const MAX_DEPTH: usize = 16;

/// One change of a jobspec: an event, not parsed yet. `Debug` does not print it, because it may change
/// the environment.
#[derive(Clone, PartialEq, Eq)]
pub struct JobspecUpdate(String);

#[derive(Deserialize)]
struct UpdateLine {
    context: Map<String, Value>,
}

impl JobspecUpdate {
    /// The change of this line of an event log.
    pub(crate) fn of_line(line: &str) -> JobspecUpdate {
        JobspecUpdate(line.to_owned())
    }
}

impl fmt::Debug for JobspecUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobspecUpdate").finish_non_exhaustive()
    }
}

/// A jobspec with these changes, in their order, as Flux applies them. It may be longer than the one that
/// is given. Fails if one of them cannot be applied, where Flux logs that and goes on: the job would not
/// run as its user expects.
pub fn update_jobspec(text: &str, updates: &[JobspecUpdate]) -> Result<String, JobRunError> {
    let values = updates.iter().map(|update| count_values(&update.0));
    if values.fold(count_values(text), usize::saturating_add) > MAX_VALUES {
        return Err(JobRunError::TooManyValues { limit: MAX_VALUES });
    }
    let mut jobspec: Value =
        serde_json::from_str(text).map_err(|source| JobRunError::NotJson { source })?;
    for update in updates {
        let UpdateLine { context } = serde_json::from_str(&update.0)
            .map_err(|_invalid| JobRunError::NotUpdatable { part: "an unknown path".into() })?;
        for (path, value) in context {
            set(&mut jobspec, &path, value)
                .ok_or_else(|| JobRunError::NotUpdatable { part: shown(&path) })?;
        }
    }
    Ok(jobspec.to_string())
}

/// Sets the value at a path, of objects that are created where there are none.
fn set(jobspec: &mut Value, path: &str, value: Value) -> Option<()> {
    let keys: Vec<&str> = path.split('.').take(MAX_DEPTH + 1).collect();
    let (last, parents) = keys.split_last()?;
    if keys.len() > MAX_DEPTH || keys.contains(&"") {
        return None;
    }
    let mut object = jobspec.as_object_mut()?;
    for key in parents {
        let child = object.entry(*key).or_insert_with(|| Map::new().into());
        object = child.as_object_mut()?;
    }
    object.insert((*last).to_owned(), value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    const JOBSPEC: &str = r#"{"version": 1, "tasks": [], "attributes": {"system": {"duration": 60.0, "environment": {"TOKEN": "hunter2"}}}}"#;

    fn update(context: &Value) -> JobspecUpdate {
        JobspecUpdate(
            json!({"timestamp": 1.0, "name": "jobspec-update", "context": context}).to_string(),
        )
    }

    fn updated(contexts: &[Value]) -> Result<Value, String> {
        let updates: Vec<JobspecUpdate> = contexts.iter().map(update).collect();
        let text = update_jobspec(JOBSPEC, &updates).map_err(|error| error.to_string())?;
        Ok(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn changes_are_applied_in_their_order() {
        // The contexts that flux-core 0.88 wrote for flux update duration=2h, queue=batch, duration=30m.
        let queue = json!({"attributes.system.queue": "batch",
            "attributes.system.constraints": {"properties": ["b"]}});
        let duration = |seconds: f64| json!({"attributes.system.duration": seconds});
        let changed = updated(&[duration(7200.0), queue, duration(1800.0)]).unwrap();
        let system = &changed["attributes"]["system"];
        assert_eq!(system["duration"], 1800.0);
        assert_eq!(
            (&system["queue"], &system["constraints"]),
            (&json!("batch"), &json!({"properties": ["b"]}))
        );
        assert_eq!(system["environment"], json!({"TOKEN": "hunter2"}), "the rest is as before");
        let name = updated(&[json!({"attributes.system.job.name": "a"})]).unwrap();
        assert_eq!(name["attributes"]["system"]["job"], json!({"name": "a"}));
        assert_eq!(updated(&[]).unwrap(), serde_json::from_str::<Value>(JOBSPEC).unwrap());
    }

    #[test]
    fn what_cannot_be_applied_is_an_error() {
        let deep = "a.".repeat(MAX_DEPTH) + "a";
        let long = "x".repeat(9000) + ".";
        for path in ["attributes..x", "", ".", "version.x", "tasks.x", &deep, &long] {
            let error = updated(&[json!({path: 1})]).unwrap_err();
            assert!(error.contains("cannot be applied"), "{error}");
            assert!(error.len() < 200, "{}", error.len());
        }
        for context in [json!(null), json!([1]), json!("x")] {
            assert!(updated(&[context]).unwrap_err().contains("cannot be applied"));
        }
        let large = json!({"attributes.system.x": vec![0; MAX_VALUES]});
        assert!(updated(&[large]).unwrap_err().starts_with("jobspec has more than"));
        let many = vec![json!({"attributes.system.duration": 1}); MAX_VALUES];
        assert!(updated(&many).unwrap_err().starts_with("jobspec has more than"));
        let nested = format!("{{\"context\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        let nested = [JobspecUpdate(nested)];
        assert!(update_jobspec(JOBSPEC, &nested).is_err());
        assert!(update_jobspec("[]", &[update(&json!({"a": 1}))]).is_err());
    }

    #[test]
    fn values_are_never_printed() {
        let secret = update(&json!({"attributes.system.environment.TOKEN": "hunter2"}));
        assert!(!format!("{secret:?}").contains("hunter2"));
        let error = updated(&[json!({"version.x": "hunter2"})]).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
