//! The program of the lead: the command of the runner, by mode.
//!
//! `command` is the user's own shell text and is run as if it had been typed at
//! a prompt, as one command however many lines it has; `args` are words that do not pass
//! through a shell. So the line is text, and the words are its arguments `"$@"`.
//! If there is no text at all, no shell is needed either.

use flux_operator_api::MiniClusterSpec;
use flux_operator_api::minicluster::{Container, Flux};
use flux_operator_api::shell::one_line;
use flux_operator_wire::Program;

use crate::batch::batch;
use crate::cluster::Mode;

/// Runs `commands.script` from the file to which the agent writes it, which has the Go
/// operator's path.
const SCRIPT_COMMAND: &str = "/bin/bash /tmp/custom-entrypoint.sh";

/// The program of a cluster.
pub(crate) fn program(spec: &MiniClusterSpec, runner: &Container, mode: Mode) -> Program {
    let flux = spec.flux.as_ref();
    let submit = match mode {
        Mode::Interactive => return Program::Stay,
        Mode::Batch => return Program::Batch(batch(spec, runner)),
        Mode::Launcher => SubmitCommand::default(),
        Mode::Submit => submit(spec, flux),
    };
    let prefix = prefix(runner);
    let command = command(runner);
    let SubmitCommand { text, flags, option_flags, watch } = submit;
    if [&prefix, &command, &text, &option_flags].iter().all(|part| part.is_empty()) {
        let submit = if mode == Mode::Submit { &["flux", "submit"][..] } else { &[] };
        let words = submit.iter().map(|word| word.to_string());
        let watch = watch.iter().map(|word| word.to_string());
        return Program::Words(
            words.chain(flags).chain(watch).chain(runner.args.iter().cloned()).collect(),
        );
    }
    let submit = if mode == Mode::Submit && text.is_empty() { "flux submit" } else { &text };
    let flags = flags.join(" ");
    let watch = watch.join(" ");
    let rest = if runner.args.is_empty() { "" } else { "\"$@\"" };
    let parts = [&prefix, submit, &flags, &option_flags, &watch, &command, rest];
    let line = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    Program::Line { line, words: runner.args.clone() }
}

/// The user's command: its text, or the script.
fn command(runner: &Container) -> String {
    match has_script(runner) {
        true => SCRIPT_COMMAND.to_owned(),
        false => join_lines(&runner.command),
    }
}

/// The same for a batch, where each line is a job.
pub(crate) fn lines(runner: &Container) -> &str {
    if has_script(runner) { SCRIPT_COMMAND } else { runner.command.trim_end() }
}

fn has_script(runner: &Container) -> bool {
    runner.commands.as_ref().is_some_and(|commands| !commands.script.is_empty())
}

/// The user's words before the command, such as a wrapper program.
pub(crate) fn prefix(runner: &Container) -> String {
    runner.commands.as_ref().map(|commands| join_lines(&commands.prefix)).unwrap_or_default()
}

/// A text as part of a line. Text that cannot be part of one was refused before.
fn join_lines(text: &str) -> String {
    one_line(text).unwrap_or_else(|_| text.trim().to_owned())
}

/// The parts of a submit command. Flags are ours and need no quoting.
#[derive(Default)]
struct SubmitCommand {
    text: String,
    flags: Vec<String>,
    option_flags: String,
    watch: &'static [&'static str],
}

fn submit(spec: &MiniClusterSpec, flux: Option<&Flux>) -> SubmitCommand {
    SubmitCommand {
        text: flux.map(|flux| join_lines(&flux.submit_command)).unwrap_or_default(),
        flags: flags(spec),
        option_flags: option_flags(flux),
        watch: &["--quiet", "--watch"],
    }
}

/// Our own options of a job.
pub(crate) fn flags(spec: &MiniClusterSpec) -> Vec<String> {
    let mut flags = node_flags(spec);
    if spec.logging.as_ref().is_some_and(|logging| logging.debug) {
        flags.push("-vvv".into());
    }
    flags
}

