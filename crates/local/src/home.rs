//! Where local clusters keep their files, following the XDG base directories.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::instance::Instance;

/// The directories of one user's local clusters.
#[derive(Clone, Debug)]
pub struct Home {
    state: PathBuf,
    runtime: PathBuf,
}

/// Why there is no directory for files.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Neither `XDG_STATE_HOME` nor `HOME` is set.
    #[error("there is no directory for files: set HOME or XDG_STATE_HOME")]
    NoHome,
    /// A directory cannot be created.
    #[error("failed to create {path:?}")]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory cannot be read.
    #[error("failed to read {path:?}")]
    Read {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Home {
    /// Returns the user's directories, and creates them if they do not exist. `variable` reads
    /// the environment.
    pub fn find(variable: impl Fn(&str) -> Option<OsString>) -> Result<Home, HomeError> {
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = path("XDG_STATE_HOME")
            .or_else(|| path("HOME").map(|home| home.join(".local/state")))
            .ok_or(HomeError::NoHome)?
            .join("flux-operator/local");
        // The path of a socket is limited to 107 bytes, so sockets are not below the state.
        let runtime = path("XDG_RUNTIME_DIR").map_or_else(
            || PathBuf::from(format!("/tmp/flux-operator-{}", rustix::process::getuid().as_raw())),
            |directory| directory.join("flux-operator"),
        );
        for directory in [&state, &runtime] {
            create_private(directory)?;
        }
        Ok(Home { state, runtime })
    }

    /// The instance of this name, whether it exists or not.
    pub fn instance(&self, name: &str) -> Instance {
        Instance::new(name.to_owned(), self.state.join(name), self.runtime.join(name))
    }

    /// Every running instance. Files of instances whose supervisor has died are removed.
    pub fn instances(&self) -> Result<Vec<Instance>, HomeError> {
        let read = |source| HomeError::Read { path: self.state.clone(), source };
        let mut names: Vec<String> = fs::read_dir(&self.state)
            .map_err(read)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        let instances = names.iter().map(|name| self.instance(name));
        Ok(instances.filter(|instance| !instance.remove_if_not_running()).collect())
    }

    /// The running instances whose brokers have joined the instance of this name.
    pub fn joiners_of(&self, name: &str) -> Result<Vec<Instance>, HomeError> {
        let joins = |instance: &Instance| {
            let joins = instance.record().ok().and_then(|record| record.joins);
            joins.is_some_and(|joins| joins.lender == name)
        };
        Ok(self.instances()?.into_iter().filter(joins).collect())
    }
}

/// Creates a directory that only its owner can read, because it contains keys.
pub(crate) fn create_private(directory: &Path) -> Result<(), HomeError> {
    let create = |source| HomeError::Create { path: directory.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(create)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).map_err(create)
}
