//! One local cluster's files, and whether it is running.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flux_operator_flux::RankList;
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::home::create_private;
use crate::plural::ranks_of;

/// The longest path of a socket: `sun_path` of Linux has 108 bytes, and the last one is zero.
const MAX_SOCKET_PATH: usize = 107;

/// A local cluster, by its files. It is running while its supervisor holds the lock.
#[derive(Clone, Debug)]
pub struct Instance {
    name: String,
    state: PathBuf,
    runtime: PathBuf,
}

/// What a supervisor writes about its cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Process ID of the supervisor. The key is `front`, as earlier builds wrote it.
    #[serde(rename = "front")]
    pub supervisor: u32,
    /// Number of brokers.
    pub size: u32,
    /// The program `flux`.
    pub flux: PathBuf,
    /// When it was started, in seconds since the Unix epoch.
    pub started: u64,
    /// Enough brokers are online.
    pub ready: bool,
    /// What it joins, if its brokers are in the instance of another cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<JoinRecord>,
}

/// The ranks that a cluster leases of another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinRecord {
    /// Name of the lender's instance.
    pub lender: String,
    /// The ranks.
    pub ranks: RankList,
}

impl fmt::Display for JoinRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", ranks_of(&self.ranks), self.lender)
    }
}

impl Record {
    /// The rank of its first broker.
    pub fn first_rank(&self) -> u32 {
        self.joins.as_ref().and_then(|joins| joins.ranks.nth(0)).unwrap_or(0)
    }
}

/// Why an instance's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// It is already running.
    #[error(
        "local cluster {name:?} is already running: stop it with `flux-operator local down {name}`"
    )]
    AlreadyRunning {
        /// Its name.
        name: String,
    },
    /// It is not running.
    #[error("no local cluster {name:?} is running: `flux-operator local ps` lists them")]
    NotRunning {
        /// Its name.
        name: String,
    },
    /// The path of a socket would be too long for the system.
    #[error(
        "the sockets of local cluster {name:?} would have paths of {bytes} bytes, and at most \
         {MAX_SOCKET_PATH} are possible\n\
         hint: use a shorter name, or set XDG_RUNTIME_DIR to a directory with a shorter path"
    )]
    SocketPath {
        /// Its name.
        name: String,
        /// The length of the longest path.
        bytes: usize,
    },
    /// A file cannot be created, read or written.
    #[error("failed to access {path:?}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A lock of an instance. It is released when dropped, or when the process exits.
#[derive(Debug)]
pub(crate) struct InstanceLock {
    _lock: File,
}

