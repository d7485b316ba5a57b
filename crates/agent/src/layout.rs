//! The paths below the directory that an agent may write to.
//!
//! They are the same as with the Go operator, because users' hooks and tools
//! depend on them.

use std::fs;
use std::path::{Path, PathBuf};

use flux_operator_flux::HostList;

use crate::arguments::text;
use crate::files::{self, WriteError};

/// The directory of an agent.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout below `root`.
    pub fn new(root: &Path) -> Layout {
        Layout { root: root.to_owned() }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory with broker.toml.
    pub fn config(&self) -> PathBuf {
        self.root.join("config/etc/flux/config")
    }

    /// The broker's configuration.
    pub fn broker_config(&self) -> PathBuf {
        self.config().join("broker.toml")
    }

    /// The broker's copy of the certificate.
    pub fn certificate(&self) -> PathBuf {
        self.curve().join("curve.cert")
    }

    /// The directory of [`Layout::certificate`].
    fn curve(&self) -> PathBuf {
        self.root.join("config/curve")
    }

    /// The directory for cron jobs of the broker.
    pub fn cron(&self) -> PathBuf {
        self.root.join("config/etc/flux/system/cron.d")
    }

    /// The directory with settings of the job shell.
    pub fn task_shell(&self) -> PathBuf {
        self.root.join("config/etc/flux/shell")
    }

    /// The directory of the broker's state.
    pub fn state(&self) -> PathBuf {
        self.root.join("config/var/lib/flux")
    }

    /// The directory of the broker's sockets.
    pub fn run(&self) -> PathBuf {
        self.root.join("config/run/flux")
    }

    /// The socket at its well-known path.
    pub fn socket(&self) -> PathBuf {
        self.run().join("local")
    }

    /// The socket at Flux's default path.
    pub fn default_socket(&self, rank: u32) -> PathBuf {
        self.run().join(format!("local-{rank}"))
    }

    /// The pipe through which inner stages send notices to the agent.
    pub fn notices(&self) -> PathBuf {
        self.root.join("config/run/notices")
    }

    /// A file that exists once the program has been started.
    pub fn program_started(&self) -> PathBuf {
        self.root.join("config/run/program-started")
    }

    /// The directory of the user's hooks, one file each.
    pub fn hooks(&self) -> PathBuf {
        self.root.join("config/hooks")
    }

    /// The batch script that the program submits.
    pub fn batch(&self) -> PathBuf {
        self.root.join("config/flux-job.batch")
    }

    /// The directory of a sidecar's scripts.
    pub fn sidecar(&self, name: &str) -> PathBuf {
        self.root.join("config/sidecars").join(name)
    }

    /// A file for users, such as `flux-view.sh`.
    pub fn user_file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Creates the directories and the list of hosts, and removes the marker files of an earlier
    /// agent in the same directory. The certificate is put into `private`, if given.
    pub fn create(&self, hosts: &HostList, private: Option<&Path>) -> Result<(), WriteError> {
        for directory in
            [self.config(), self.cron(), self.task_shell(), self.state(), self.run(), self.hooks()]
        {
            files::create_directory(&directory)?;
        }
        match private {
            Some(private) => files::link(private, &self.curve())?,
            None => files::create_directory(&self.curve())?,
        }
        // Errors are ignored: usually there is no such file.
        let _ = fs::remove_file(self.program_started());
        let _ = fs::remove_file(self.user_file("flux-operator-complete.txt"));
        let list = self.root.join("config/etc/flux/system/hostlist");
        files::write(&list, format!("{hosts}\n"), 0o644)
    }
}

/// The URI of a socket, in Flux's format.
pub fn local_uri(socket: &Path) -> String {
    format!("local://{}", text(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_go_operator() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        layout.create(&"fs-[0-3]".parse().unwrap(), None).unwrap();
        let config = root.path().join("config");
        for directory in
            ["etc/flux/system/cron.d", "etc/flux/config", "var/lib/flux", "run/flux", "curve"]
        {
            assert!(config.join(directory).is_dir(), "{directory}");
        }
        let hosts = fs::read_to_string(config.join("etc/flux/system/hostlist")).unwrap();
        assert_eq!(hosts, "fs-[0-3]\n");
        assert_eq!(layout.socket(), config.join("run/flux/local"));
    }

    #[test]
    fn a_second_start_removes_the_markers_of_the_first() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let hosts = "fs-0".parse().unwrap();
        layout.create(&hosts, None).unwrap();
        let complete = layout.user_file("flux-operator-complete.txt");
        fs::write(&complete, "").unwrap();
        fs::write(layout.program_started(), "").unwrap();
        layout.create(&hosts, None).unwrap();
        assert!(!complete.exists() && !layout.program_started().exists());
    }

    #[test]
    fn the_certificate_may_be_elsewhere_and_is_still_found() {
        let (root, private) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let layout = Layout::new(root.path());
        for _ in 0..2 {
            layout.create(&"fs-0".parse().unwrap(), Some(private.path())).unwrap();
            fs::write(layout.certificate(), "key").unwrap();
            assert_eq!(fs::read_to_string(private.path().join("curve.cert")).unwrap(), "key");
        }
    }
}
