//! Bursts in files: what a process that is killed must not forget.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flux_operator_api::Burst;
use flux_operator_api::burst::DayUsage;
use kube::ResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The file that only one process has locked.
const LOCK: &str = "lock";

/// The file with what finished Bursts have used, by policy.
const USAGE: &str = "usage.json";

/// The file with the URI of the instance.
const URI: &str = "uri";

/// How files of Bursts end.
const BURST: &str = ".burst.json";

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Another process uses the folder.
    #[error("another `flux-operator burst` is running for this instance: it has locked {path:?}")]
    Locked {
        /// The file that is locked.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("failed to {doing} {path:?}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path:?} is not a record: it is of another version, or was edited")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError::File { doing, path, source }
}

/// The Bursts of an instance, and what finished ones have used.
#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
    bursts: BTreeMap<String, Burst>,
    usage: BTreeMap<String, DayUsage>,
    /// Locked as long as it is open.
    _lock: File,
    /// How many more writes succeed, in tests.
    #[cfg(test)]
    pub(super) writes_left: std::cell::Cell<Option<usize>>,
}

impl Records {
    /// Reads the records of a folder, which is created if it is missing.
    pub(super) fn open(directory: &Path) -> Result<Records, RecordError> {
        std::fs::create_dir_all(directory).map_err(failed("create the folder", directory))?;
        let path = directory.join(LOCK);
        let lock = File::create(&path).map_err(failed("create", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RecordError::Locked { path }),
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
        let bursts = bursts_in(directory)?.into_iter().map(|burst| (burst.name_any(), burst));
        let path = directory.join(USAGE);
        let usage = if path.exists() { read(&path)? } else { BTreeMap::new() };
        Ok(Records {
            directory: directory.to_owned(),
            bursts: bursts.collect(),
            usage,
            _lock: lock,
            #[cfg(test)]
            writes_left: std::cell::Cell::new(None),
        })
    }

    /// The Bursts, in the order of their creation.
    pub(super) fn bursts(&self) -> Vec<Burst> {
        let mut bursts: Vec<Burst> = self.bursts.values().cloned().collect();
        bursts.sort_by_key(|burst| (burst.creation_timestamp(), burst.name_any()));
        bursts
    }

    /// A Burst as it is recorded.
    pub(super) fn get(&self, name: &str) -> Option<&Burst> {
        self.bursts.get(name)
    }

    /// What finished Bursts of a policy have used.
    pub(super) fn usage(&self, policy: &str) -> Option<&DayUsage> {
        self.usage.get(policy)
    }

    /// Records a Burst.
    pub(super) fn save(&mut self, burst: Burst) -> Result<(), RecordError> {
        let name = burst.name_any();
        if self.bursts.get(&name) != Some(&burst) {
            self.write(&format!("{name}{BURST}"), &burst)?;
            self.bursts.insert(name, burst);
        }
        Ok(())
    }

    /// Removes the record of a Burst.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), RecordError> {
        let path = self.directory.join(format!("{name}{BURST}"));
        self.count_write(&path)?;
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove", &path)(error)),
        }
        self.bursts.remove(name);
        Ok(())
    }

    /// The URI that the instance had last.
    pub(super) fn uri(&self) -> Option<String> {
        std::fs::read_to_string(self.directory.join(URI)).ok()
    }

    /// Records the URI of the instance.
    pub(super) fn save_uri(&self, uri: &str) -> Result<(), RecordError> {
        let path = self.directory.join(URI);
        std::fs::write(&path, uri).map_err(failed("write", &path))
    }

    /// Records what finished Bursts of a policy have used.
    pub(super) fn save_usage(&mut self, policy: &str, usage: DayUsage) -> Result<(), RecordError> {
        let mut all = self.usage.clone();
        all.insert(policy.to_owned(), usage);
        self.write(USAGE, &all)?;
        self.usage = all;
        Ok(())
    }

    /// Writes a file at once: a process that is killed leaves the former content, or this one.
    fn write(&self, name: &str, content: &impl Serialize) -> Result<(), RecordError> {
        let (path, draft) = (self.directory.join(name), self.directory.join(format!("{name}~")));
        self.count_write(&path)?;
        let text = serde_json::to_vec_pretty(content).expect("the keys of its maps are strings");
        let mut file = File::create(&draft).map_err(failed("create", &draft))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed("write", &draft))?;
        std::fs::rename(&draft, &path).map_err(failed("replace", &path))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests count writes")]
    fn count_write(&self, _path: &Path) -> Result<(), RecordError> {
        Ok(())
    }

    #[cfg(test)]
    fn count_write(&self, path: &Path) -> Result<(), RecordError> {
        let left = self.writes_left.get();
        if left == Some(0) {
            return Err(failed("write", path)(io::Error::other("the process was killed")));
        }
        self.writes_left.set(left.map(|left| left - 1));
        Ok(())
    }
}

/// The Bursts whose records are in a folder, also while a process uses it: a record that this process
/// removes meanwhile is left out.
pub fn bursts_in(directory: &Path) -> Result<Vec<Burst>, RecordError> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", directory)(error)),
    };
    let mut bursts = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed("list", directory))?.path();
        if !path.to_string_lossy().ends_with(BURST) {
            continue;
        }
        match read(&path) {
            Ok(burst) => bursts.push(burst),
            Err(RecordError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bursts)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, RecordError> {
    let text = std::fs::read(path).map_err(failed("read", path))?;
    serde_json::from_slice(&text)
        .map_err(|source| RecordError::Parse { path: path.to_owned(), source })
}
