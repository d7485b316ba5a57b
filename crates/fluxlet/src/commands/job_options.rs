//! The options that `flux run`, `submit` and `batch` share, and the job that they describe.

use std::ffi::OsString;

use flux_operator_flux::IdSet;
use serde_json::{Map, Value, json};

use super::{CommandFailure, environment};
use crate::bytes::Bytes;
use crate::options::{Flag, ParsedArguments, Syntax, ValueMode as Takes, flag, switch};
use crate::submission::{Shape, Submission};

/// The options of all of them. Those that have no meaning here are accepted and ignored,
/// except `--requires`, which is refused.
const FLAGS: [Flag; 50] = [
    flag(Some('N'), "nodes"),
    flag(Some('n'), "ntasks"),
    flag(None, "nslots"),
    flag(Some('c'), "cores-per-task"),
    flag(None, "cores-per-slot"),
    flag(Some('g'), "gpus-per-task"),
    flag(None, "gpus-per-slot"),
    flag(None, "cores"),
    flag(None, "tasks-per-node"),
    flag(None, "tasks-per-core"),
    flag(None, "gpus-per-node"),
    switch(Some('x'), "exclusive"),
    flag(Some('t'), "time-limit"),
    flag(Some('q'), "queue"),
    flag(Some('B'), "bank"),
    flag(None, "urgency"),
    flag(None, "job-name"),
    flag(Some('o'), "setopt"),
    flag(Some('S'), "setattr"),
    flag(None, "add-file"),
    flag(None, "begin-time"),
    flag(None, "dependency"),
    flag(None, "requires"),
    flag(Some('p'), "taskmap"),
    flag(None, "env"),
    flag(None, "env-remove"),
    flag(None, "env-file"),
    flag(None, "rlimit"),
    flag(None, "input"),
    flag(None, "output"),
    flag(None, "error"),
    switch(Some('u'), "unbuffered"),
    switch(Some('l'), "label-io"),
    flag(None, "cwd"),
    flag(None, "flags"),
    switch(None, "dry-run"),
    switch(None, "debug"),
    flag(None, "cc"),
    flag(None, "bcc"),
    switch(None, "quiet"),
    Flag { short: None, long: "log", value: Takes::Optional },
    switch(None, "log-stderr"),
    switch(None, "wait"),
    Flag { short: None, long: "wait-event", value: Takes::Optional },
    switch(None, "watch"),
    switch(None, "progress"),
    switch(None, "jps"),
    switch(Some('v'), "verbose"),
    switch(None, "wrap"),
    flag(None, "conf"),
];

/// The command. The commands differ in their messages and in what a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobCommand {
    Run,
    Submit,
    Batch,
}

impl JobCommand {
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Submit => "submit",
            Self::Batch => "batch",
        }
    }

    /// A failure in the format of this command.
    pub fn fail(self, text: impl std::fmt::Display) -> CommandFailure {
        CommandFailure::new(format!("flux-{}: ERROR: {text}", self.name()))
    }
}

/// Parses the arguments; the rest is the command of the job.
pub fn parse(kind: JobCommand, arguments: &[OsString]) -> Result<ParsedArguments, CommandFailure> {
    let syntax = Syntax { flags: &FLAGS, permute: false };
    syntax.parse(arguments).map_err(|error| {
        let name = kind.name();
        let words = if kind == JobCommand::Batch { "[SCRIPT]" } else { "COMMAND" };
        let usage = format!("flux {name} [OPTIONS...] {words} [ARGS...]");
        CommandFailure::argparse(&usage, &format!("flux {name}"), &error)
    })
}

