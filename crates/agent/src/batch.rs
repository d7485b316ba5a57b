//! Writes a batch script to a file, submits it, and waits for it.

use std::path::Path;

use flux_operator_wire::Batch;

use crate::arguments::text;
use crate::files::{self, WriteError};
use crate::search_path::Shell;

/// Writes the script to `file`, for `shell`.
///
/// Flux reads the file and keeps a copy, so the file itself is never run.
pub fn write(batch: &Batch, shell: &Shell, file: &Path) -> Result<(), WriteError> {
    let script = format!("#!{}\n{}", shell.program.display(), batch.script);
    files::write(file, script, 0o755)
}

/// The command line that submits the script in `file` and waits for it.
///
/// `flux job wait --all` fails if the script did. The prefix precedes both commands.
pub fn submit_command(batch: &Batch, shell: &Shell, file: &Path) -> Vec<String> {
    let Batch { prefix, options, script: _ } = batch;
    let shell = shell.program.to_string_lossy().into_owned();
    let line = format!("flux batch {options} --flags=waitable \"$0\" && flux job wait --all");
    let inner = [shell.clone(), "-c".to_owned(), line, text(file).to_owned()];
    if prefix.is_empty() {
        return inner.to_vec();
    }
    let outer = [shell, "-c".to_owned(), format!("{prefix} \"$@\""), "sh".to_owned()];
    outer.into_iter().chain(inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> Shell {
        Shell { program: "/bin/sh".into(), bash: false }
    }

    fn batch(prefix: &str) -> Batch {
        Batch { prefix: prefix.into(), options: "-N2".into(), script: "echo \"$HOME\"\n".into() }
    }

    #[test]
    fn the_script_is_unchanged_and_starts_with_the_shell_that_was_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("script");
        write(&batch(""), &shell(), &file).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "#!/bin/sh\necho \"$HOME\"\n");
    }

    #[test]
    fn the_prefix_precedes_the_whole_command() {
        let line = "flux batch -N2 --flags=waitable \"$0\" && flux job wait --all";
        let file = Path::new("/r/script");
        let inner = ["/bin/sh", "-c", line, "/r/script"];
        assert_eq!(submit_command(&batch(""), &shell(), file), inner);
        let outer = ["/bin/sh", "-c", "strace -f \"$@\"", "sh"];
        assert_eq!(submit_command(&batch("strace -f"), &shell(), file), [outer, inner].concat());
    }
}
