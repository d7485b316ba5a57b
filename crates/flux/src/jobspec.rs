//! Jobspecs: the parts that `flux job list` does not print. Follows Flux RFC 14 and 25.

mod attributes;
mod batch;
mod environment;
mod resource_request;
mod run;
mod section;
mod update;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::JobId;
pub use batch::JobspecBatch;
pub use environment::Environment;
pub use resource_request::ResourceRequest;
pub use run::{JobRun, TaskCount};
pub use section::JobRunError;
pub use update::{JobspecUpdate, update_jobspec};

/// Attributes that only matter when the job runs, and may be large: the script of `flux batch` is among
/// the files.
const OMITTED_ATTRIBUTES: [&str; 4] = ["environment", "shell", "cwd", "files"];

/// What a job requests, as far as `flux job list` does not print it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobspec {
    /// How many GPUs it requests: on each node if its resources contain nodes, else in total.
    pub gpus: u32,
    /// Its attributes below `attributes.system`, such as `constraints` and `burstable`, without
    /// those that only matter when the job runs.
    pub attributes: BTreeMap<String, Value>,
}

impl Jobspec {
    /// Parses a jobspec. Fails only if the text is not JSON: resources and attributes of another
    /// form are left out.
    pub fn parse(text: &str) -> Result<Jobspec, serde_json::Error> {
        let mut jobspec: Value = serde_json::from_str(text)?;
        // An index that is assigned to panics if the jobspec is not an object.
        let system = jobspec.pointer_mut("/attributes/system").map(Value::take).unwrap_or_default();
        let mut attributes: BTreeMap<String, Value> =
            serde_json::from_value(system).unwrap_or_default();
        attributes.retain(|name, _| !OMITTED_ATTRIBUTES.contains(&name.as_str()));
        let gpus = u32::try_from(requested_gpus(&jobspec["resources"])).unwrap_or(u32::MAX);
        Ok(Jobspec { gpus, attributes })
    }

    /// The key of a job's jobspec in Flux's key-value store.
    pub fn key(id: JobId) -> String {
        format!("job.{}.jobspec", id.to_dotted_hexadecimal())
    }
}

/// The GPUs on each node, or in total if there are no nodes. If nodes differ, the largest number.
fn requested_gpus(resources: &Value) -> u64 {
    match gpus_per_node(resources) {
        Some(gpus) => gpus,
        None => total_gpus(resources),
    }
}

fn gpus_per_node(resources: &Value) -> Option<u64> {
    let of_vertex = |vertex: &Value| match vertex["type"].as_str() {
        Some("node") => Some(total_gpus(&vertex["with"])),
        _ => gpus_per_node(&vertex["with"]),
    };
    vertices(resources).iter().filter_map(of_vertex).max()
}

/// The GPUs among these resources and below them.
fn total_gpus(resources: &Value) -> u64 {
    let of_vertex = |vertex: &Value| match vertex["type"].as_str() {
        Some("gpu") => count(&vertex["count"]),
        _ => count(&vertex["count"]).saturating_mul(total_gpus(&vertex["with"])),
    };
    vertices(resources).iter().map(of_vertex).fold(0, u64::saturating_add)
}

fn vertices(resources: &Value) -> &[Value] {
    resources.as_array().map_or(&[], Vec::as_slice)
}

/// A count: a number, or the minimum of a range such as `{"min": 2, "max": 4}` or `"2-4"`.
fn count(value: &Value) -> u64 {
    match value {
        Value::Object(range) => range.get("min").and_then(Value::as_u64).unwrap_or(0),
        Value::String(range) => {
            let digits = range.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            digits.parse().unwrap_or(0)
        }
        number => number.as_u64().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobspec_of_flux_is_parsed() {
        // What flux-core 0.88 printed.
        let text = r#"{"resources": [{"type": "node", "count": 4, "exclusive": true, "with": [{"type": "slot", "count": 1, "with": [{"type": "core", "count": 1}], "label": "task"}]}], "tasks": [{"command": ["hostname"], "slot": "task", "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 0, "cwd": "/home/user/work", "shell": {"options": {"rlimit": {"cpu": -1, "fsize": -1, "data": -1, "stack": 8388608, "core": 0, "nofile": 20000, "as": -1, "rss": -1, "nproc": 96343}}}, "burstable": 1}}, "version": 1}"#;
        let jobspec = Jobspec::parse(text).unwrap();
        let attributes = [("burstable".to_owned(), 1.into()), ("duration".to_owned(), 0.into())];
        assert_eq!(jobspec, Jobspec { gpus: 0, attributes: attributes.into() });
        // As `flux batch` submits its script.
        let batch = text.replace(
            "\"burstable\"",
            "\"files\": {\"script\": {\"data\": \"hostname\"}}, \"burstable\"",
        );
        assert_eq!(Jobspec::parse(&batch).unwrap(), jobspec);
        assert_eq!(Jobspec::parse("{}").unwrap(), Jobspec::default());
        for other in ["7", r#"{"attributes": 7, "resources": "x"}"#] {
            assert_eq!(Jobspec::parse(other).unwrap(), Jobspec::default());
        }
        assert!(Jobspec::parse(&text[..100]).is_err());
        assert_eq!(Jobspec::key(JobId::from(81_856_036_864)), "job.0000.0013.0f00.0000.jobspec");
    }

    #[test]
    fn gpus_are_counted_per_node_or_in_total() {
        let gpus = |resources: &str| {
            Jobspec::parse(&format!(r#"{{"resources": {resources}}}"#)).unwrap().gpus
        };
        let slot = |count: &str| {
            format!(
                r#"[{{"type": "slot", "count": {count}, "label": "task", "with":
                    [{{"type": "core", "count": 4}}, {{"type": "gpu", "count": 2}}]}}]"#
            )
        };
        // flux submit -n3 -c4 -g2; then -N4 -n12
        assert_eq!(gpus(&slot("3")), 6);
        let node = |with: &str| format!(r#"[{{"type": "node", "count": 4, "with": {with}}}]"#);
        assert_eq!(gpus(&node(&slot("3"))), 6);
        assert_eq!(gpus(&node(&slot(r#"{"min": 2, "max": 8, "operator": "+"}"#))), 4);
        assert_eq!(gpus(&node(&slot(r#""1-4""#))), 2);
        let outside = format!(r#"[{{"type": "slot", "count": 9, "with": {}}}]"#, node(&slot("1")));
        assert_eq!(gpus(&outside), 2, "a node in a slot");
        assert_eq!(gpus(&node("[]")), 0);
        assert_eq!(gpus(&slot("18446744073709551615")), u32::MAX);
        assert_eq!(gpus("[7, {}]"), 0);
    }
}