/// The job that the options describe, with `command` and without a script.
pub fn submission(
    kind: JobCommand,
    options: &ParsedArguments,
    command: Vec<Bytes>,
    name: &str,
) -> Result<Submission, CommandFailure> {
    // Ignoring it would run the job on nodes that it must not use.
    if options.has("requires") {
        return Err(kind.fail(
            "--requires is not supported by fluxlet: install Flux to select nodes by property",
        ));
    }
    let directory = match options.get("cwd") {
        Some(directory) => Bytes::from(directory),
        None => std::env::current_dir()
            .map(|path| Bytes::from(path.as_os_str()))
            .map_err(|error| kind.fail(error))?,
    };
    let out = options.get("output").filter(|name| *name != "kvs" && *name != "none");
    let error = options.get("error").filter(|name| *name != "kvs").or(out);
    let files = [out, error].map(|name| name.map(str::to_owned));
    let mut rules: Vec<String> = Vec::new();
    for (name, value) in &options.values {
        match *name {
            "env" => rules.push(value.clone()),
            "env-remove" => rules.push(format!("-{value}")),
            _ => {}
        }
    }
    let mut attributes = settings(options.all("setattr"));
    if let Some(name) = options.get("job-name") {
        insert(&mut attributes, "job.name", json!(name));
    }
    Ok(Submission {
        shape: shape(kind, options)?,
        command,
        name: options.get("job-name").unwrap_or(name).to_owned(),
        directory,
        environment: environment::filtered(rules.iter().map(String::as_str)),
        duration: duration(kind, options)?,
        urgency: urgency(kind, options)?,
        waitable: options.all("flags").any(|flags| flags.split(',').any(|one| one == "waitable")),
        // As in Flux, a job that reads waits until a client attaches and sends input.
        input: kind != JobCommand::Batch,
        files,
        label: options.has("label-io"),
        options: settings(options.all("setopt")),
        attributes,
        script: None,
    })
}

/// The IDs of `--cc`, if the job is to be submitted several times.
pub fn copies(
    kind: JobCommand,
    options: &ParsedArguments,
) -> Result<Option<IdSet>, CommandFailure> {
    let Some(text) = options.get("cc").or(options.get("bcc")) else { return Ok(None) };
    let ids = text.parse().map_err(|_| kind.fail(format!("IDset(): Invalid argument: {text}")))?;
    Ok(Some(ids))
}

fn shape(kind: JobCommand, options: &ParsedArguments) -> Result<Shape, CommandFailure> {
    let slots = if kind == JobCommand::Batch { "nslots" } else { "ntasks" };
    let number = |name: &str| -> Result<Option<u32>, CommandFailure> {
        let Some(text) = options.get(name) else { return Ok(None) };
        let invalid = || kind.fail(format!("--{name}: invalid int value '{text}'"));
        text.parse().map(Some).map_err(|_| invalid())
    };
    let either = |one: &str, other: &str| Ok(number(one)?.or(number(other)?));
    let count = either("ntasks", slots)?;
    let nodes = number("nodes")?;
    let cores = either("cores-per-task", "cores-per-slot")?;
    let gpus = either("gpus-per-task", "gpus-per-slot")?.unwrap_or(0);
    if nodes == Some(0) {
        return Err(kind.fail("node count must be an integer >= 1 (if set)"));
    }
    if kind == JobCommand::Batch && count.is_none() && nodes.is_none() {
        return Err(kind.fail("Number of slots to allocate must be specified"));
    }
    let per_node = number("tasks-per-node")?;
    let shape = Shape {
        nodes,
        exclusive: options.has("exclusive") || nodes.is_some() && count.is_none(),
        slots: 1,
        // As in Flux, at least one core is requested.
        cores: cores.unwrap_or(1).max(1),
        gpus,
        tasks: None,
        per_node: kind == JobCommand::Batch,
    };
    match (nodes, count) {
        (Some(nodes), Some(count)) if count < nodes => {
            Err(kind.fail("node count must not be greater than task count"))
        }
        (Some(nodes), Some(count)) => {
            let tasks = (count % nodes != 0 && kind != JobCommand::Batch).then_some(count);
            Ok(Shape { slots: count.div_ceil(nodes), tasks, ..shape })
        }
        (Some(_), None) => Ok(Shape { slots: per_node.unwrap_or(1), ..shape }),
        (None, count) => Ok(Shape { slots: count.unwrap_or(1).max(1), ..shape }),
    }
}

fn duration(kind: JobCommand, options: &ParsedArguments) -> Result<f64, CommandFailure> {
    let Some(text) = options.get("time-limit") else { return Ok(0.0) };
    // A number without a unit is in minutes here, but in seconds everywhere else in Flux.
    if let Ok(minutes) = text.parse::<f64>()
        && minutes.is_finite()
        && minutes >= 0.0
    {
        return Ok(minutes * 60.0);
    }
    crate::duration::parse(text).ok_or_else(|| kind.fail("invalid Flux standard duration"))
}

