//! The version of Flux, determined before a broker starts.
//!
//! `flux version` is written in C and takes 4 ms. It runs concurrently with other
//! work, such as searching for the lead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;

use flux_operator_flux::{Version, VersionTooOld};

use crate::flux_command;
use crate::termination::log;

/// An unsupported Flux, and its path.
#[derive(Debug, thiserror::Error)]
#[error("{too_old}; update the image that has {flux:?}")]
pub struct UnsupportedFlux {
    flux: PathBuf,
    too_old: VersionTooOld,
}

/// A version query that is in progress.
#[derive(Clone, Debug)]
pub struct VersionQuery {
    flux: PathBuf,
    version: Arc<OnceLock<Option<Version>>>,
}

impl VersionQuery {
    /// Starts to query the version of the program `flux`.
    pub fn start(flux: &Path) -> VersionQuery {
        let asked = VersionQuery { flux: flux.to_owned(), version: Arc::default() };
        let beside = asked.clone();
        thread::spawn(move || beside.wait());
        asked
    }

    /// The version, if it is supported. `None` if `flux` does not report one, in which case it is
    /// used anyway.
    pub fn supported(&self) -> Result<Option<Version>, UnsupportedFlux> {
        let version = self.wait();
        match version.map(Version::check) {
            Some(Err(too_old)) => Err(UnsupportedFlux { flux: self.flux.clone(), too_old }),
            Some(Ok(())) | None => Ok(version),
        }
    }

    /// The version, whether or not it is supported; `None` if `flux` does not report one. Only the
    /// first caller runs the command; the others wait for it.
    pub fn wait(&self) -> Option<Version> {
        *self.version.get_or_init(|| {
            let output = flux_command::command_output(&mut version_command(&self.flux));
            let version = output.and_then(|output| Version::parse_output(&output));
            if version.is_none() {
                let flux = &self.flux;
                log(&format!("failed to determine the version of {flux:?}; using it anyway"));
            }
            version
        })
    }
}

fn version_command(flux: &Path) -> Command {
    let mut command = Command::new(flux);
    // With this variable set, `flux version` would contact that broker too.
    command.arg("version").env_remove("FLUX_URI");
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    /// The result for a `flux` that is this script.
    fn supported(script: &str) -> Result<Option<Version>, UnsupportedFlux> {
        let directory = tempfile::tempdir().unwrap();
        let flux = directory.path().join("flux");
        files::tests::write_script(&flux, &format!("#!/bin/sh\n{script}\n"));
        let asked = VersionQuery::start(&flux);
        let answer = asked.supported();
        assert_eq!(asked.supported().is_ok(), answer.is_ok(), "asked again");
        answer
    }

    #[test]
    fn a_supported_version_is_known() {
        let found = supported("[ \"$*\" = version ] && echo commands: 0.68.0").unwrap();
        assert_eq!(found, Some(Version::new(0, 68, 0)));
    }

    #[test]
    fn an_old_version_is_rejected_with_its_path() {
        let message = supported("echo commands: 0.40.0").unwrap_err().to_string();
        assert!(message.starts_with("Flux 0.40.0 is too old"), "{message}");
        assert!(message.ends_with("/flux\""), "{message}");
    }

    /// A broker that asks whether it may join reports its version, so that the reason why not names it.
    #[test]
    fn an_old_version_is_known_too() {
        let directory = tempfile::tempdir().unwrap();
        let flux = directory.path().join("flux");
        files::tests::write_script(&flux, "#!/bin/sh\necho commands: 0.40.0\n");
        assert_eq!(VersionQuery::start(&flux).wait(), Some(Version::new(0, 40, 0)));
    }

    #[test]
    fn a_flux_without_a_version_is_used() {
        for script in ["exit 1", "echo nonsense", "echo commands: 0.40.0; exit 1", "exec /nowhere"]
        {
            assert_eq!(supported(script).unwrap(), None, "{script}");
        }
        assert_eq!(VersionQuery::start(Path::new("/no/flux")).supported().unwrap(), None);
    }

    #[test]
    fn another_broker_is_not_contacted() {
        let command = version_command(Path::new("flux"));
        let removed = command.get_envs().any(|(name, value)| name == "FLUX_URI" && value.is_none());
        assert!(removed, "{command:?}");
        let found = supported("echo commands: 0.88.0-59-g4a5e79f");
        assert_eq!(found.unwrap(), Some(Version::new(0, 88, 0)));
    }
}