impl Instance {
    pub(crate) fn new(name: String, state: PathBuf, runtime: PathBuf) -> Instance {
        Instance { name, state, runtime }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of a rank.
    pub fn rank_directory(&self, rank: u32) -> PathBuf {
        self.runtime.join(rank.to_string())
    }

    /// The log of a rank.
    pub fn log_file(&self, rank: u32) -> PathBuf {
        self.state.join(format!("rank-{rank}.log"))
    }

    /// The socket that the lead listens on for the other brokers.
    pub(crate) fn lead_socket(&self) -> PathBuf {
        self.runtime.join("lead")
    }

    /// The pipe on which the agent of a rank reports that it is ready.
    pub(crate) fn ready_pipe(&self, rank: u32) -> PathBuf {
        self.runtime.join(format!("ready-{rank}"))
    }

    /// The manifest, from which joiners compute its rank table.
    pub(crate) fn manifest_file(&self) -> PathBuf {
        self.state.join("manifest.json")
    }

    /// The boot plan.
    pub(crate) fn boot_plan_file(&self) -> PathBuf {
        self.state.join("boot.json")
    }

    /// The directory of the keys.
    pub(crate) fn keys_directory(&self) -> PathBuf {
        self.state.join("keys")
    }

    /// The directory of programs that is put first in `PATH`.
    pub fn programs_directory(&self) -> PathBuf {
        self.state.join("bin")
    }

    /// The directory for output files of jobs.
    pub(crate) fn output_directory(&self) -> PathBuf {
        self.state.join("output")
    }

    /// The file to which the agent of a rank writes its termination message.
    pub(crate) fn termination_file(&self, rank: u32) -> PathBuf {
        self.state.join(format!("rank-{rank}.ending"))
    }

    /// The URI of the socket of a rank, for clients of Flux.
    pub fn uri(&self, rank: u32) -> String {
        format!("local://{}", self.socket(rank).display())
    }

    /// The socket on which the broker of a rank accepts clients.
    fn socket(&self, rank: u32) -> PathBuf {
        self.rank_directory(rank).join("config/run/flux/local")
    }

    /// Fails if the path of a socket of these ranks would be too long: nothing could connect to it.
    pub(crate) fn check_sockets(&self, ranks: &RankList) -> Result<(), InstanceError> {
        let of_ranks = ranks.iter().map(|rank| self.socket(rank));
        let paths = of_ranks.chain([self.lead_socket()]);
        let bytes = paths.map(|path| path.as_os_str().len()).max().unwrap_or_default();
        match bytes > MAX_SOCKET_PATH {
            true => Err(InstanceError::SocketPath { name: self.name.clone(), bytes }),
            false => Ok(()),
        }
    }

    /// Locks the instance and creates its directories, empty. Fails if it is already running.
    pub(crate) fn acquire(&self) -> Result<InstanceLock, InstanceError> {
        let lock = self
            .try_lock()?
            .ok_or_else(|| InstanceError::AlreadyRunning { name: self.name.clone() })?;
        self.clear();
        for directory in [
            &self.runtime,
            &self.keys_directory(),
            &self.programs_directory(),
            &self.output_directory(),
        ] {
            create_private(directory).map_err(|error| InstanceError::File {
                path: directory.clone(),
                source: io::Error::other(error),
            })?;
        }
        Ok(InstanceLock { _lock: lock })
    }

    /// Removes all files. The lock file is removed last, and only if nothing else is left: a
    /// process that is still exiting may write meanwhile, and the next command finds what
    /// remains by the lock file.
    pub(crate) fn remove(&self) {
        self.clear();
        if !self.runtime.exists() {
            let _ = fs::remove_dir_all(&self.state);
        }
    }

    /// Removes the files of an instance that is not running; returns whether it did.
    pub(crate) fn remove_if_not_running(&self) -> bool {
        match self.try_lock() {
            Ok(Some(_lock)) => {
                self.remove();
                true
            }
            _ => false,
        }
    }

    /// Reads what its supervisor has written about it.
    pub fn record(&self) -> Result<Record, InstanceError> {
        let not_running = || InstanceError::NotRunning { name: self.name.clone() };
        let text = fs::read_to_string(self.state.join("record.json")).map_err(|_| not_running())?;
        serde_json::from_str(&text).map_err(|_| not_running())
    }

    /// Stops the supervisor, and waits until it has exited.
    pub fn stop(&self) -> Result<(), InstanceError> {
        let record = self.record()?;
        let path = self.state.join("lock");
        let failed = |source| InstanceError::File { path: path.clone(), source };
        let lock = OpenOptions::new().write(true).open(&path).map_err(failed)?;
        if let Some(supervisor) = i32::try_from(record.supervisor).ok().and_then(Pid::from_raw) {
            // It may have exited meanwhile; the lock shows that.
            let _ = kill_process(supervisor, Signal::TERM);
        }
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        self.remove();
        Ok(())
    }

    /// Waits until its supervisor has exited, for whatever reason.
    pub(crate) fn wait_until_stopped(&self) -> Result<(), InstanceError> {
        let path = self.state.join("lock");
        let failed = |source| InstanceError::File { path: path.clone(), source };
        let lock = File::open(&path).map_err(failed)?;
        retry_on_intr(|| flock(&lock, FlockOperation::LockShared))
            .map_err(|error| failed(error.into()))
    }

    /// Locks the decision which of its ranks are leased to which joiner.
    pub(crate) fn lock_leases(&self) -> Result<InstanceLock, InstanceError> {
        let path = self.state.join("leases");
        let failed = |source| InstanceError::File { path: path.clone(), source };
        let options =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let lock = options.map_err(failed)?;
        retry_on_intr(|| flock(&lock, FlockOperation::LockExclusive))
            .map_err(|error| failed(error.into()))?;
        Ok(InstanceLock { _lock: lock })
    }

    /// Writes the supervisor's record atomically.
    pub(crate) fn write_record(&self, record: &Record) -> Result<(), InstanceError> {
        let text = serde_json::to_string(record).expect("a record is JSON");
        let (draft, file) = (self.state.join("record.draft"), self.state.join("record.json"));
        let failed = |source| InstanceError::File { path: file.clone(), source };
        fs::write(&draft, text).and_then(|()| fs::rename(&draft, &file)).map_err(failed)
    }

    /// Locks the instance; `None` if another process holds the lock.
    fn try_lock(&self) -> Result<Option<File>, InstanceError> {
        let path = self.state.join("lock");
        let failed = |source| InstanceError::File { path: path.clone(), source };
        create_private(&self.state).map_err(|error| failed(io::Error::other(error)))?;
        let options =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let lock = options.map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            // Another process has removed the instance meanwhile, with this file.
            Ok(()) if !is_at(&lock, &path) => self.try_lock(),
            Ok(()) => Ok(Some(lock)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Removes everything but the lock.
    fn clear(&self) {
        let _ = fs::remove_dir_all(&self.runtime);
        let entries = fs::read_dir(&self.state).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()).filter(|path| !path.ends_with("lock")) {
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            // The next command tries again to remove what is left.
            let _ = removed;
        }
    }
}

/// Whether this open file is still the one at the path.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), InstanceError> {
    use std::io::Write;
    let failed = |source| InstanceError::File { path: path.to_owned(), source };
    let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(content)).map_err(failed)
}
