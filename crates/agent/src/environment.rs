//! The environment of hooks, broker and program.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use flux_operator_wire::{BootPlan, FluxHome};

use crate::arguments::text;
use crate::layout::{Layout, local_uri};
use crate::search_path;

/// The home directory of users without one, as with the Go operator.
const HOME: &str = "/home/flux-operator";

/// Variables to set.
pub type Changes = BTreeMap<&'static str, OsString>;

/// Reads a variable of the environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The variables to set for `plan`. `flux` is the `flux` to use instead of the plan's; its
/// directory is put first in `PATH`.
pub fn changes(
    plan: &BootPlan,
    layout: &Layout,
    flux: Option<&str>,
    lookup: Lookup<'_>,
) -> Changes {
    let mut changes = Changes::new();
    let mut path = lookup("PATH");
    if let FluxHome::View(view) = &plan.flux {
        // At the end: programs of the image take precedence.
        path = Some(search_path::append(path.as_deref(), &format!("{view}/bin")));
        let packages = match plan.python_path.as_str() {
            "" => python_packages(Path::new(view)),
            given => Some(PathBuf::from(given)),
        };
        if let Some(packages) = packages {
            let old = lookup("PYTHONPATH");
            changes.insert("PYTHONPATH", search_path::append(old.as_deref(), text(&packages)));
        }
        // Flux runs the scripts in `rc1.d` of these directories: with them a view with Fluxion
        // loads it instead of the simple scheduler.
        let extra = Path::new(view).join("etc/flux");
        if !plan.simple_scheduler && extra.join("rc1.d").is_dir() {
            let old = lookup("FLUX_RC_EXTRA");
            changes.insert("FLUX_RC_EXTRA", search_path::append(old.as_deref(), text(&extra)));
        }
    }
    // The program's own `flux` commands must use the same Flux.
    if let Some((directory, "flux")) = flux.and_then(|flux| flux.rsplit_once('/')) {
        path = Some(search_path::prepend(path.as_deref(), directory));
    }
    if let Some(path) = path {
        changes.insert("PATH", path);
    }
    changes.insert("STATE_DIR", layout.state().into());
    changes.insert("FLUX_OUTPUT_DIR", plan.output_directory.clone().into());
    changes.insert("fluxsocket", local_uri(&layout.socket()).into());
    // `flux submit --watch` is a Python program: it would buffer a job's output until the job
    // has finished, because our standard output is not a terminal.
    if lookup("PYTHONUNBUFFERED").is_none() {
        changes.insert("PYTHONUNBUFFERED", "1".into());
    }
    if !plan.resources.bind_tasks {
        let old = lookup("FLUX_SHELL_RC_PATH");
        let directory = search_path::append(old.as_deref(), text(&layout.task_shell()));
        changes.insert("FLUX_SHELL_RC_PATH", directory);
    }
    if lookup("HOME").is_none_or(|home| home.is_empty() || home == "/") {
        let home = Some(Path::new(HOME)).filter(|home| home.is_dir());
        changes.insert("HOME", home.unwrap_or(layout.root()).into());
        if lookup("USER").is_none() {
            changes.insert("USER", "flux-operator".into());
        }
    }
    changes
}

/// The directory of Python packages in a view, if it has Python.
fn python_packages(view: &Path) -> Option<PathBuf> {
    let libraries = std::fs::read_dir(view.join("lib")).ok()?;
    let mut versions: Vec<_> = libraries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path().join("site-packages"))
        .filter(|packages| packages.is_dir() && packages.to_str().is_some())
        .collect();
    versions.sort();
    versions.pop()
}

