//! Which `flux` a local cluster runs: an installed one, or the built-in fluxlet.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flux_operator_flux::{Version, VersionTooOld};

/// The programs that a local cluster runs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The agent's program. It is run through a link, whose name selects what the program does.
    pub agent: PathBuf,
    /// The Flux to run.
    pub flux: FluxProgram,
}

/// The Flux to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FluxProgram {
    /// An installed Flux: its program.
    Installed(PathBuf),
    /// fluxlet, which is this program itself, run under the name `flux`.
    BuiltIn(PathBuf),
}

/// An installed Flux that is not supported.
#[derive(Debug, thiserror::Error)]
#[error("{too_old}; update {program:?}, or use a newer one with --flux-root PREFIX")]
pub struct UnsupportedFlux {
    program: PathBuf,
    too_old: VersionTooOld,
}

impl FluxProgram {
    /// Returns the Flux below `root`, if given; else the first `flux` in `search_path`; else the
    /// built-in one, which is `this_program`.
    pub fn find(
        root: Option<&Path>,
        search_path: Option<&OsStr>,
        this_program: &Path,
    ) -> FluxProgram {
        if let Some(root) = root {
            return FluxProgram::Installed(root.join("bin/flux"));
        }
        let on_path = search_path
            .into_iter()
            .flat_map(std::env::split_paths)
            .map(|directory| directory.join("flux"))
            .find(|program| program.is_file());
        match on_path {
            Some(program) => FluxProgram::Installed(program),
            None => FluxProgram::BuiltIn(this_program.to_owned()),
        }
    }

    /// Checks that the release is supported. A Flux that does not report its version is accepted.
    pub fn check(&self) -> Result<(), UnsupportedFlux> {
        let FluxProgram::Installed(program) = self else { return Ok(()) };
        match version(program).map(Version::check) {
            Some(Err(too_old)) => Err(UnsupportedFlux { program: program.clone(), too_old }),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// The Flux of a running cluster, by its path. Only an installed one is named `flux`.
    pub(crate) fn at(program: &Path) -> FluxProgram {
        match program.file_name() == Some(OsStr::new("flux")) {
            true => FluxProgram::Installed(program.to_owned()),
            false => FluxProgram::BuiltIn(program.to_owned()),
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        match self {
            FluxProgram::Installed(program) | FluxProgram::BuiltIn(program) => program,
        }
    }

    /// Its name in messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            FluxProgram::Installed(program) => format!("Flux at {}", program.display()),
            FluxProgram::BuiltIn(_) => "fluxlet (built in; install Flux for real work)".into(),
        }
    }
}

/// The version that `flux version` prints, if any.
fn version(flux: &Path) -> Option<Version> {
    let mut command = Command::new(flux);
    // With this variable set, `flux version` would contact that broker too.
    command.arg("version").env_remove("FLUX_URI").stdin(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Version::parse_output(&String::from_utf8_lossy(&output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_root_takes_precedence_over_path_and_path_over_fluxlet() {
        let folder = tempfile::tempdir().unwrap();
        let here = Path::new("/usr/bin/flux-operator");
        let empty = FluxProgram::find(None, Some(folder.path().as_os_str()), here);
        assert_eq!(empty, FluxProgram::BuiltIn(here.into()));
        std::fs::write(folder.path().join("flux"), "").unwrap();
        let found = FluxProgram::find(None, Some(folder.path().as_os_str()), here);
        assert_eq!(found, FluxProgram::Installed(folder.path().join("flux")));
        let root =
            FluxProgram::find(Some(Path::new("/opt")), Some(folder.path().as_os_str()), here);
        assert_eq!(root, FluxProgram::Installed("/opt/bin/flux".into()));
        for found in [empty, found, root] {
            assert_eq!(FluxProgram::at(found.path()), found);
        }
    }

    #[test]
    fn an_old_flux_is_rejected_with_its_version_and_path() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("flux");
        let check = |script: &str| {
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&program, executable).unwrap();
            FluxProgram::Installed(program.clone()).check()
        };
        let refused = check("echo commands: 0.46.1").unwrap_err().to_string();
        let expected = "Flux 0.46.1 is too old: 0.51.0 (June 2023) or newer is needed; update ";
        assert!(refused.starts_with(expected), "{refused}");
        assert!(refused.contains(program.to_str().unwrap()), "{refused}");
        for used in ["echo commands: 0.68.0", "echo commands: 4a5e79f", "exit 1"] {
            assert!(check(used).is_ok(), "{used}");
        }
        assert!(FluxProgram::BuiltIn(program.clone()).check().is_ok());
    }
}
