//! A job request: its shape, its command and its options. Printed, it is a jobspec of version 1
//! (Flux RFC 25).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::bytes::Bytes;

/// A job as it is submitted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Submission {
    pub shape: Shape,
    pub command: Vec<Bytes>,
    pub name: String,
    pub directory: Bytes,
    pub environment: Vec<(Bytes, Bytes)>,
    /// Seconds; 0 means no limit.
    pub duration: f64,
    pub urgency: u8,
    pub waitable: bool,
    /// Whether a client will send standard input.
    pub input: bool,
    /// Name templates of the files for standard output and standard error.
    pub files: [Option<String>; 2],
    /// Prefix lines in those files with the rank of their task.
    pub label: bool,
    /// The job shell's options, of which few have an effect here.
    pub options: Map<String, Value>,
    /// System attributes, from `--setattr`.
    pub attributes: Map<String, Value>,
    /// The script of a batch job. The command then starts a broker that runs it.
    pub script: Option<Bytes>,
}

/// The requested resources, and the number of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// The number of nodes, if requested.
    pub nodes: Option<u32>,
    /// Whether the nodes are used exclusively.
    pub exclusive: bool,
    /// The number of slots on each node, or in total without a number of nodes.
    pub slots: u32,
    pub cores: u32,
    pub gpus: u32,
    /// The number of tasks, if it is not one per slot.
    pub tasks: Option<u32>,
    /// One task per node, whatever the slots: brokers of a nested instance.
    pub per_node: bool,
}

impl Shape {
    /// The total number of slots.
    pub fn slot_count(&self) -> u32 {
        self.slots.saturating_mul(self.nodes.unwrap_or(1))
    }

    /// The total number of tasks, as counted by `flux jobs`.
    pub fn task_count(&self) -> u32 {
        match (self.tasks, self.nodes) {
            (Some(tasks), _) => tasks,
            (None, Some(nodes)) if self.per_node => nodes,
            (None, _) => self.slot_count(),
        }
    }
}

impl Submission {
    /// The jobspec, without the environment, as `flux job info ID jobspec` prints it.
    pub fn to_jobspec(&self) -> Value {
        let Shape { nodes, exclusive, slots, cores, gpus, tasks, per_node } = self.shape;
        let mut with = vec![json!({"type": "core", "count": cores})];
        if gpus > 0 {
            with.push(json!({"type": "gpu", "count": gpus}));
        }
        let slot = json!({"type": "slot", "count": slots, "with": with, "label": "task"});
        let resources = match nodes {
            Some(nodes) if exclusive => {
                json!([{"type": "node", "count": nodes, "exclusive": true, "with": [slot]}])
            }
            Some(nodes) => json!([{"type": "node", "count": nodes, "with": [slot]}]),
            None => json!([slot]),
        };
        let count = match tasks {
            Some(total) => json!({"total": total}),
            None if per_node => json!({"per_resource": {"type": "node", "count": 1}}),
            None => json!({"per_slot": 1}),
        };
        let command: Vec<String> = self.command.iter().map(Bytes::to_text).collect();
        let mut system = Map::new();
        system.insert("duration".to_owned(), json_number(self.duration));
        system.insert("cwd".to_owned(), json!(self.directory.to_text()));
        system.insert("shell".to_owned(), json!({"options": self.options}));
        system.extend(self.attributes.clone());
        json!({
            "resources": resources,
            "tasks": [{"command": command, "slot": "task", "count": count}],
            "attributes": {"system": system},
            "version": 1,
        })
    }

    /// The jobspec as it was submitted, which `flux job info --original ID jobspec` prints.
    pub fn to_original(&self) -> Value {
        let mut jobspec = self.to_jobspec();
        let variables = self.environment.iter();
        let environment: Map<String, Value> =
            variables.map(|(name, value)| (name.to_text(), value.to_text().into())).collect();
        jobspec["attributes"]["system"]["environment"] = environment.into();
        jobspec
    }
}

/// A JSON number, without a fraction if it is whole.
fn json_number(number: f64) -> Value {
    if number.fract() == 0.0 { json!(number as u64) } else { json!(number) }
}

/// Replaces `{{id}}` and its variants in the name of a file, as Flux's job shell does. Unknown tags
/// are kept.
pub fn fill_template(template: &str, id: flux_operator_flux::JobId, name: &str) -> String {
    let mut filled = template.to_owned();
    for (tag, value) in [
        ("{{id}}", id.to_string()),
        ("{{jobid}}", id.to_string()),
        ("{{id.f58}}", id.to_string()),
        ("{{id.f58plain}}", id.to_f58_plain()),
        ("{{id.dec}}", id.number().to_string()),
        ("{{id.hex}}", format!("{:#x}", id.number())),
        ("{{name}}", name.to_owned()),
    ] {
        filled = filled.replace(tag, &value);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_counts_tasks_as_flux_does() {
        let nodes = Shape { nodes: Some(2), slots: 2, cores: 1, ..Shape::default() };
        assert_eq!(nodes.task_count(), 4);
        assert_eq!(Shape { tasks: Some(3), ..nodes }.task_count(), 3);
        assert_eq!(Shape { per_node: true, ..nodes }.task_count(), 2);
        assert_eq!(Shape { nodes: None, slots: 9, ..nodes }.task_count(), 9);
    }

    #[test]
    fn templates_contain_the_id_and_name() {
        let id = "ƒ2bGzJKq".parse().unwrap();
        assert_eq!(fill_template("o.{{id}}.{{x}}", id, "a"), "o.ƒ2bGzJKq.{{x}}");
        assert_eq!(fill_template("{{id.dec}}-{{name}}", id, "a"), "60565749760-a");
    }
}
