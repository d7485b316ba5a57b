//! What the machine must have, and how missing packages are installed.
//!
//! The Go programs are built here; a few others come from the distribution. On Debian, as root,
//! missing ones are installed. Otherwise the error lists the missing packages.

use std::path::Path;
use std::process::Command;

use crate::command::{self, CommandError};
use crate::state::Level;

/// Debian's directory of the CNI plugins.
pub(crate) const CNI_PLUGINS: &str = "/usr/lib/cni";

/// A required file or program, and the Debian package that contains it.
struct Prerequisite {
    item: RequiredItem,
    package: &'static str,
    node_only: bool,
}

enum RequiredItem {
    Program(&'static str),
    File(&'static str),
}

const PREREQUISITES: [Prerequisite; 11] = [
    Prerequisite { item: RequiredItem::Program("setsid"), package: "util-linux", node_only: false },
    Prerequisite {
        item: RequiredItem::Program("setpriv"),
        package: "util-linux",
        node_only: false,
    },
    Prerequisite { item: RequiredItem::Program("unshare"), package: "util-linux", node_only: true },
    Prerequisite { item: RequiredItem::Program("nsenter"), package: "util-linux", node_only: true },
    Prerequisite { item: RequiredItem::Program("mount"), package: "mount", node_only: true },
    Prerequisite { item: RequiredItem::Program("ip"), package: "iproute2", node_only: true },
    Prerequisite { item: RequiredItem::Program("iptables"), package: "iptables", node_only: true },
    Prerequisite { item: RequiredItem::Program("runc"), package: "runc", node_only: true },
    Prerequisite {
        item: RequiredItem::Program("busybox"),
        package: "busybox-static",
        node_only: true,
    },
    Prerequisite {
        item: RequiredItem::File("/usr/lib/cni/ptp"),
        package: "containernetworking-plugins",
        node_only: true,
    },
    Prerequisite {
        item: RequiredItem::File("/usr/lib/cni/host-local"),
        package: "containernetworking-plugins",
        node_only: true,
    },
];

/// Why a testbed of a level cannot run on this machine.
#[derive(Debug, thiserror::Error)]
pub enum PrerequisiteError {
    /// Only root can create network namespaces and cgroups.
    #[error("a testbed with a node needs root: run as root, or use --level control-plane")]
    NotRoot,
    /// Running as root, but in a container without permission to create namespaces.
    #[error(
        "a testbed with a node needs permission to create namespaces: \
         allow this container to, or use --level control-plane"
    )]
    NoNamespaces(#[source] CommandError),
    /// Packages are missing and cannot be installed automatically.
    #[error("missing packages: {packages}: install them first")]
    Missing {
        /// Debian's names of the packages.
        packages: String,
    },
    /// Packages are missing and their installation failed.
    #[error("missing packages: {packages}: failed to install them")]
    Install {
        /// Debian's names of the packages.
        packages: String,
        /// The error of apt-get.
        source: CommandError,
    },
}

/// Makes sure that a testbed of this level can run, and installs missing packages. Returns the
/// installed packages.
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

/// Checks whether this process may create pid and mount namespaces.
pub(crate) fn try_namespaces() -> Result<(), CommandError> {
    let options = ["--pid", "--mount", "--fork", "--mount-proc", "true"];
    command::run(Command::new("unshare").args(options)).map(drop)
}

fn missing_packages(level: Level, is_present: impl Fn(&RequiredItem) -> bool) -> Vec<&'static str> {
    let mut packages: Vec<_> = PREREQUISITES
        .iter()
        .filter(|need| level == Level::Node || !need.node_only)
        .filter(|need| !is_present(&need.item))
        .map(|need| need.package)
        .collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn is_present(what: &RequiredItem) -> bool {
    match what {
        RequiredItem::Program(program) => command::find(program).is_some(),
        RequiredItem::File(path) => Path::new(path).exists(),
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
    // A new machine has no package lists, an old one outdated ones: they are only updated if
    // needed.
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
        let nothing = |_: &RequiredItem| false;
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
    fn installed_packages_are_not_requested() {
        assert!(missing_packages(Level::Node, |_| true).is_empty());
        let only_runc = |what: &RequiredItem| !matches!(what, RequiredItem::Program("runc"));
        assert_eq!(missing_packages(Level::Node, only_runc), ["runc"]);
    }
}
