//! Which `flux` a local cluster runs: one of the machine, or the built-in one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The programs a local cluster is made of.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The agent: a program, and what its name must be to act as one.
    pub agent: PathBuf,
    /// The Flux to run.
    pub flux: FluxChoice,
}

/// The Flux to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FluxChoice {
    /// An installed Flux: its program.
    Installed(PathBuf),
    /// fluxlet, which is this very program under the name `flux`.
    BuiltIn(PathBuf),
}

impl FluxChoice {
    /// The Flux below `root`, if given; else the first on the search path; else the
    /// built-in one, which is `this_program`.
    pub fn find(
        root: Option<&Path>,
        search_path: Option<&OsStr>,
        this_program: &Path,
    ) -> FluxChoice {
        if let Some(root) = root {
            return FluxChoice::Installed(root.join("bin/flux"));
        }
        let on_path = search_path
            .into_iter()
            .flat_map(std::env::split_paths)
            .map(|directory| directory.join("flux"))
            .find(|program| program.is_file());
        match on_path {
            Some(program) => FluxChoice::Installed(program),
            None => FluxChoice::BuiltIn(this_program.to_owned()),
        }
    }

    /// What to call it in messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            FluxChoice::Installed(program) => format!("Flux at {}", program.display()),
            FluxChoice::BuiltIn(_) => "fluxlet (built in; install Flux for real work)".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_wins_over_the_search_path_and_that_over_the_built_in_one() {
        let folder = tempfile::tempdir().unwrap();
        let here = Path::new("/usr/bin/flux-operator");
        let empty = FluxChoice::find(None, Some(folder.path().as_os_str()), here);
        assert_eq!(empty, FluxChoice::BuiltIn(here.into()));
        std::fs::write(folder.path().join("flux"), "").unwrap();
        let found = FluxChoice::find(None, Some(folder.path().as_os_str()), here);
        assert_eq!(found, FluxChoice::Installed(folder.path().join("flux")));
        let root = FluxChoice::find(Some(Path::new("/opt")), Some(folder.path().as_os_str()), here);
        assert_eq!(root, FluxChoice::Installed("/opt/bin/flux".into()));
    }
}
