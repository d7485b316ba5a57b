//! Jobs that run in another instance than the one where they were submitted.
//!
//! [`JobRun::parse`] takes a jobspec of version 1 (Flux RFC 25) apart and fails if there is
//! anything that it could not reproduce. [`JobRun::to_jobspec`] is the jobspec for the other
//! instance, to be submitted there with `flux job submit`.
//!
//! A jobspec is handed over rather than the options of `flux run`, because only that is exact:
//! `flux run` takes resource limits from its own process, lets plugins change the job, expands `$`
//! in `--env` and treats values with `{{` differently, and has no option for some attributes.
//! Quoting is no concern either, because no shell reads an argument list.
//!
//! Flux's shell expands templates such as `{{id}}` and `{{tmpdir}}` in arguments and paths. They
//! are kept as they are, and mean the job in the other instance. What `flux run` reads from its
//! standard input is not part of a jobspec.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde_json::{Map, Value, json};

use super::attributes;
use super::environment::Environment;
use super::resource_request::ResourceRequest;
use super::section::{JobRunError, Section, not_expected};
use crate::count_values;

/// The label of the slots that `flux submit` also uses.
const LABEL: &str = "task";

/// An option of `flux broker` with which `flux alloc --bg` only starts brokers.
const NO_INITIAL_PROGRAM: &str = "-Sbroker.rc2_none=1";

/// What a job runs, and on which resources, without what applies only in the instance where it was
/// submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRun {
    /// The program and its arguments, with templates; never empty.
    pub argv: Vec<String>,
    /// The working directory. If it does not exist, Flux's shell uses `/tmp`.
    pub cwd: Option<String>,
    /// The environment, without variables of the instance.
    pub environment: Environment,
    /// The resources that it requests.
    pub resources: ResourceRequest,
    /// How many tasks it has, unless an option of the shell decides.
    pub tasks: TaskCount,
    /// Its time limit in seconds; 0 if it has none.
    pub duration: f64,
    /// The other attributes below `attributes.system` that apply in every instance, such as the
    /// options of the shell and the script of a batch job.
    pub attributes: BTreeMap<String, Value>,
    /// `attributes.user`.
    pub user_attributes: Map<String, Value>,
}

/// How many tasks a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskCount {
    /// One for each slot.
    PerSlot,
    /// A number that does not divide evenly among the nodes.
    Total(NonZeroU32),
}

/// How many values a jobspec may have. One with an environment of a thousand variables has some 1,100.
pub(super) const MAX_VALUES: usize = 20_000;

impl JobRun {
    /// Parses a jobspec as it was submitted, which `flux job info --original ID jobspec` prints, with
    /// what was changed since ([`update_jobspec`](super::update_jobspec)).
    ///
    /// Without `--original`, it is the jobspec for the scheduler: it has these changes, but no
    /// environment, and this function fails. It also has the defaults that the instance is configured
    /// with, such as a time limit, which no event says: the other instance has its own.
    pub fn parse(text: &str) -> Result<JobRun, JobRunError> {
        if count_values(text) > MAX_VALUES {
            return Err(JobRunError::TooManyValues { limit: MAX_VALUES });
        }
        let jobspec =
            serde_json::from_str(text).map_err(|source| JobRunError::NotJson { source })?;
        let mut jobspec = Section::new("", jobspec)?;
        if jobspec.require("version")? != json!(1) {
            return Err(not_expected("version", "1"));
        }
        let (resources, label) = ResourceRequest::parse(jobspec.only_section("resources")?)?;
        let (argv, tasks) = parse_task(jobspec.only_section("tasks")?, &label)?;
        let mut attributes = jobspec.section("attributes")?;
        jobspec.finish()?;

        let mut system = attributes.section("system")?;
        let user_attributes = match attributes.take("user") {
            Some(user) => Section::new("attributes.user", user)?.into_rest(),
            None => Map::new(),
        };
        attributes.finish()?;

        let duration = system.require("duration")?.as_f64().filter(|seconds| *seconds >= 0.0);
        let duration = duration
            .ok_or_else(|| not_expected(&system.path("duration"), "a number of at least 0"))?;
        let cwd = match system.take("cwd") {
            Some(Value::String(cwd)) => Some(cwd),
            Some(_) => return Err(not_expected(&system.path("cwd"), "a string")),
            None => None,
        };
        let environment = match system.take("environment") {
            Some(value) => Section::new(&system.path("environment"), value)?,
            None => return Err(JobRunError::NoEnvironment),
        };
        let environment = Environment::parse(environment)?;
        let attributes = attributes::keep(system)?;
        Ok(JobRun {
            argv,
            cwd,
            environment,
            resources,
            tasks,
            duration,
            attributes,
            user_attributes,
        })
    }

