//! Files that users of the Go operator expect in the shared directory.

use std::path::Path;

use flux_operator_wire::{BootPlan, FluxHome};

use crate::arguments::text;
use crate::environment::{Lookup, lookup_lossy};
use crate::files::{self, WriteError};
use crate::hooks::quote;
use crate::layout::{Layout, local_uri};

/// The script that replaces the simple scheduler by Fluxion.
const LOAD_FLUXION: &str = "\
#!/bin/sh
# Replaces the simple scheduler by Fluxion. Run it in the instance.
flux module remove sched-simple
flux module load sched-fluxion-resource
flux module load sched-fluxion-qmanager
";

/// The job shell's default: tasks run on all cores unless a job requests something else.
const UNBOUND_TASKS: &str = "\
if shell.options[\"cpu-affinity\"] == nil then
    shell.options[\"cpu-affinity\"] = \"off\"
end
";

/// Writes the files. `lookup` reads the environment that shells should have.
pub fn write(plan: &BootPlan, layout: &Layout, lookup: Lookup<'_>) -> Result<(), WriteError> {
    let view = layout.user_file("flux-view.sh");
    files::write(&view, view_script(plan, layout, lookup), 0o755)?;
    files::write(&layout.user_file("flux-connect.sh"), connect_script(&view), 0o755)?;
    files::write(&layout.user_file("load-fluxion.sh"), LOAD_FLUXION, 0o755)?;
    files::write(&layout.task_shell().join("unbound-tasks.lua"), UNBOUND_TASKS, 0o644)
}

/// Creates an empty marker file of this name.
pub fn create_marker(layout: &Layout, name: &str) -> Result<(), WriteError> {
    files::write(&layout.user_file(name), "", 0o644)
}

/// Sets the variables that a shell needs to use the instance. Shells of other containers read it
/// too, so their own values are kept, at the end.
fn view_script(plan: &BootPlan, layout: &Layout, lookup: Lookup<'_>) -> String {
    let mut script = "# Read this file with `.` to find the Flux instance.\n".to_owned();
    for name in ["PATH", "PYTHONPATH", "FLUX_SHELL_RC_PATH"] {
        if let Some(value) = lookup_lossy(lookup, name).filter(|value| !value.is_empty()) {
            script += &format!("export {name}={}\"${{{name}:+:${name}}}\"\n", quote(&value));
        }
    }
    if let FluxHome::View(view) = &plan.flux {
        let name = "LD_LIBRARY_PATH";
        let library = quote(&format!("{view}/lib"));
        script += &format!("export {name}=\"${{{name}:+${name}:}}\"{library}\n");
    }
    script += &format!("export fluxsocket={}\n", quote(&local_uri(&layout.socket())));
    for (name, value) in &plan.environment {
        if is_variable(name) {
            script += &format!("export {name}={}\n", quote(value));
        }
    }
    script
}

/// Opens a shell, or runs a command, in the instance. The command is not run by `flux proxy`,
/// which joins its arguments with spaces so that a shell splits them again.
fn connect_script(view: &Path) -> String {
    format!(
        "#!/bin/sh\n\
         # Opens a shell in the Flux instance, or runs a command there.\n\
         . {}\n\
         if [ $# -gt 0 ]; then\n    \
             export FLUX_URI=\"$fluxsocket\"\n    \
             exec \"$@\"\n\
         fi\n\
         if command -v bash >/dev/null; then shell=bash; else shell=sh; fi\n\
         exec flux proxy \"$fluxsocket\" \"$shell\"\n",
        quote(text(view))
    )
}

/// Whether this is a valid name of a shell variable. Anything else would be executed as a
/// command.
fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_plan::tests::plan;
    use std::ffi::OsString;
    use std::process::Command;

    fn written(plan: &BootPlan) -> (tempfile::TempDir, Layout) {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        layout.create(&plan.hosts, None).unwrap();
        let lookup = |name: &str| (name == "PATH").then(|| OsString::from("/it's/bin:/bin"));
        write(plan, &layout, &lookup).unwrap();
        (root, layout)
    }

    fn after_view(layout: &Layout, line: &str) -> String {
        let script = format!(". {}; {line}", layout.user_file("flux-view.sh").display());
        let output = Command::new("/bin/sh")
            .args(["-euc", &script])
            .env_clear()
            .env("PATH", "/mine")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_shell_gets_path_socket_and_the_users_variables() {
        let mut plan = plan();
        plan.flux = FluxHome::View("/the view".into());
        let value = "a 'b' \"$PATH\" `date`\n\\";
        plan.environment.insert("MINE".into(), value.into());
        plan.environment.insert("x; touch /evil".into(), "no".into());
        let (_root, layout) = written(&plan);
        let socket = local_uri(&layout.socket());
        for (line, expected) in [
            ("echo $PATH", "/it's/bin:/bin:/mine\n"),
            ("echo $LD_LIBRARY_PATH", "/the view/lib\n"),
            ("echo $fluxsocket", &format!("{socket}\n")),
            ("printf %s \"$MINE\"", value),
        ] {
            assert_eq!(after_view(&layout, line), expected, "{line}");
        }
    }

    #[test]
    fn connecting_opens_a_shell_or_runs_a_command_as_it_was_given() {
        let (root, layout) = written(&plan());
        let bin = root.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let flux = "#!/bin/sh\nprintf '%s|' \"$FLUX_URI\" \"$@\"\n";
        files::write(&bin.join("flux"), flux, 0o755).unwrap();
        let socket = local_uri(&layout.socket());
        let connect = |words: &[&str]| {
            let output = Command::new(layout.user_file("flux-connect.sh"))
                .args(words)
                .env_remove("FLUX_URI")
                .env("PATH", format!("{}:/bin:/usr/bin", bin.display()))
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let shell = connect(&[]);
        assert!(shell.starts_with(&format!("|proxy|{socket}|")), "{shell}");
        assert_eq!(connect(&["flux", "a  b", ""]), format!("{socket}|a  b||"));
    }
}
