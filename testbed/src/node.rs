//! The programs of the node: container runtime, kubelet, service proxy, DNS.
//!
//! They run in their own network namespace (see [`crate::network`]) and in a mount namespace (see
//! [`crate::isolation`]) in which the directories they require are the testbed's, so their
//! configuration is mostly that of a usual node.

pub(crate) mod containerd;
pub(crate) mod coredns;
pub(crate) mod kube_proxy;
pub(crate) mod kubelet;

use crate::component::Settings;
use crate::files::{self, FileError};

/// The domain of all names in the cluster.
const CLUSTER_DOMAIN: &str = "cluster.local";

/// The image of every pod's sandbox container.
pub(crate) const PAUSE_IMAGE: &str = "flux-operator.test/pause:1";

/// An image with a shell, for tests.
pub const BUSYBOX_IMAGE: &str = "flux-operator.test/busybox:1";

/// Writes the configuration files of all components of the node.
pub(crate) fn configure(settings: &Settings) -> Result<(), FileError> {
    files::create_directory(&settings.home.join("cni"))?;
    let files = [
        ("containerd.toml", containerd::configuration(settings)),
        ("cni/testbed.conflist", containerd::network(settings).to_string()),
        ("kubelet.json", kubelet::configuration(settings).to_string()),
        ("kube-proxy.json", kube_proxy::configuration(settings).to_string()),
        ("Corefile", coredns::configuration(settings)),
        // For pods that do not use the cluster's DNS: nothing from the machine.
        ("resolv.conf", String::new()),
    ];
    for (file, content) in files {
        files::write(&settings.home.join(file), content)?;
    }
    Ok(())
}
