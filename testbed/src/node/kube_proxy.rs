//! kube-proxy: translates Service addresses with iptables in the node's network namespace.

use serde_json::{Value, json};

use crate::component::{Component, ComponentNetwork, ExitPolicy, Probe, Settings, path_flag};

const HEALTH_PORT: u16 = 10256;

pub(crate) fn component(settings: &Settings) -> Component {
    Component {
        name: "kube-proxy",
        program: "kube-proxy",
        arguments: vec![path_flag("config", &settings.home.join("kube-proxy.json"))],
        network: ComponentNetwork::Node,
        exit_policy: ExitPolicy::Restart,
        ready: vec![Probe::Http(settings.on_node(HEALTH_PORT), "/livez")],
    }
}

/// kube-proxy's configuration, as JSON.
pub(crate) fn configuration(settings: &Settings) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": { "kubeconfig": settings.home.kubeconfig_of("kube-proxy") },
        "clusterCIDR": settings.slot.pod_network(),
        "hostnameOverride": settings.slot.node_name(),
        "healthzBindAddress": settings.on_node(HEALTH_PORT),
        "metricsBindAddress": "127.0.0.1:10249",
        // These limits belong to the machine, not to the namespace: zero leaves them unchanged.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "oomScoreAdj": 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::tests::settings;
    use crate::state::Level;

    #[test]
    fn the_machines_connection_limits_are_unchanged() {
        let configuration = configuration(&settings(Level::Node));
        assert_eq!(configuration["conntrack"]["maxPerCore"], 0);
        assert_eq!(configuration["clusterCIDR"], "10.214.48.0/20");
        assert_eq!(configuration["healthzBindAddress"], "10.213.3.2:10256");
    }
}
