//! The environment of the program, parsed once.

use std::fmt;

use flux_operator_wire::{GKE_CREDENTIALS, GKE_SETTINGS, GkeSettings, burst_variable};

/// What the program was asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the cluster, and the value of the label by which it is known.
    pub name: String,
    /// How many nodes brokers need.
    pub nodes: i32,
    /// The Secret for the kubeconfig, in the Kubernetes cluster of the program.
    pub secret: String,
    /// The namespace of the Secret.
    pub namespace: String,
    /// What the target says.
    pub target: GkeSettings,
    /// The key of a Google service account, if the metadata server is not to be asked.
    pub credentials: Option<Key>,
    /// Where Google's services are.
    pub places: Places,
}

/// The key of a Google service account, as Google writes it.
#[derive(Clone)]
pub struct Key(pub(crate) serde_json::Value);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<redacted>")
    }
}

/// Where Google's services are; what is unset is where Google has it.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The API of Google Kubernetes Engine, such as a regional or a private endpoint.
    pub api: Option<String>,
    /// The metadata server.
    pub metadata: Option<String>,
}

/// What is wrong with the environment. It never contains a value of the key.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A variable is missing.
    #[error("{0} is not set: the burst controller sets it in the Jobs that it creates")]
    Missing(&'static str),
    /// A variable has a value of the wrong form.
    #[error("{0} is not {1}")]
    Invalid(&'static str, &'static str),
}

impl Settings {
    /// The settings for `up` and `down`, from variables.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, SettingsError> {
        let required = |name| variable(name).ok_or(SettingsError::Missing(name));
        let nodes = required(burst_variable::NODES)?;
        let nodes = nodes.parse().ok().filter(|it| *it > 0);
        Ok(Settings {
            name: required(burst_variable::NAME)?,
            nodes: nodes
                .ok_or(SettingsError::Invalid(burst_variable::NODES, "a number of nodes"))?,
            secret: required(burst_variable::SECRET)?,
            namespace: required(burst_variable::NAMESPACE)?,
            ..Settings::for_list(variable)?
        })
    }

    /// The settings for `list`, which is about all clusters of a project and zone.
    pub fn for_list(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, SettingsError> {
        let target = variable(GKE_SETTINGS).ok_or(SettingsError::Missing(GKE_SETTINGS))?;
        let target = serde_json::from_str(&target);
        let key = variable(GKE_CREDENTIALS).map(|text| serde_json::from_str(&text));
        Ok(Settings {
            name: String::new(),
            nodes: 0,
            secret: String::new(),
            namespace: String::new(),
            target: target.map_err(|_| SettingsError::Invalid(GKE_SETTINGS, "a GKE target"))?,
            // The parser's message may contain a part of the key.
            credentials: key.transpose().map(|key| key.map(Key)).map_err(|_| {
                SettingsError::Invalid(GKE_CREDENTIALS, "the JSON of a service account's key")
            })?,
            places: Places { api: variable("GKE_ENDPOINT"), metadata: None },
        })
    }

    /// The namespace for brokers in the new cluster.
    pub(crate) fn inner_namespace(&self) -> &str {
        match self.target.namespace.as_str() {
            "" => "default",
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(change: (&str, Option<&str>)) -> Result<Settings, SettingsError> {
        Settings::of(|name| match name {
            _ if name == change.0 => change.1.map(str::to_owned),
            "BURST_NODES" => Some("2".into()),
            GKE_SETTINGS => Some(r#"{"project": "p", "autoscaling": [1, 4]}"#.into()),
            GKE_CREDENTIALS => Some(r#"{"private_key": "very-secret"}"#.into()),
            "GKE_ENDPOINT" => None,
            _ => Some("x".into()),
        })
    }

    #[test]
    fn the_environment_of_a_job_is_parsed_and_shown_without_its_key() {
        let settings = parsed(("", None)).unwrap();
        assert_eq!((settings.nodes, settings.target.autoscaling), (2, Some((1, 4))));
        let shown = format!("{settings:?}");
        assert!(shown.contains("<redacted>") && !shown.contains("very-secret"), "{shown}");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_without_its_value() {
        for (name, value) in [
            ("BURST_NAME", None),
            ("BURST_SECRET", None),
            ("BURST_NODES", Some("many")),
            ("BURST_NODES", Some("0")),
            (GKE_SETTINGS, Some(r#"{"typo": 1}"#)),
            (GKE_CREDENTIALS, Some("very-secret")),
        ] {
            let error = parsed((name, value)).unwrap_err().to_string();
            assert!(error.starts_with(name) && !error.contains("very-secret"), "{error}");
        }
    }
}
