//! A broker's host: its directory, its socket for clients, its cores, and the path of this program.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::attributes::Attributes;
use super::boot::Boot;
use crate::socket::{self, Listener, SocketError};

/// The maximum length of a Unix socket's path.
const MAX_SOCKET_PATH: usize = 107;

/// A broker's directory and socket on its host.
pub struct BrokerHost {
    pub rundir: PathBuf,
    /// Whether to remove the directory when the broker exits.
    cleanup: bool,
    socket: PathBuf,
    pub uri: String,
}

/// Why a host could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("failed to create the directory {}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("local-uri {uri:?} is not of the form local://PATH")]
    Uri { uri: String },
    #[error("path of the socket {} is longer than {MAX_SOCKET_PATH} bytes", path.display())]
    SocketPath { path: PathBuf },
    #[error("failed to listen for clients")]
    Listen { source: SocketError },
}

impl BrokerHost {
    /// Creates the directory and sets the attributes that depend on the broker's rank and host.
    pub fn new(attributes: &mut Attributes, boot: &Boot) -> Result<Self, HostError> {
        let cleanup = attributes.get("rundir").is_none();
        let rundir = match attributes.get("rundir") {
            Some(path) => create_directory(Path::new(path))?,
            None => create_temporary_directory()?,
        };
        let default = format!("local://{}/local-{}", rundir.display(), boot.rank);
        let uri = attributes.get("local-uri").map_or(default, str::to_owned);
        let path = uri.strip_prefix("local://").map(PathBuf::from);
        let socket = path.ok_or_else(|| HostError::Uri { uri: uri.clone() })?;
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(HostError::SocketPath { path: socket });
        }
        let size = boot.hosts.len();
        let level = boot.nested.as_ref().map_or(0, |nested| nested.level);
        let path = boot.nested.as_ref().map_or("/", |nested| nested.path.as_str());
        let parent = boot.nested.as_ref().map_or("-", |nested| nested.parent_uri.as_str());
        for (name, value) in [
            ("rank", boot.rank.to_string()),
            ("size", size.to_string()),
            ("hostlist", hostlist(&boot.hosts)),
            ("rundir", rundir.display().to_string()),
            ("rundir-cleanup", u8::from(cleanup).to_string()),
            ("local-uri", uri.clone()),
            ("instance-level", level.to_string()),
            ("jobid-path", path.to_owned()),
            ("parent-uri", parent.to_owned()),
            ("broker.pid", std::process::id().to_string()),
            ("broker.boot-method", boot.method.to_owned()),
            ("broker.starttime", format!("{:.2}", crate::time::now())),
            ("security.owner", rustix::process::geteuid().as_raw().to_string()),
            ("tbon.level", u8::from(boot.rank > 0).to_string()),
            ("tbon.maxlevel", u8::from(size > 1).to_string()),
            ("tbon.descendants", if boot.rank == 0 { size - 1 } else { 0 }.to_string()),
            ("version", crate::VERSION.to_owned()),
        ] {
            attributes.set(name, value);
        }
        if attributes.get("statedir").is_none() {
            attributes.set("statedir", rundir.display().to_string());
        }
        let given = boot.listen.as_ref().or(boot.lead.as_ref());
        attributes.set("tbon.endpoint", given.cloned().unwrap_or_else(|| "-".to_owned()));
        Ok(Self { rundir, cleanup, socket, uri })
    }

    /// Opens the socket for clients. Its mode allows only its owner to connect.
    pub fn listen(&self) -> Result<Listener, HostError> {
        let endpoint = format!("ipc://{}", self.socket.display());
        if let Some(directory) = self.socket.parent() {
            create_directory(directory)?;
        }
        let listener = socket::listen(&endpoint).map_err(|source| HostError::Listen { source })?;
        let mode = std::fs::Permissions::from_mode(0o700);
        let _checked_at_connection_anyway = std::fs::set_permissions(&self.socket, mode);
        Ok(listener)
    }

    /// PATH with a directory prepended in which `flux` is this program.
    pub fn path(&self) -> OsString {
        let own = std::env::current_exe().ok();
        let is_flux = |path: &Path| path.file_name().is_some_and(|name| name == "flux");
        let directory = match own {
            Some(program) if is_flux(&program) => program.parent().map(Path::to_owned),
            Some(program) => {
                // Embedded in another program, which acts as fluxlet when called `flux`.
                let directory = self.rundir.join("bin");
                let link = directory.join("flux");
                let made = std::fs::create_dir_all(&directory)
                    .and_then(|()| std::os::unix::fs::symlink(program, &link));
                (made.is_ok() || link.exists()).then_some(directory)
            }
            None => None,
        };
        let current = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
        let mut parts: Vec<PathBuf> = std::env::split_paths(&current).collect();
        if let Some(directory) = directory.filter(|directory| parts.first() != Some(directory)) {
            parts.insert(0, directory);
        }
        std::env::join_paths(parts).unwrap_or(current)
    }
}

impl Drop for BrokerHost {
    /// Removes what was created here.
    fn drop(&mut self) {
        let _already_removed = std::fs::remove_file(&self.socket);
        if self.cleanup {
            let _already_gone = std::fs::remove_dir_all(&self.rundir);
        }
    }
}

/// The name of this host.
pub fn system_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// How many cores this process may use.
pub fn core_count() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(count).unwrap_or(u32::MAX)
}

pub fn hostlist(hosts: &[String]) -> String {
    let mut list = flux_operator_flux::HostList::new();
    for host in hosts {
        // Names come from a host list or from the system; invalid ones are omitted.
        let _odd_name = list.push(host);
    }
    list.to_string()
}

fn create_directory(path: &Path) -> Result<PathBuf, HostError> {
    let failed = |source| HostError::Directory { path: path.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    path.canonicalize().map_err(failed)
}

/// Creates a directory named `flux-` and six characters, as Flux does.
pub fn create_temporary_directory() -> Result<PathBuf, HostError> {
    let base = std::env::temp_dir();
    let mut seed =
        u64::from(std::process::id()) << 32 | (crate::time::now() * 1e6) as u64 & 0xffff_ffff;
    loop {
        let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let name: String = (0..6)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(letters[(seed >> 33) as usize % letters.len()])
            })
            .collect();
        let path = base.join(format!("flux-{name}"));
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(HostError::Directory { path, source }),
        }
    }
}
