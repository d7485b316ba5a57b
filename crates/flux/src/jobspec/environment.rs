//! The environment of a job, without what belongs to the instance where it was submitted.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::section::{JobRunError, Section, not_expected};

/// Variables that belong to an instance of Flux, so that those of one are wrong in another.
///
/// `flux submit` copies its whole environment into the jobspec. All other variables are the user's,
/// also `FLUX_JOB_CC` of `flux submit --cc`, and variables such as `FLUX_EXEC_PATH_PREPEND`.
const OF_THE_INSTANCE: [&str; 22] = [
    // They lead to the instance, or to the one in which it runs. The shell sets some of them again.
    "FLUX_URI",
    "FLUX_START_URI",
    "FLUX_PROXY_REMOTE",
    "FLUX_ENCLOSING_ID",
    "FLUX_KVS_NAMESPACE",
    // Those of the job in which `flux submit` ran. The shell sets them again for this job, except
    // where an option such as `pmi=none` prevents it; the old ones are never right.
    "FLUX_JOB_ID",
    "FLUX_JOB_ID_PATH",
    "FLUX_JOB_NNODES",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_TMPDIR",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_TASK_RANK",
    "FLUX_TERMINUS_SESSION",
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_SPAWNED",
    "FLUX_PMI_LIBRARY_PATH",
    "I_MPI_PMI_LIBRARY",
    // Folders of the Flux that the user ran, which `flux` sets. Libraries use them instead of their
    // own folders, and fail if there is another Flux, or none, at that path.
    "FLUX_CONNECTOR_PATH",
    "FLUX_EXEC_PATH",
    "FLUX_MODULE_PATH",
];

/// The environment of a job. `Debug` prints the names only, because values may be secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Parses the value of `attributes.system.environment`.
    pub(super) fn parse(section: Section) -> Result<Environment, JobRunError> {
        let path = section.own_path().to_owned();
        let of_entry = |(name, value)| match value {
            Value::String(value) => Ok((name, value)),
            // RFC 14 also has null, to unset a variable. Flux's shell does not support it.
            _ => Err(not_expected(&path, "an object of strings")),
        };
        section.into_rest().into_iter().map(of_entry).collect()
    }
}

/// Leaves out the variables that belong to an instance of Flux.
impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Environment {
        let variables = variables.into_iter().filter(|(name, _)| !is_of_the_instance(name));
        Environment(variables.collect())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn is_of_the_instance(name: &str) -> bool {
    OF_THE_INSTANCE.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    fn parse(value: Value) -> Result<Environment, String> {
        let section = Section::new("attributes.system.environment", value);
        section.and_then(Environment::parse).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_of_the_instance_are_left_out() {
        let environment = parse(json!({
            "FLUX_URI": "local:///run/flux/local", "FLUX_JOB_ID": "ƒ2", "PMI_RANK": "0",
            "FLUX_EXEC_PATH": "/opt/flux/libexec/flux/cmd",
            "FLUX_JOB_CC": "3", "FLUX_EXEC_PATH_PREPEND": "/home/user", "EMPTY": "", "": "x",
        }));
        let environment = environment.unwrap();
        let names: Vec<&str> = environment.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["", "EMPTY", "FLUX_EXEC_PATH_PREPEND", "FLUX_JOB_CC"]);
        assert_eq!(
            (environment.get("FLUX_JOB_CC"), environment.get("PMI_RANK")),
            (Some("3"), None)
        );
        let made = [("FLUX_URI", "x"), ("A", "b")];
        let made = made.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(Environment::from_iter(made), parse(json!({"A": "b"})).unwrap());
    }

    #[test]
    fn values_are_never_printed() {
        let environment = parse(json!({"TOKEN": "hunter2"})).unwrap();
        assert_eq!(format!("{environment:?}"), r#"{"TOKEN"}"#);
        for value in [json!({"TOKEN": ["hunter2"]}), json!({"TOKEN": null}), json!("hunter2")] {
            let error = parse(value).unwrap_err();
            assert!(
                error.starts_with("attributes.system.environment of the jobspec is not an obj")
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
