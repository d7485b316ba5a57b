//! The kubelet.

use serde_json::{Value, json};

use crate::component::{Component, ComponentNetwork, ExitPolicy, Probe, Settings, flag, path_flag};
use crate::node::CLUSTER_DOMAIN;

const HEALTH_PORT: u16 = 10248;

pub(crate) fn component(settings: &Settings) -> Component {
    let name = settings.slot.node_name();
    Component {
        name: "kubelet",
        program: "kubelet",
        arguments: vec![
            path_flag("config", &settings.home.join("kubelet.json")),
            path_flag("kubeconfig", &settings.home.kubeconfig_of("kubelet")),
            flag("hostname-override", &name),
            flag("node-ip", settings.slot.node_address()),
        ],
        network: ComponentNetwork::Node,
        exit_policy: ExitPolicy::Restart,
        // The kubelet itself is checked too: a node is considered ready for most of a minute after
        // its kubelet has exited.
        ready: vec![Probe::Http(settings.on_node(HEALTH_PORT), "/healthz"), Probe::NodeReady(name)],
    }
}

/// The kubelet's configuration, as JSON.
pub(crate) fn configuration(settings: &Settings) -> Value {
    let node = settings.slot.node_address();
    let pki = |file| settings.home.pki(file);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", settings.runtime_socket().display()),
        "address": node,
        "healthzBindAddress": node,
        "healthzPort": HEALTH_PORT,
        "tlsCertFile": pki("kubelet-server.crt"),
        "tlsPrivateKeyFile": pki("kubelet-server.key"),
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": pki("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "clusterDNS": [node],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": settings.home.join("resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", settings.slot.cgroup()),
        "failCgroupV1": false,
        "failSwapOn": false,
        // The machine is shared and often nearly full; a test must not fail because of that.
        "evictionHard": {
            "memory.available": "10Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "oomScoreAdj": 0,
        "maxPods": 250,
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "rotateCertificates": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::tests::settings;
    use crate::state::Level;

    #[test]
    fn the_kubelet_accepts_this_kernel_and_uses_its_cgroup() {
        let configuration = configuration(&settings(Level::Node));
        assert_eq!(configuration["failCgroupV1"], false);
        assert_eq!(configuration["cgroupRoot"], "/flux-testbed-3");
        assert_eq!(configuration["clusterDNS"][0], "10.213.3.2");
        assert_eq!(
            configuration["containerRuntimeEndpoint"],
            "unix:///run/flux-operator-testbed/3/containerd.sock"
        );
    }

    #[test]
    fn the_node_has_the_name_of_the_slot() {
        let component = component(&settings(Level::Node));
        assert!(component.arguments.contains(&"--hostname-override=node-3".to_owned()));
        assert!(component.ready.contains(&Probe::NodeReady("node-3".to_owned())));
    }
}