    /// The jobspec for another instance, as JSON. It contains the environment, which may be secret.
    pub fn to_jobspec(&self) -> String {
        let JobRun {
            argv,
            cwd,
            environment,
            resources,
            tasks,
            duration,
            attributes,
            user_attributes,
        } = self;
        let count = match tasks {
            TaskCount::PerSlot => json!({"per_slot": 1}),
            TaskCount::Total(total) => json!({"total": total}),
        };
        let mut system = json!(attributes);
        system["duration"] = json!(duration);
        system["environment"] = json!(environment);
        if let Some(cwd) = cwd {
            system["cwd"] = json!(cwd);
        }
        let mut attributes = json!({"system": system});
        if !user_attributes.is_empty() {
            attributes["user"] = json!(user_attributes);
        }
        let jobspec = json!({
            "version": 1,
            "resources": resources.to_json(LABEL),
            "tasks": [{"command": argv, "slot": LABEL, "count": count}],
            "attributes": attributes,
        });
        jobspec.to_string()
    }
}

/// The command and the number of tasks.
fn parse_task(mut task: Section, label: &str) -> Result<(Vec<String>, TaskCount), JobRunError> {
    let Ok(argv) = serde_json::from_value::<Vec<String>>(task.require("command")?) else {
        return Err(not_expected(&task.path("command"), "a list of strings"));
    };
    if argv.is_empty() {
        return Err(not_expected(&task.path("command"), "a list of at least one string"));
    }
    if argv.starts_with(&["flux".to_owned(), "broker".to_owned()])
        && argv.iter().any(|argument| argument == NO_INITIAL_PROGRAM)
    {
        return Err(JobRunError::Bound {
            reason: "it waits for a user to connect to it",
            advice: "use flux batch, or flux alloc with a command",
        });
    }
    if task.string("slot")? != label {
        return Err(not_expected(&task.path("slot"), "the label of the slots"));
    }
    let mut count = task.section("count")?;
    let tasks = match count.take("per_slot") {
        Some(per_slot) if per_slot == json!(1) => TaskCount::PerSlot,
        Some(_) => return Err(not_expected(&count.path("per_slot"), "1")),
        None => TaskCount::Total(count.count("total")?),
    };
    count.finish()?;
    // Earlier versions of Flux wrote them, always empty.
    if task.take("attributes").is_some_and(|attributes| attributes != json!({})) {
        return Err(not_expected(&task.path("attributes"), "empty"));
    }
    task.finish()?;
    Ok((argv, tasks))
}

#[cfg(test)]
mod tests {
    use super::*;

    // What flux-core 0.88 printed for
    // flux submit -N1 -n1 -t5m --env=B='{{id}} x' --output='o.{{id}}' sh -c 'exit 7'.
    const SUBMITTED: &str = r#"{"resources": [{"type": "node", "count": 1, "with": [{"type": "slot", "count": 1, "with": [{"type": "core", "count": 1}], "label": "task"}]}], "tasks": [{"command": ["sh", "-c", "exit 7"], "slot": "task", "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 300.0, "environment": {"PATH": "/usr/bin", "FLUX_URI": "local:///tmp/flux-aoHMnl/local-0", "HOME": "/root"}, "cwd": "/tmp", "shell": {"options": {"output": {"stdout": {"type": "file", "path": "o.{{id}}"}}, "env-expand": {"B": "{{id}} x"}, "rlimit": {"cpu": -1, "stack": 8388608}}}}}, "version": 1}"#;

