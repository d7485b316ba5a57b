//! CoreDNS, bound to the node's address.
//!
//! Cache times are those of a usual cluster: a missing name is cached for 30 seconds. Code that
//! waits for a name must be tested with that.

use crate::component::{Component, ComponentNetwork, ExitPolicy, Probe, Settings};
use crate::node::CLUSTER_DOMAIN;

const READY_PORT: u16 = 8181;

pub(crate) fn component(settings: &Settings) -> Component {
    Component {
        name: "coredns",
        program: "coredns",
        arguments: vec!["-conf".to_owned(), settings.home.join("Corefile").display().to_string()],
        network: ComponentNetwork::Node,
        exit_policy: ExitPolicy::Restart,
        ready: vec![Probe::Http(settings.on_node(READY_PORT), "/ready")],
    }
}

/// The Corefile.
pub(crate) fn configuration(settings: &Settings) -> String {
    let node = settings.slot.node_address();
    let kubeconfig = settings.home.kubeconfig_of("coredns");
    let kubeconfig = kubeconfig.display();
    format!(
        r#".:53 {{
    bind {node}
    ready {node}:{READY_PORT}
    errors
    cache 30
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig "{kubeconfig}"
        pods insecure
        ttl 30
    }}
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::tests::settings;
    use crate::state::Level;

    #[test]
    fn the_corefile_has_the_times_of_a_usual_cluster() {
        let text = configuration(&settings(Level::Node));
        assert!(text.contains("    bind 10.213.3.2\n"));
        assert!(text.contains("    cache 30\n"));
        assert!(text.contains("        ttl 30\n"));
        assert!(text.contains("\"/base/default/pki/coredns.kubeconfig\""));
    }
}