/// The user's options of a job, which are shell text.
pub(crate) fn option_flags(flux: Option<&Flux>) -> String {
    flux.map(|flux| join_lines(&flux.option_flags)).unwrap_or_default()
}

/// How many nodes and tasks, by the Go operator's rule: with fewer tasks than nodes, Flux
/// chooses the nodes.
fn node_flags(spec: &MiniClusterSpec) -> Vec<String> {
    let (size, tasks) = (spec.size, spec.tasks);
    match tasks {
        0 => vec![format!("-N{size}")],
        tasks if tasks >= size => vec![format!("-N{size}"), format!("-n{tasks}")],
        tasks => vec![format!("-n{tasks}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(spec: serde_json::Value) -> Program {
        let spec: MiniClusterSpec = serde_json::from_value(spec).unwrap();
        let runner = spec.containers[0].clone();
        program(&spec, &runner, Mode::of(&spec, &runner))
    }

    fn line(text: &str) -> Program {
        Program::Line { line: text.into(), words: vec![] }
    }

    #[test]
    fn a_command_is_submitted_as_typed() {
        let command = "echo \"a b\" $HOME | wc -c\n";
        let program = of(json!({ "size": 2, "tasks": 4, "containers": [{ "command": command }] }));
        assert_eq!(program, line("flux submit -N2 -n4 --quiet --watch echo \"a b\" $HOME | wc -c"));
    }

    #[test]
    fn fewer_tasks_than_nodes_leave_the_nodes_to_flux() {
        let program = of(json!({ "size": 4, "tasks": 2, "containers": [{ "command": "lmp" }] }));
        assert_eq!(program, line("flux submit -n2 --quiet --watch lmp"));
        let program = of(json!({ "size": 4, "tasks": 0, "containers": [{ "command": "lmp" }] }));
        assert_eq!(program, line("flux submit -N4 --quiet --watch lmp"));
    }

    #[test]
    fn args_alone_need_no_shell() {
        let program = of(json!({ "containers": [{ "args": ["echo", "$HOME", ""] }] }));
        let words = ["flux", "submit", "-N1", "-n1", "--quiet", "--watch", "echo", "$HOME", ""];
        assert_eq!(program, Program::Words(words.map(String::from).to_vec()));
    }

    #[test]
    fn args_follow_a_command_without_passing_through_the_shell() {
        let program = of(json!({ "containers": [{ "command": "echo -n", "args": ["`date`"] }] }));
        let line = "flux submit -N1 -n1 --quiet --watch echo -n \"$@\"".into();
        assert_eq!(program, Program::Line { line, words: vec!["`date`".into()] });
    }

    #[test]
    fn a_launcher_is_started_and_not_submitted() {
        let program =
            of(json!({ "containers": [{ "launcher": true, "command": "snakemake -c1" }] }));
        assert_eq!(program, line("snakemake -c1"));
    }

    #[test]
    fn prefix_submit_command_and_flags_are_in_order() {
        let program = of(json!({
            "logging": { "debug": true },
            "flux": { "submitCommand": "flux run", "optionFlags": "-ompi=openmpi@5" },
            "containers": [{ "command": "lmp", "commands": { "prefix": "strace -f" } }],
        }));
        assert_eq!(
            program,
            line("strace -f flux run -N1 -n1 -vvv -ompi=openmpi@5 --quiet --watch lmp")
        );
    }

    #[test]
    fn a_script_is_the_command() {
        let program =
            of(json!({ "containers": [{ "commands": { "script": "#!/bin/bash\ndate" } }] }));
        assert_eq!(
            program,
            line("flux submit -N1 -n1 --quiet --watch /bin/bash /tmp/custom-entrypoint.sh")
        );
    }

    #[test]
    fn a_cluster_without_a_command_to_run_stays_up() {
        assert_eq!(of(json!({ "containers": [{}] })), Program::Stay);
        let program = of(json!({ "interactive": true, "containers": [{ "command": "lmp" }] }));
        assert_eq!(program, Program::Stay);
    }
}
