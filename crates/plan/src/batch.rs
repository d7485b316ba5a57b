//! The batch script of a runner: each line of its command is a job of its own.
//!
//! The lines are the user's shell text and become part of the script unchanged.

use flux_operator_api::MiniClusterSpec;
use flux_operator_api::minicluster::Container;
use flux_operator_wire::Batch;

use crate::program::{flags, lines, option_flags, prefix};

/// The batch of a runner.
pub(crate) fn batch(spec: &MiniClusterSpec, runner: &Container) -> Batch {
    let mut options = flags(spec);
    // This directory is writable; the working directory may not be.
    options.push("--output=\"$FLUX_OUTPUT_DIR/flux-{{id}}.out\"".into());
    if spec.logging.as_ref().is_some_and(|logging| logging.quiet) {
        // `flux batch` prints the job's id, and has `--quiet` only since Flux 0.58.
        options.push(">/dev/null".into());
    }
    // Last, so that the user's options take precedence.
    options.push(option_flags(spec.flux.as_ref()));
    let text = lines(runner);
    Batch {
        prefix: prefix(runner),
        options: options.join(" ").trim_end().to_owned(),
        script: if runner.batch_raw { format!("{text}\n") } else { script(text) },
    }
}

/// Submits every line, waits for all jobs, and fails if one of them did. Output files are
/// numbered by line, from 0 and including empty lines, as with the Go operator.
fn script(text: &str) -> String {
    let mut script = "failed=0\n".to_owned();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let file = |kind: &str| format!("--{kind}=\"$FLUX_OUTPUT_DIR/job-{number}");
        let (error, output) = (file("error"), file("output"));
        script += &format!("flux submit --flags=waitable {error}.err\" {output}.out\" {line}\n");
        // On a line of its own, because the user's line may end in a comment.
        script += "test $? -eq 0 || failed=1\n";
    }
    script + "flux queue idle\nflux jobs -a\nflux job wait --all && exit $failed\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(spec: serde_json::Value) -> Batch {
        let spec: MiniClusterSpec = serde_json::from_value(spec).unwrap();
        batch(&spec, &spec.containers[0])
    }

    #[test]
    fn each_line_is_a_job_and_stays_unchanged() {
        let command = "echo \"$HOME\" `date` # now\n\n# no job\n  sleep '1'\n";
        let script = of(json!({ "containers": [{ "batch": true, "command": command }] })).script;
        let expected = "failed=0
flux submit --flags=waitable --error=\"$FLUX_OUTPUT_DIR/job-0.err\" \
            --output=\"$FLUX_OUTPUT_DIR/job-0.out\" echo \"$HOME\" `date` # now
test $? -eq 0 || failed=1
flux submit --flags=waitable --error=\"$FLUX_OUTPUT_DIR/job-3.err\" \
            --output=\"$FLUX_OUTPUT_DIR/job-3.out\" sleep '1'
test $? -eq 0 || failed=1
flux queue idle
flux jobs -a
flux job wait --all && exit $failed
";
        assert_eq!(script, expected);
    }

    #[test]
    fn a_raw_batch_is_the_command_itself() {
        let runner = json!({ "batch": true, "batchRaw": true, "command": "#FLUX: -N2\na\n\nb \n" });
        assert_eq!(of(json!({ "containers": [runner] })).script, "#FLUX: -N2\na\n\nb\n");
    }

    #[test]
    fn options_are_those_of_a_job_and_the_users_come_last() {
        let batch = of(json!({
            "size": 2, "tasks": 4,
            "logging": { "quiet": true, "debug": true },
            "flux": { "optionFlags": "--output=mine" },
            "containers": [{ "batch": true, "command": "a", "commands": { "prefix": "strace -f" } }],
        }));
        let options =
            "-N2 -n4 -vvv --output=\"$FLUX_OUTPUT_DIR/flux-{{id}}.out\" >/dev/null --output=mine";
        assert_eq!((batch.prefix.as_str(), batch.options.as_str()), ("strace -f", options));
    }
}