fn urgency(kind: JobCommand, options: &ParsedArguments) -> Result<u8, CommandFailure> {
    let text = options.get("urgency").unwrap_or("default");
    match text {
        "default" => return Ok(16),
        "hold" => return Ok(0),
        "expedite" => return Ok(31),
        _ => {}
    }
    let value: i64 = text
        .parse()
        .map_err(|_| kind.fail(format!("invalid literal for int() with base 10: '{text}'")))?;
    match u8::try_from(value) {
        Ok(urgency @ 0..=31) => Ok(urgency),
        _ => Err(CommandFailure::new("[Errno 22] urgency range is [0:31]")),
    }
}

/// Parses `a.b=VALUE`, where the value is JSON if it is valid JSON, and `1` if there is none.
fn settings<'a>(texts: impl Iterator<Item = &'a str>) -> Map<String, Value> {
    let mut settings = Map::new();
    for text in texts {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => {
                (name, serde_json::from_str(value).unwrap_or_else(|_| json!(value)))
            }
            None => (text, json!(1)),
        };
        // `system.x` and `.system.x` are the same as `x`; other attributes are kept as they are.
        let name = name.trim_start_matches('.');
        let name = name.strip_prefix("system.").unwrap_or(name);
        insert(&mut settings, name, value);
    }
    settings
}

fn insert(map: &mut Map<String, Value>, name: &str, value: Value) {
    let Some((first, rest)) = name.split_once('.') else {
        map.insert(name.to_owned(), value);
        return;
    };
    let inner = map.entry(first.to_owned()).or_insert_with(|| json!({}));
    match inner.as_object_mut() {
        Some(inner) => insert(inner, rest, value),
        None => *inner = value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(kind: JobCommand, text: &str) -> Result<Submission, CommandFailure> {
        let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        let options = parse(kind, &words)?;
        submission(kind, &options, Vec::new(), "name")
    }

    #[test]
    fn shapes_are_those_of_flux() {
        for (text, nodes, exclusive, slots, count) in [
            ("hostname", None, false, 1, 1),
            ("-n4", None, false, 4, 4),
            ("-N4", Some(4), true, 1, 4),
            ("-N2 -n4", Some(2), false, 2, 4),
            ("-N2 -n3", Some(2), false, 2, 3),
            ("-n0", None, false, 1, 1),
        ] {
            let shape = job(JobCommand::Submit, text).unwrap().shape;
            assert_eq!((shape.nodes, shape.exclusive, shape.slots), (nodes, exclusive, slots));
            assert_eq!(shape.task_count(), count, "{text}");
        }
        let batch = job(JobCommand::Batch, "-N2 -n4").unwrap().shape;
        assert_eq!((batch.slots, batch.task_count()), (2, 2));
    }

    #[test]
    fn invalid_values_are_rejected_with_the_messages_of_flux() {
        for (text, error) in [
            ("-N0", "flux-submit: ERROR: node count must be an integer >= 1 (if set)"),
            ("-Nx", "flux-submit: ERROR: --nodes: invalid int value 'x'"),
            ("-N3 -n2", "flux-submit: ERROR: node count must not be greater than task count"),
            ("-t x", "flux-submit: ERROR: invalid Flux standard duration"),
            (
                "-N1 --requires=spare",
                "flux-submit: ERROR: --requires is not supported by fluxlet: install Flux to select nodes by property",
            ),
            ("--urgency=33", "[Errno 22] urgency range is [0:31]"),
            (
                "--nosuch",
                "usage: flux submit [OPTIONS...] COMMAND [ARGS...]\nflux submit: error: unrecognized arguments: --nosuch",
            ),
        ] {
            assert_eq!(job(JobCommand::Submit, text).unwrap_err().text, error);
        }
    }

    #[test]
    fn settings_are_nested_by_dots() {
        let found = settings(["burstable", "system.a.b=2", "user.x=text"].into_iter());
        assert_eq!(
            Value::from(found),
            json!({"burstable": 1, "a": {"b": 2}, "user": {"x": "text"}})
        );
    }

    #[test]
    fn time_limits_without_a_unit_are_minutes() {
        for (text, seconds) in [("-t 2", 120.0), ("-t 30s", 30.0), ("", 0.0)] {
            assert_eq!(job(JobCommand::Submit, text).unwrap().duration, seconds);
        }
    }
}
