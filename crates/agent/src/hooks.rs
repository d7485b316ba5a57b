//! The user's hooks, which run in the shell that also starts the broker.
//!
//! A hook's exports and its working directory affect everything after it, because
//! the same shell starts the inner stage that starts the broker. Each hook is a
//! separate file that the shell reads with `.`, so that no hook, however
//! malformed, can change our own script.

use std::path::Path;

use flux_operator_wire::Logging;

use crate::arguments::text;
use crate::files::{self, WriteError};
use crate::rank_plan::RankPlan;
use crate::search_path::Shell;

/// Hooks with their names; empty ones are omitted.
type HookList<'a> = Vec<(&'static str, &'a str)>;

/// The hooks of one rank.
#[derive(Debug)]
pub struct Hooks<'a> {
    before: HookList<'a>,
    after: HookList<'a>,
}

impl<'a> Hooks<'a> {
    /// The hooks that `rank` has to run; `None` if there are none.
    pub fn for_rank(rank: &'a RankPlan) -> Option<Hooks<'a>> {
        let hooks = &rank.plan.hooks;
        let own = match rank.is_lead() {
            true => ("brokerPre", hooks.broker_pre.as_str()),
            false => ("workerPre", hooks.worker_pre.as_str()),
        };
        let before = non_empty([("init", hooks.init.as_str()), ("pre", hooks.pre.as_str()), own]);
        let after = non_empty([("post", hooks.post.as_str())]);
        Some(Hooks { before, after }).filter(|hooks| hooks.before.len() + hooks.after.len() > 0)
    }

    /// Writes the hooks, and the script that runs them around `stage`, below
    /// `directory`.
    pub fn write(
        &self,
        directory: &Path,
        shell: &Shell,
        stage: &[String],
        logging: Logging,
    ) -> Result<(), WriteError> {
        for (name, content) in self.before.iter().chain(&self.after) {
            files::write(&directory.join(name), format!("{content}\n"), 0o644)?;
        }
        let script = self.script(directory, shell, stage, logging);
        files::write(&directory.join(SCRIPT), script, 0o644)
    }

    fn script(
        &self,
        directory: &Path,
        shell: &Shell,
        stage: &[String],
        logging: Logging,
    ) -> String {
        let mut script = strict_lines(shell, logging.strict).to_owned();
        for (name, _) in &self.before {
            script.push_str(&source_lines(directory, name, redirection(name, logging.quiet)));
        }
        let stage: Vec<_> = stage.iter().map(|word| quote(word)).collect();
        // The result of the stage is known from its notices; `post` runs in any case.
        script.push_str(&format!("{} || :\n", stage.join(" ")));
        for (name, _) in &self.after {
            script.push_str(&source_lines(directory, name, redirection(name, logging.quiet)));
        }
        script.push_str("exit 0\n");
        script
    }
}

/// The script that runs the hooks.
pub const SCRIPT: &str = "run";

/// The file that contains the name of the hook that was started last.
pub const CURRENT: &str = "current";

/// The hook that was started last.
pub fn current_hook(directory: &Path) -> Option<String> {
    std::fs::read_to_string(directory.join(CURRENT)).ok()
}

/// Quotes a text as one word for a shell.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The lines that run the hook `name`.
pub fn source_lines(directory: &Path, name: &str, redirection: &str) -> String {
    let current = quote(text(&directory.join(CURRENT)));
    let file = quote(text(&directory.join(name)));
    format!("printf %s {name} >{current}\n. {file}{redirection}\n")
}

/// The lines that make a shell strict. Not every plain shell supports `pipefail`.
pub fn strict_lines(shell: &Shell, strict: bool) -> &'static str {
    match (strict, shell.bash) {
        (false, _) => "",
        (true, true) => "set -eEu -o pipefail\n",
        (true, false) => "set -eu\nif (set -o pipefail) 2>/dev/null; then set -o pipefail; fi\n",
    }
}

