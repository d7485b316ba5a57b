//! What the machine has to have, and how it gets there.
//!
//! The Go programs are built here; a few more come from the distribution. On a Debian machine,
//! and as root, missing ones are installed. Elsewhere the error says in one line what is missing.

use std::path::Path;
use std::process::Command;

use crate::command::{self, CommandError};
use crate::state::Level;

/// Where Debian puts the CNI plugins.
pub(crate) const CNI_PLUGINS: &str = "/usr/lib/cni";

/// A file or program, and the Debian package that has it.
struct Need {
    what: What,
    package: &'static str,
    node_only: bool,
}

enum What {
    Program(&'static str),
    File(&'static str),
}

const NEEDS: [Need; 11] = [
    Need { what: What::Program("setsid"), package: "util-linux", node_only: false },
    Need { what: What::Program("setpriv"), package: "util-linux", node_only: false },
    Need { what: What::Program("unshare"), package: "util-linux", node_only: true },
    Need { what: What::Program("nsenter"), package: "util-linux", node_only: true },
    Need { what: What::Program("mount"), package: "mount", node_only: true },
    Need { what: What::Program("ip"), package: "iproute2", node_only: true },
    Need { what: What::Program("iptables"), package: "iptables", node_only: true },
    Need { what: What::Program("runc"), package: "runc", node_only: true },
    Need { what: What::Program("busybox"), package: "busybox-static", node_only: true },
    Need {
        what: What::File("/usr/lib/cni/ptp"),
        package: "containernetworking-plugins",
        node_only: true,
    },
    Need {
        what: What::File("/usr/lib/cni/host-local"),
        package: "containernetworking-plugins",
        node_only: true,
    },
];

/// Why a testbed of a level cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum PrerequisiteError {
    /// Only root can make network namespaces and cgroups.
    #[error("a testbed with a node needs root: run as root, or use --level control-plane")]
    NotRoot,
    /// Root, but in a container without the right to make namespaces.
    #[error(
        "a testbed with a node needs to make namespaces: give this container the right to, or use --level control-plane"
    )]
    NoNamespaces(#[source] CommandError),
    /// Something is missing and cannot be installed from here.
    #[error("missing: {packages}: install these packages first")]
    Missing {
        /// Debian's names of the packages.
        packages: String,
    },
    /// The installation was tried.
    #[error("missing: {packages}: installing these packages failed")]
    Install {
        /// Debian's names of the packages.
        packages: String,
        /// What apt-get said.
        source: CommandError,
    },
}

/// Makes sure that a testbed of this level can run, installing what is missing. Returns what
/// was installed.
pub(crate) fn ensure(level: Level) -> Result<Vec<&'static str>, PrerequisiteError> {
    let root = is_root();
    if level == Level::Node && !root {
        return Err(PrerequisiteError::NotRoot);
    }
    let missing = missing_packages(level, is_present);
    if !missing.is_empty() {
        install(&missing, root)?;
        let still_missing = missing_packages(level, is_present);
        if !still_missing.is_empty() {
            return Err(PrerequisiteError::Missing { packages: still_missing.join(" ") });
        }
    }
    if level == Level::Node {
        try_namespaces().map_err(PrerequisiteError::NoNamespaces)?;
    }
    Ok(missing)
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this process may make pid and mount namespaces.
pub(crate) fn try_namespaces() -> Result<(), CommandError> {
    let options = ["--pid", "--mount", "--fork", "--mount-proc", "true"];
    command::run(Command::new("unshare").args(options)).map(drop)
}

fn missing_packages(level: Level, is_present: impl Fn(&What) -> bool) -> Vec<&'static str> {
    let mut packages: Vec<_> = NEEDS
        .iter()
        .filter(|need| level == Level::Node || !need.node_only)
        .filter(|need| !is_present(&need.what))
        .map(|need| need.package)
        .collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn is_present(what: &What) -> bool {
    match what {
        What::Program(program) => command::find(program).is_some(),
        What::File(path) => Path::new(path).exists(),
    }
}

fn install(packages: &[&'static str], root: bool) -> Result<(), PrerequisiteError> {
    let named = packages.join(" ");
    if !root || command::find("apt-get").is_none() {
        return Err(PrerequisiteError::Missing { packages: named });
    }
    let apt_get = |arguments: &[&str]| {
        command::run(
            Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(arguments),
        )
    };
    let install =
        || apt_get(&[&["install", "--yes", "--no-install-recommends"], packages].concat());
    // A fresh machine has no package lists, an old one stale lists: asked for only when needed.
    install()
        .or_else(|_| apt_get(&["update"]).and_then(|_| install()))
        .map(drop)
        .map_err(|source| PrerequisiteError::Install { packages: named, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_package_is_named_once() {
        let nothing = |_: &What| false;
        assert_eq!(missing_packages(Level::ControlPlane, nothing), ["util-linux"]);
        assert_eq!(
            missing_packages(Level::Node, nothing),
            [
                "busybox-static",
                "containernetworking-plugins",
                "iproute2",
                "iptables",
                "mount",
                "runc",
                "util-linux"
            ]
        );
    }

    #[test]
    fn what_is_there_is_not_asked_for() {
        assert!(missing_packages(Level::Node, |_| true).is_empty());
        let only_runc = |what: &What| !matches!(what, What::Program("runc"));
        assert_eq!(missing_packages(Level::Node, only_runc), ["runc"]);
    }
}
