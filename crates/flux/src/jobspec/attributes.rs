//! Which attributes of a job apply in another instance.

use std::collections::BTreeMap;

use serde_json::Value;

use super::section::{JobRunError, Section, not_expected};

/// What becomes of an attribute below `attributes.system`.
#[derive(Clone, Copy)]
enum Treatment {
    /// It is part of what runs, and is reproduced.
    Keep,
    /// It concerns the instance where the job was submitted, and is left out.
    Drop,
    /// The job cannot run without what it refers to, which is in that instance.
    Refuse { reason: &'static str, advice: &'static str },
}

/// The attributes that RFC 14, flux-core and its usual plugins have, without those that [`JobRun`]
/// has as fields.
///
/// Any other is kept: RFC 14 lets instances ignore attributes that they do not know, so that a
/// jobspec can be used in several instances.
///
/// [`JobRun`]: super::JobRun
const SYSTEM: [(&str, Treatment); 12] = {
    use Treatment::{Drop, Keep, Refuse};
    [
        // The options of the shell: redirection, affinity, limits, tasks per resource, and so on.
        ("shell", Keep),
        // The name of the job, also in the template {{name}}.
        ("job", Keep),
        // Files with their contents, which the shell writes to {{tmpdir}}: the script of flux batch
        // and its configuration. Nothing of them is outside the jobspec.
        ("files", Keep),
        // How the execution service runs the shell.
        ("exec", Keep),
        // The other instance has other queues and accounts, and Flux rejects those it does not know.
        ("queue", Drop),
        ("bank", Drop),
        ("project", Drop),
        // Properties, hosts and ranks of the instance. They decide which target may run the job,
        // before it is handed over.
        ("constraints", Drop),
        // Job IDs of the instance. Flux does not schedule a job before they are met, and only jobs
        // that it would schedule are handed over: see `ListedJob::is_held`.
        ("dependencies", Drop),
        // When it may be canceled for other jobs of the instance.
        ("preemptible-after", Drop),
        (
            "alloc-bypass",
            Refuse {
                reason: "alloc-bypass names its resources",
                advice: "submit it without alloc-bypass.R",
            },
        ),
        (
            "dw",
            Refuse {
                reason: "dw requests storage of that instance",
                advice: "use another file system",
            },
        ),
    ]
};

/// An option of the shell with which a job runs only in the instance where it was submitted.
struct BoundOption {
    /// A JSON pointer below `attributes.system.shell.options`.
    pointer: &'static str,
    applies: fn(&Value) -> bool,
    reason: &'static str,
    advice: &'static str,
}

/// All other options are reproduced, also those that flux-core does not know: plugins have options.
const BOUND_OPTIONS: [BoundOption; 4] = [
    BoundOption {
        pointer: "/stage-in",
        applies: |_| true,
        reason: "its files are archived in that instance",
        advice: "add them with --add-file instead of -o stage-in",
    },
    BoundOption {
        pointer: "/stop-tasks-in-exec",
        applies: |_| true,
        reason: "it waits for a debugger",
        advice: "submit it without a debugger",
    },
    BoundOption {
        pointer: "/pty/interactive",
        applies: |value| !matches!(value.as_i64(), Some(0)) && *value != Value::Bool(false),
        reason: "it waits for a terminal",
        advice: "use flux submit or flux batch instead of flux alloc or -o pty.interactive",
    },
    BoundOption {
        pointer: "/taskmap/scheme",
        applies: |value| value == "hostfile",
        reason: "its taskmap names hosts",
        advice: "use another --taskmap than hostfile",
    },
];

/// The attributes below `attributes.system` that apply in another instance.
pub(super) fn keep(system: Section) -> Result<BTreeMap<String, Value>, JobRunError> {
    let path = system.path("shell");
    let mut attributes: BTreeMap<String, Value> = system.into_rest().into_iter().collect();
    if let Some(shell) = attributes.get("shell") {
        check_shell(&path, shell)?;
    }
    for (name, treatment) in SYSTEM {
        match treatment {
            Treatment::Keep => {}
            Treatment::Drop => drop(attributes.remove(name)),
            Treatment::Refuse { reason, advice } => {
                if attributes.contains_key(name) {
                    return Err(JobRunError::Bound { reason, advice });
                }
            }
        }
    }
    Ok(attributes)
}

fn check_shell(path: &str, shell: &Value) -> Result<(), JobRunError> {
    let shell = shell.as_object().ok_or_else(|| not_expected(path, "an object"))?;
    let Some(options) = shell.get("options") else { return Ok(()) };
    if !options.is_object() {
        return Err(not_expected(&format!("{path}.options"), "an object"));
    }
    for BoundOption { pointer, applies, reason, advice } in BOUND_OPTIONS {
        if options.pointer(pointer).is_some_and(applies) {
            return Err(JobRunError::Bound { reason, advice });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    fn keep_json(value: Value) -> Result<Value, String> {
        let kept = Section::new("attributes.system", value).and_then(keep);
        kept.map(|kept| json!(kept)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_runs_is_kept_and_what_the_instance_decides_is_dropped() {
        let kept = json!({
            "shell": {"options": {
                "output": {"stdout": {"type": "file", "path": "{{id}}.out"}}, "pty": {"capture": 1},
                "taskmap": {"scheme": "cyclic", "value": ""}, "pty.interactive": 1,
            }},
            "job": {"name": "a"}, "files": {"script": {"mode": 33216, "data": "#!/bin/sh\n"}},
            "exec": {"bulkexec": {}}, "site-attribute": [1.5, null],
        });
        let mut all = kept.clone();
        all["queue"] = json!("batch");
        all["bank"] = json!("physics");
        all["project"] = json!("x");
        all["constraints"] = json!({"properties": ["fast"]});
        all["dependencies"] = json!([{"scheme": "afterok", "value": "ƒ2"}]);
        all["preemptible-after"] = json!(3.5);
        assert_eq!(keep_json(all), Ok(kept));
        assert_eq!(keep_json(json!({})), Ok(json!({})));
    }

    #[test]
    fn what_exists_only_in_the_instance_is_refused_with_advice() {
        let options = |options: Value| json!({"shell": {"options": options}});
        for (attributes, message) in [
            (json!({"alloc-bypass": {"R": {}}}), "alloc-bypass names its resources"),
            (json!({"dw": "#DW jobdw"}), "dw requests storage of that instance"),
            (options(json!({"stage-in": 1})), "its files are archived in that instance"),
            (options(json!({"stop-tasks-in-exec": 1})), "it waits for a debugger"),
            (options(json!({"pty": {"interactive": 1}})), "it waits for a terminal"),
            (options(json!({"taskmap": {"scheme": "hostfile"}})), "its taskmap names hosts"),
            (json!({"shell": 1}), "attributes.system.shell of the jobspec is not an object"),
            (options(json!([])), "attributes.system.shell.options of the jobspec is not an object"),
        ] {
            let error = keep_json(attributes).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        assert!(keep_json(options(json!({"pty": {"interactive": 0}}))).is_ok());
        assert!(keep_json(options(json!({"pty": 1}))).is_ok());
    }
}