/// The redirection of a hook's output in quiet mode, which should show only the program's
/// output. As in the Go operator, hooks before the program are silenced, except for errors of
/// the first one, and the last one is not.
pub fn redirection(name: &str, quiet: bool) -> &'static str {
    match name {
        _ if !quiet => "",
        "init" => " >/dev/null",
        "post" => "",
        _ => " >/dev/null 2>&1",
    }
}

fn non_empty<'a>(hooks: impl IntoIterator<Item = (&'static str, &'a str)>) -> HookList<'a> {
    hooks.into_iter().filter(|(_, content)| !content.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_plan::tests::{plan, rank};
    use std::process::Command;

    /// Runs hooks around a stage that prints, and returns what was printed.
    fn run(change: impl FnOnce(&mut flux_operator_wire::BootPlan), number: u32) -> (String, i32) {
        let mut plan = plan();
        change(&mut plan);
        let rank = rank(plan, number);
        let directory = tempfile::tempdir().unwrap();
        let path = std::env::var_os("PATH");
        let shell = crate::search_path::find_shell(path.as_deref()).unwrap();
        let stage = ["sh", "-c", "echo stage $A it\\'s $PWD; exit 3"].map(str::to_owned);
        let hooks = Hooks::for_rank(&rank).unwrap();
        hooks.write(directory.path(), &shell, &stage, rank.plan.logging).unwrap();
        let output = Command::new(&shell.program)
            .arg(directory.path().join(SCRIPT))
            .env_remove("A")
            .output()
            .unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
    }

    #[test]
    fn a_rank_without_hooks_needs_no_shell() {
        let mut plan = plan();
        plan.hooks.worker_pre = "true".into();
        plan.hooks.init = " \n".into();
        assert!(Hooks::for_rank(&rank(plan.clone(), 0)).is_none());
        assert!(Hooks::for_rank(&rank(plan, 1)).is_some());
    }

    #[test]
    fn exports_and_directory_reach_the_stage_and_what_follows() {
        let (output, code) = run(
            |plan| {
                plan.hooks.init = "export A=1; cd /".into();
                plan.hooks.pre = "A=$A$A".into();
                plan.hooks.broker_pre = "A=${A}b".into();
                plan.hooks.worker_pre = "A=${A}w".into();
                plan.hooks.post = "echo post $A".into();
            },
            0,
        );
        assert_eq!((output.as_str(), code), ("stage 11b it's /\npost 11b\n", 0));
    }

    #[test]
    fn a_text_cannot_break_out_of_its_hook() {
        let (output, code) = run(
            |plan| {
                plan.hooks.init = "cat >/dev/null <<EOF\nnever ended".into();
                plan.hooks.pre = "fi; } 'unterminated".into();
                plan.hooks.post = "echo post # \\".into();
            },
            1,
        );
        assert!(output.starts_with("stage ") && output.ends_with("post\n"), "{output}");
        assert_eq!(code, 0);
    }

    #[test]
    fn a_failed_strict_hook_stops_the_script() {
        for (strict, expected) in [(true, false), (false, true)] {
            for hook in ["false", "echo $NOT_SET_ANYWHERE", "false | true"] {
                let (output, code) = run(
                    |plan| {
                        plan.logging.strict = strict;
                        plan.hooks.pre = hook.into();
                    },
                    0,
                );
                assert_eq!(output.contains("stage"), expected, "{hook}");
                assert_eq!(code == 0, expected, "{hook}");
            }
        }
    }

    #[test]
    fn quiet_silences_whole_hooks_but_not_post() {
        let (output, _) = run(
            |plan| {
                plan.logging.quiet = true;
                plan.hooks.init = "echo one\necho two\n".into();
                plan.hooks.pre = "echo three; echo four >&2".into();
                plan.hooks.post = "echo post".into();
            },
            0,
        );
        assert!(output.starts_with("stage") && output.ends_with("post\n"), "{output}");
        assert_eq!(output.lines().count(), 2);
    }
}
