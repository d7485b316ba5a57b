//! A program of the testbed as a value: what to run, and how to check that it is ready.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::layout::TestbedDirectory;
use crate::slot::{Port, Slot};
use crate::state::{Level, Requirements};

/// The input for the command lines and configurations of components.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) home: TestbedDirectory,
    pub(crate) bin: PathBuf,
    pub(crate) images: PathBuf,
    /// The directory of the slot's sockets.
    pub(crate) sockets: PathBuf,
    pub(crate) slot: Slot,
    pub(crate) wanted: Requirements,
}

impl Settings {
    /// The address of the API server: it must be reachable from the node, if there is one.
    pub(crate) fn api_server(&self) -> SocketAddr {
        let port = self.slot.port(Port::ApiServer);
        match self.wanted.level {
            Level::ApiServer | Level::ControlPlane => self.slot.loopback(Port::ApiServer),
            Level::Node => SocketAddr::new(IpAddr::V4(self.slot.host_address()), port),
        }
    }

    /// An address of the node.
    pub(crate) fn on_node(&self, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.slot.node_address()), port)
    }

    /// The socket of the node's container runtime.
    pub(crate) fn runtime_socket(&self) -> PathBuf {
        self.sockets.join("containerd.sock")
    }

    /// The supervisor's socket.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.sockets.join("control.sock")
    }
}

/// A program that the supervisor keeps running.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    /// Its name, also used for its log file.
    pub(crate) name: &'static str,
    /// The file in `bin`.
    pub(crate) program: &'static str,
    pub(crate) arguments: Vec<String>,
    pub(crate) network: ComponentNetwork,
    pub(crate) exit_policy: ExitPolicy,
    /// It is ready when all of these succeed.
    pub(crate) ready: Vec<Probe>,
}

/// The network in which a component runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComponentNetwork {
    Host,
    Node,
}

/// What happens when a component exits by itself after it was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitPolicy {
    /// The testbed cannot run without it.
    StopAll,
    /// It is restarted, as a node's service manager would do.
    Restart,
}

/// A check whether a component is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// A TCP connection is accepted.
    Tcp(SocketAddr),
    /// A connection to this Unix socket is accepted.
    Socket(PathBuf),
    /// A plain HTTP request returns status 200.
    Http(SocketAddr, &'static str),
    /// The API server serves this path.
    Api(String),
    /// The API server reports the node as ready.
    NodeReady(String),
}

/// A flag with its value, `--name=value`.
pub(crate) fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

/// A flag whose value is a path.
pub(crate) fn path_flag(name: &str, path: &std::path::Path) -> String {
    flag(name, path.display())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Settings for tests of rendered configurations.
    pub(crate) fn settings(level: Level) -> Settings {
        Settings {
            home: TestbedDirectory::at("/base/default".into()),
            bin: "/base/bin".into(),
            images: "/base/images".into(),
            sockets: "/run/flux-operator-testbed/3".into(),
            slot: Slot::new(3).expect("there are more than three"),
            wanted: Requirements { level, audit: false },
        }
    }

    #[test]
    fn the_api_server_listens_where_its_clients_can_reach_it() {
        let address = |level| settings(level).api_server().to_string();
        assert_eq!(address(Level::ControlPlane), "127.0.0.1:20300");
        assert_eq!(address(Level::Node), "10.213.3.1:20300");
    }

    #[test]
    fn sockets_fit_into_a_socket_address() {
        let settings = settings(Level::Node);
        // sun_path has 108 bytes, the last one zero.
        assert!(settings.runtime_socket().as_os_str().len() < 108);
        assert!(settings.control_socket().as_os_str().len() < 108);
    }
}
