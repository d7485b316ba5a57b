//! The container runtime and the pods' network.

use serde_json::{Value, json};

use crate::component::{Component, ComponentNetwork, ExitPolicy, Probe, Settings, path_flag};
use crate::node::PAUSE_IMAGE;
use crate::prerequisites::CNI_PLUGINS;

pub(crate) fn component(settings: &Settings) -> Component {
    Component {
        name: "containerd",
        program: "containerd",
        arguments: vec![path_flag("config", &settings.home.join("containerd.toml"))],
        network: ComponentNetwork::Node,
        exit_policy: ExitPolicy::StopAll,
        ready: vec![Probe::Socket(settings.runtime_socket())],
    }
}

/// containerd's configuration, version 3.
pub(crate) fn configuration(settings: &Settings) -> String {
    let content = json!({
        "version": 3,
        "root": "/var/lib/containerd",
        "state": "/run/containerd",
        "grpc": { "address": settings.runtime_socket() },
        "plugins": {
            "io.containerd.cri.v1.images": {
                "pinned_images": { "sandbox": PAUSE_IMAGE },
            },
            "io.containerd.cri.v1.runtime": {
                // Without CAP_SYS_RESOURCE, runc cannot lower the score and fails.
                "restrict_oom_score_adj": true,
                "disable_apparmor": true,
                "cni": {
                    "bin_dirs": [CNI_PLUGINS],
                    "conf_dir": settings.home.join("cni"),
                },
                "containerd": { "runtimes": { "runc": {
                    "runtime_type": "io.containerd.runc.v2",
                    "options": { "SystemdCgroup": false },
                }}},
            },
            "io.containerd.internal.v1.opt": { "path": "/var/lib/containerd/opt" },
            "io.containerd.nri.v1.nri": { "disable": true },
        },
    });
    toml::to_string(&content).expect("the configuration has no null and no large number")
}

/// The pods' network: each pod has its own link to the node, which routes.
///
/// `ptp` instead of `bridge`: between two pods on a bridge, the reply to a translated Service
/// address bypasses the address translation, unless the kernel filters bridged packets.
pub(crate) fn network(settings: &Settings) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "testbed",
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": settings.slot.pod_network() }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                    "dataDir": "/run/cni",
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::tests::settings;
    use crate::state::Level;

    #[test]
    fn the_configuration_is_toml_with_the_testbeds_own_socket_and_image() {
        let text = configuration(&settings(Level::Node));
        assert!(text.starts_with("version = 3\n") || text.contains("\nversion = 3\n"), "{text}");
        assert!(text.contains(r#"address = "/run/flux-operator-testbed/3/containerd.sock""#));
        assert!(text.contains(r#"sandbox = "flux-operator.test/pause:1""#));
        assert!(text.contains(
            r#"[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]"#
        ));
    }

    #[test]
    fn pods_get_addresses_of_the_slot() {
        let network = network(&settings(Level::Node));
        assert_eq!(network["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.214.48.0/20");
    }
}