/// Reads a variable of this process.
pub fn process_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Reads a variable as text; bytes that are not UTF-8 are replaced.
pub fn lookup_lossy(lookup: Lookup<'_>, name: &str) -> Option<String> {
    lookup(name).map(|value: OsString| OsStr::to_string_lossy(&value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_plan::tests::plan;

    fn changed(plan: &BootPlan, flux: Option<&str>, variables: &[(&str, &str)]) -> Changes {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        changes(plan, &Layout::new(Path::new("/r")), flux, &lookup)
    }

    #[test]
    fn a_view_comes_after_the_images_own_paths() {
        let view = tempfile::tempdir().unwrap();
        let root = view.path().to_str().unwrap();
        let packages = view.path().join("lib/python3.11/site-packages");
        std::fs::create_dir_all(&packages).unwrap();
        std::fs::create_dir_all(view.path().join("lib/python3.9")).unwrap();
        let mut plan = plan();
        plan.flux = FluxHome::View(root.to_owned());
        let changes = changed(&plan, None, &[("PATH", "/bin"), ("PYTHONPATH", "/mine")]);
        assert_eq!(changes["PATH"], *format!("/bin:{root}/bin"));
        assert_eq!(changes["PYTHONPATH"], *format!("/mine:{}", packages.display()));
        assert_eq!(changed(&plan, None, &[])["PYTHONPATH"], *packages);
    }

    #[test]
    fn packages_and_scheduler_of_a_view_can_be_chosen() {
        let view = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(view.path().join("etc/flux/rc1.d")).unwrap();
        let mut plan = plan();
        plan.flux = FluxHome::View(view.path().to_str().unwrap().to_owned());
        plan.python_path = "/packages".into();
        let changes = changed(&plan, None, &[]);
        assert_eq!(changes["PYTHONPATH"], "/packages");
        assert_eq!(changes["FLUX_RC_EXTRA"], *view.path().join("etc/flux"));
        plan.simple_scheduler = true;
        assert!(!changed(&plan, None, &[]).contains_key("FLUX_RC_EXTRA"));
    }

    #[test]
    fn a_flux_that_was_given_comes_first() {
        let changes = changed(&plan(), Some("/opt/x/flux"), &[("PATH", "/bin")]);
        assert_eq!(changes["PATH"], "/opt/x:/bin");
        assert!(!changes.contains_key("PYTHONPATH"));
        let other = changed(&plan(), Some("/opt/x/flux-operator"), &[("PATH", "/bin")]);
        assert_eq!(other["PATH"], "/bin");
    }

    #[test]
    fn state_output_and_socket_are_in_the_environment() {
        let changes = changed(&plan(), None, &[]);
        assert_eq!(changes["STATE_DIR"], "/r/config/var/lib/flux");
        assert_eq!(changes["FLUX_OUTPUT_DIR"], "/tmp/fluxout");
        assert_eq!(changes["PYTHONUNBUFFERED"], "1");
        let given = changed(&plan(), None, &[("PYTHONUNBUFFERED", "")]);
        assert!(!given.contains_key("PYTHONUNBUFFERED"), "the user's own value is kept");
        assert_eq!(changes["fluxsocket"], "local:///r/config/run/flux/local");
    }

    #[test]
    fn a_user_without_a_home_gets_one() {
        for (variables, home) in [
            (vec![], Some("/r")),
            (vec![("HOME", "/")], Some("/r")),
            (vec![("HOME", "/root")], None),
        ] {
            let changes = changed(&plan(), None, &variables);
            if Path::new(HOME).is_dir() {
                continue;
            }
            assert_eq!(changes.get("HOME").and_then(|home| home.to_str()), home);
        }
    }

    #[test]
    fn tasks_are_bound_only_where_that_is_wanted() {
        let mut plan = plan();
        let unbound = changed(&plan, None, &[("FLUX_SHELL_RC_PATH", "/mine")]);
        assert_eq!(unbound["FLUX_SHELL_RC_PATH"], "/mine:/r/config/etc/flux/shell");
        plan.resources.bind_tasks = true;
        assert!(!changed(&plan, None, &[]).contains_key("FLUX_SHELL_RC_PATH"));
    }
}
