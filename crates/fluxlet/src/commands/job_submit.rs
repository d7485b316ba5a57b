//! `flux job submit`: submits a jobspec of version 1.

use std::fs;

use flux_operator_flux::{JobRun, ResourceRequest, TaskCount};
use serde_json::{Map, Value};

use super::job::{fail, failed};
use super::{CommandResult, connect};
use crate::bytes::Bytes;
use crate::options::ParsedArguments;
use crate::submission::{Shape, Submission};

/// Flux's default urgency.
const DEFAULT_URGENCY: u8 = 16;

pub fn main(options: &ParsedArguments) -> CommandResult {
    let path = options.positional().first().cloned();
    let path = path.ok_or_else(|| fail("jobspec is missing"))?;
    let text = fs::read_to_string(&path).map_err(|error| fail(format!("{path}: {error}")))?;
    let run = JobRun::parse(&text).map_err(|error| fail(format!("{path}: {error}")))?;
    let id = connect("flux-job")?.submit(submission(run)).map_err(|error| failed(&error))?;
    println!("{id}");
    Ok(0)
}

fn submission(run: JobRun) -> Submission {
    let ResourceRequest { nodes, is_exclusive, slots, cores, gpus } = run.resources;
    let shape = Shape {
        nodes: nodes.map(|count| count.get()),
        exclusive: is_exclusive,
        slots: slots.get(),
        cores: cores.get(),
        gpus,
        tasks: match run.tasks {
            TaskCount::PerSlot => None,
            TaskCount::Total(total) => Some(total.get()),
        },
        per_node: false,
    };
    let shell = run.attributes.get("shell");
    let path = |stream: &str| {
        let path = shell?.pointer(&format!("/options/output/{stream}/path"))?;
        path.as_str().map(str::to_owned)
    };
    let (out, error) = (path("stdout"), path("stderr"));
    let options = shell.and_then(|shell| shell["options"].as_object().cloned());
    let name = run.attributes.get("job").and_then(|job| job["name"].as_str()).map(str::to_owned);
    let mut attributes: Map<String, Value> = run.attributes.into_iter().collect();
    attributes.remove("shell");
    Submission {
        shape,
        name: name.or_else(|| run.argv.first().cloned()).unwrap_or_default(),
        command: run.argv.iter().map(|word| Bytes::from(word.as_str())).collect(),
        directory: Bytes::from(run.cwd.as_deref().unwrap_or("/tmp")),
        environment: run
            .environment
            .iter()
            .map(|(name, value)| (Bytes::from(name), Bytes::from(value)))
            .collect(),
        duration: run.duration,
        urgency: DEFAULT_URGENCY,
        files: [out.clone(), error.or(out)],
        options: options.unwrap_or_default(),
        attributes,
        ..Submission::default()
    }
}