    fn submitted() -> Value {
        serde_json::from_str(SUBMITTED).unwrap()
    }

    /// The jobspec with another value at a JSON pointer.
    fn changed(pointer: &str, value: Value) -> Value {
        let mut jobspec = submitted();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        jobspec.pointer_mut(parent).unwrap()[key] = value;
        jobspec
    }

    fn parse(jobspec: &Value) -> JobRun {
        JobRun::parse(&jobspec.to_string()).unwrap()
    }

    fn count(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).unwrap()
    }

    #[test]
    fn the_jobspec_of_flux_is_reproduced() {
        let run = JobRun::parse(SUBMITTED).unwrap();
        assert_eq!(run.argv, ["sh", "-c", "exit 7"]);
        assert_eq!((run.cwd.as_deref(), run.duration), (Some("/tmp"), 300.0));
        assert_eq!(run.tasks, TaskCount::PerSlot);
        assert_eq!(run.resources.nodes, Some(count(1)));

        let mut expected = submitted();
        let environment = expected.pointer_mut("/attributes/system/environment").unwrap();
        environment.as_object_mut().unwrap().remove("FLUX_URI");
        assert_eq!(serde_json::from_str::<Value>(&run.to_jobspec()).unwrap(), expected);
        assert_eq!(JobRun::parse(&run.to_jobspec()).unwrap(), run);
    }

    #[test]
    fn a_batch_script_is_reproduced() {
        let mut jobspec =
            changed("/tasks/0/command", json!(["flux", "broker", "{{tmpdir}}/script", "a b"]));
        let files = json!({"script": {"mode": 33216, "data": "#!/bin/sh\n", "encoding": "utf-8"}});
        jobspec["attributes"]["system"]["files"] = files.clone();
        let run = parse(&jobspec);
        assert_eq!(run.argv, ["flux", "broker", "{{tmpdir}}/script", "a b"]);
        assert_eq!(run.attributes["files"], files);
        assert_eq!(JobRun::parse(&run.to_jobspec()).unwrap(), run);
    }

    #[test]
    fn an_allocation_without_a_command_is_refused() {
        let command = json!(["flux", "broker", "-Sbroker.rc2_none=1"]);
        let error = JobRun::parse(&changed("/tasks/0/command", command).to_string()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "job can only run where it was submitted because it waits for a user to connect to it: \
             use flux batch, or flux alloc with a command"
        );
        // flux alloc -N1 sleep 1
        parse(&changed("/tasks/0/command", json!(["flux", "broker", "sleep", "1"])));
        parse(&changed("/tasks/0/command", json!(["echo", "-Sbroker.rc2_none=1"])));
    }

    #[test]
    fn optional_keys_may_be_missing() {
        let mut jobspec = changed("/tasks/0/attributes", json!({}));
        let system = json!({"duration": 0, "environment": {}});
        jobspec["attributes"] = json!({"system": system, "user": {"comment": [1]}});
        let run = parse(&jobspec);
        assert_eq!((run.cwd.as_deref(), run.duration), (None, 0.0));
        assert_eq!(run.environment, Environment::default());
        assert_eq!((run.attributes.len(), &run.user_attributes["comment"]), (0, &json!([1])));
        assert_eq!(JobRun::parse(&run.to_jobspec()).unwrap(), run);
    }

    #[test]
    fn other_jobspecs_name_the_part() {
        let without = |pointer: &str| {
            let mut jobspec = submitted();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            jobspec.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
            jobspec
        };
        let task = submitted()["tasks"][0].clone();
        let strings = "tasks[0].command of the jobspec is not a list of";
        let duration = "attributes.system.duration of the jobspec is not a number";
        for (jobspec, message) in [
            (json!([]), "the top level of the jobspec is not an object"),
            (json!({}), "jobspec has no version"),
            (changed("/version", json!(2)), "version of the jobspec is not 1"),
            (changed("/version", json!(1.0)), "version of the jobspec is not 1"),
            (changed("/version", json!("1")), "version of the jobspec is not 1"),
            (changed("/comment", json!("1")), "jobspec has comment, which is not part"),
            (without("/resources"), "jobspec has no resources"),
            (without("/tasks"), "jobspec has no tasks"),
            (without("/attributes"), "jobspec has no attributes"),
            (without("/attributes/system"), "jobspec has no attributes.system"),
            (changed("/attributes", json!(null)), "attributes of the jobspec is not an object"),
            (changed("/attributes/other", json!({})), "jobspec has attributes.other, which"),
            (
                changed("/attributes/user", json!([])),
                "attributes.user of the jobspec is not an obj",
            ),
            (changed("/tasks", json!([])), "tasks of the jobspec is not a list with one entry"),
            (changed("/tasks", json!([task, task])), "tasks of the jobspec is not a list with one"),
            (changed("/tasks", json!([7])), "tasks[0] of the jobspec is not an object"),
            (without("/tasks/0/command"), "jobspec has no tasks[0].command"),
            (changed("/tasks/0/command", json!("true")), strings),
            (changed("/tasks/0/command", json!([])), strings),
            (changed("/tasks/0/command", json!(["a", 1])), strings),
            (without("/tasks/0/slot"), "jobspec has no tasks[0].slot"),
            (changed("/tasks/0/slot", json!("x")), "tasks[0].slot of the jobspec is not the label"),
            (without("/tasks/0/count"), "jobspec has no tasks[0].count"),
            (changed("/tasks/0/count", json!(1)), "tasks[0].count of the jobspec is not an object"),
            (changed("/tasks/0/count", json!({})), "jobspec has no tasks[0].count.total"),
            (
                changed("/tasks/0/count", json!({"per_slot": 2})),
                "tasks[0].count.per_slot of the jobspec is not 1",
            ),
            (
                changed("/tasks/0/count", json!({"total": 0})),
                "tasks[0].count.total of the jobspec is not at least 1",
            ),
            (
                changed("/tasks/0/count", json!({"total": 1, "per_slot": 1})),
                "jobspec has tasks[0].count.total, which is not part of version 1",
            ),
            (
                changed("/tasks/0/count", json!({"per_resource": {"type": "core", "count": 1}})),
                "jobspec has no tasks[0].count.total",
            ),
            (
                changed("/tasks/0/attributes", json!({"environment": {}})),
                "tasks[0].attributes of the jobspec is not empty",
            ),
            (
                changed("/tasks/0/distribution", json!("cyclic")),
                "jobspec has tasks[0].distribution",
            ),
            (without("/attributes/system/duration"), "jobspec has no attributes.system.duration"),
            (changed("/attributes/system/duration", json!(-1)), duration),
            (changed("/attributes/system/duration", json!("5m")), duration),
            (
                changed("/attributes/system/cwd", json!(null)),
                "attributes.system.cwd of the jobspec is not a string",
            ),
            (
                changed("/attributes/system/environment", json!({"A": null})),
                "attributes.system.environment of the jobspec is not an object of strings",
            ),
            (
                without("/attributes/system/environment"),
                "jobspec has no attributes.system.environment: read the one that was submitted",
            ),
        ] {
            let error = JobRun::parse(&jobspec.to_string()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{jobspec}: {error}");
        }
        let error = JobRun::parse(&SUBMITTED[..100]).unwrap_err();
        assert_eq!(error.to_string(), "jobspec is not JSON");
    }
}
