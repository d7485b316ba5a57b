//! Targets whose Kubernetes cluster is made for a burst, and deleted with it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};
use kube::KubeSchema;
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::embedded::embedded_list;
use crate::unset::is_unset;

/// A cluster that Cluster API makes, from a ClusterClass or a template.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.class) != has(self.template)")
        .message("a Cluster is made from class or from template: set exactly one of them"),
    validation = Rule::new("!has(self.class) || has(self.version)")
        .message("a Cluster of a class needs version, such as v1.34.0")
)]
pub struct ClusterApiTarget {
    /// The ClusterClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClusterClassReference>,

    /// With class: the version of Kubernetes, such as v1.34.0.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(
        length(max = 64),
        regex(pattern = r"^$|^v[0-9]+\.[0-9]+\.[0-9]+([-+.][0-9A-Za-z.+-]*)?$")
    )]
    pub version: String,

    /// With class: variables of the class, at most 64 KiB in total.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "variables")]
    pub variables: BTreeMap<String, JsonText>,

    /// A Cluster as YAML, at most 64 KiB, in a ConfigMap of the namespace. `${NAME}`, `${NAMESPACE}` and `${NODES}`
    /// are replaced; its name must be `${NAME}`, and its class one of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<ClusterTemplate>,

    /// Namespace in the new cluster, which must exist. Unset: default.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
}

/// A JSON value of any form, as text. It can only be parsed from JSON, and serialized as JSON.
///
/// As a tree of values, a list of small objects would take a hundred times the memory of its text, and
/// users choose what is in it.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(transparent)]
pub struct JsonText(Box<RawValue>);

impl ClusterApiTarget {
    /// The most bytes of all variables together, and of a template: more than any Cluster needs. Parsed,
    /// they take up to a hundred times as much memory.
    pub const MAX_TEXT: usize = 64 * 1024;

    /// The variables of the class, parsed. The error is what is wrong with them.
    pub fn variable_values(&self) -> Result<BTreeMap<&str, Value>, String> {
        let sizes = self.variables.iter().map(|(name, value)| name.len() + value.0.get().len());
        let size: usize = sizes.sum();
        if size > Self::MAX_TEXT {
            return Err(format!(
                "have {size} bytes in total: at most {} are allowed",
                Self::MAX_TEXT
            ));
        }
        let parsed = |(name, value): (_, &JsonText)| (name, serde_json::from_str(value.0.get()));
        let all = self.variables.iter().map(|(name, value)| parsed((name.as_str(), value)));
        all.map(|(name, value)| match value {
            Ok(value) => Ok((name, value)),
            Err(_error) => Err(format!("include {name:?}, which is nested too deeply")),
        })
        .collect()
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &JsonText) -> bool {
        self.0.get() == other.0.get()
    }
}

/// A ClusterClass of the policy's namespace, and its class of workers.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterClassReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The class of its MachineDeployments whose machines are the nodes of the burst.
    #[schemars(length(min = 1, max = 256))]
    pub workers: String,

    /// Machines of the control plane. Unset: as many as its provider chooses. Leave it out if the cloud
    /// runs the control plane, as with EKS and GKE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9))]
    pub control_plane_machines: Option<i32>,
}

/// Where a template of a Cluster is.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTemplate {
    /// The ConfigMap.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub config_map: String,

    /// Its key. Unset: cluster.yaml.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub key: String,
}

/// A cluster that a program of the user's makes.
///
/// It runs as a Job of the policy's namespace, and writes a kubeconfig into a Secret. Its environment
/// has BURST_NAME, the name of the cluster to make; BURST_NODES, how many nodes; BURST_SECRET, the
/// Secret to write, with key kubeconfig; BURST_NAMESPACE, where the Secret belongs; BURST_CLUSTER, the
/// MiniCluster.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CommandTarget {
    /// The image with the program.
    #[schemars(length(min = 1, max = 1024))]
    pub image: String,

    /// The program with its arguments that makes the cluster, or changes it to have BURST_NODES nodes.
    /// It may be run again at any time, and then does what is left to do.
    #[schemars(length(min = 1, max = 64), inner(length(max = 65_536)))]
    pub up: Vec<String>,

    /// The program that deletes the cluster. It succeeds if there is none. It may be run again at any
    /// time.
    #[schemars(length(min = 1, max = 64), inner(length(max = 65_536)))]
    pub down: Vec<String>,

    /// The ServiceAccount of its pod. It must be allowed to create and patch the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub service_account: String,

    /// More variables of its environment.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<EnvVar>")]
    pub env: Vec<EnvVar>,

    /// Secrets and ConfigMaps whose keys become variables of its environment, such as credentials of a
    /// cloud.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(schema_with = "embedded_list::<EnvFromSource>")]
    pub env_from: Vec<EnvFromSource>,

    /// How long the program may run. Unset: 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 86_400))]
    pub timeout_seconds: Option<i32>,

    /// Namespace in the new cluster, which must exist. Unset: that of the kubeconfig's context.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
}

impl CommandTarget {
    /// How long the program may run.
    pub fn timeout_seconds(&self) -> i64 {
        i64::from(self.timeout_seconds.unwrap_or(3600))
    }
}

/// Values of any form, by name.
fn variables(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "x-kubernetes-preserve-unknown-fields": true },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_kept_as_they_are_written() {
        let text = r#"{"variables":{"a":[{"b":1.50},null],"c":"d"}}"#;
        let target: ClusterApiTarget = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&target).unwrap(), text);
        let value = serde_json::to_value(&target).unwrap();
        assert_eq!(value["variables"]["a"][0]["b"], 1.5);
        assert_eq!(serde_json::from_value::<ClusterApiTarget>(value).unwrap().variables.len(), 2);
        let values = target.variable_values().unwrap();
        assert_eq!((&values["c"], values.len()), (&"d".into(), 2));
    }

    #[test]
    fn variables_that_are_too_large_or_too_deep_are_refused() {
        let refusal = |value: String| {
            let text = format!(r#"{{"variables":{{"zone":{value}}}}}"#);
            let target: ClusterApiTarget = serde_json::from_str(&text).unwrap();
            target.variable_values().unwrap_err()
        };
        let large = format!("[{}0]", "{},".repeat(30_000));
        assert_eq!(refusal(large), "have 90007 bytes in total: at most 65536 are allowed");
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(refusal(deep), "include \"zone\", which is nested too deeply");
    }
}
