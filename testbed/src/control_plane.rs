//! etcd, the API server, the controllers and the scheduler.
//!
//! Options are the defaults of a usual cluster except for what one machine needs: own ports, own
//! keys, no leader election, no waiting for the disk.

use std::path::Path;

use serde_json::json;

use crate::component::{Component, ComponentNetwork, ExitPolicy, Probe, Settings, flag, path_flag};
use crate::files::{self, FileError};
use crate::pki::FRONT_PROXY;
use crate::slot::Port;
use crate::state::Level;

/// The issuer of service account tokens: the name by which pods reach the API server.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

pub(crate) fn etcd(settings: &Settings) -> Component {
    let pki = |file| settings.home.pki(file);
    let https = |port| format!("https://{}", settings.slot.loopback(port));
    let health = settings.slot.loopback(Port::EtcdHealth);
    Component {
        name: "etcd",
        program: "etcd",
        arguments: vec![
            path_flag("data-dir", &settings.home.join("etcd")),
            flag("name", "testbed"),
            flag("initial-cluster", format!("testbed={}", https(Port::EtcdPeer))),
            flag("initial-advertise-peer-urls", https(Port::EtcdPeer)),
            flag("listen-peer-urls", https(Port::EtcdPeer)),
            flag("listen-client-urls", https(Port::EtcdClient)),
            flag("advertise-client-urls", https(Port::EtcdClient)),
            flag("listen-metrics-urls", format!("http://{health}")),
            path_flag("cert-file", &pki("etcd.crt")),
            path_flag("key-file", &pki("etcd.key")),
            path_flag("trusted-ca-file", &pki("ca.crt")),
            "--client-cert-auth".to_owned(),
            path_flag("peer-cert-file", &pki("etcd.crt")),
            path_flag("peer-key-file", &pki("etcd.key")),
            path_flag("peer-trusted-ca-file", &pki("ca.crt")),
            "--peer-client-cert-auth".to_owned(),
            // Nothing in it outlives the testbed, so nothing has to be written to disk.
            "--unsafe-no-fsync".to_owned(),
            flag("log-level", "warn"),
        ],
        network: ComponentNetwork::Host,
        exit_policy: ExitPolicy::StopAll,
        ready: vec![Probe::Http(health, "/health")],
    }
}

pub(crate) fn api_server(settings: &Settings) -> Component {
    let pki = |file| settings.home.pki(file);
    let address = settings.api_server();
    let mut arguments = vec![
        flag("bind-address", address.ip()),
        flag("secure-port", address.port()),
        flag("advertise-address", address.ip()),
        flag("etcd-servers", format!("https://{}", settings.slot.loopback(Port::EtcdClient))),
        path_flag("etcd-cafile", &pki("ca.crt")),
        path_flag("etcd-certfile", &pki("apiserver-etcd-client.crt")),
        path_flag("etcd-keyfile", &pki("apiserver-etcd-client.key")),
        flag("service-cluster-ip-range", settings.slot.service_network()),
        flag("authorization-mode", "Node,RBAC"),
        flag("enable-admission-plugins", "NodeRestriction"),
        flag("allow-privileged", true),
        path_flag("client-ca-file", &pki("ca.crt")),
        path_flag("tls-cert-file", &pki("apiserver.crt")),
        path_flag("tls-private-key-file", &pki("apiserver.key")),
        path_flag("kubelet-certificate-authority", &pki("ca.crt")),
        path_flag("kubelet-client-certificate", &pki("apiserver-kubelet-client.crt")),
        path_flag("kubelet-client-key", &pki("apiserver-kubelet-client.key")),
        // For aggregated API servers.
        path_flag("requestheader-client-ca-file", &pki("ca.crt")),
        flag("requestheader-allowed-names", FRONT_PROXY),
        flag("requestheader-username-headers", "X-Remote-User"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        path_flag("proxy-client-cert-file", &pki("front-proxy.crt")),
        path_flag("proxy-client-key-file", &pki("front-proxy.key")),
        // Otherwise the node's name is resolved by the machine's DNS.
        flag("kubelet-preferred-address-types", "InternalIP"),
        flag("service-account-issuer", ISSUER),
        path_flag("service-account-key-file", &pki("service-accounts.pub")),
        path_flag("service-account-signing-key-file", &pki("service-accounts.key")),
        // The Service `kubernetes` cannot point to a loopback address; without a node it is not
        // used.
        flag(
            "endpoint-reconciler-type",
            match settings.wanted.level {
                Level::ApiServer | Level::ControlPlane => "none",
                Level::Node => "lease",
            },
        ),
    ];
    if settings.wanted.audit {
        arguments.push(path_flag("audit-policy-file", &settings.home.join("audit-policy.json")));
        arguments.push(path_flag("audit-log-path", &settings.home.log("audit")));
    }
    Component {
        name: "kube-apiserver",
        program: "kube-apiserver",
        arguments,
        network: ComponentNetwork::Host,
        exit_policy: ExitPolicy::StopAll,
        ready: vec![Probe::Tcp(address), Probe::Api("/readyz".to_owned())],
    }
}

/// Writes the files that [`api_server`] reads, except keys.
pub(crate) fn configure(settings: &Settings) -> Result<(), FileError> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        // One line per request, written when it is complete.
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata" }],
    });
    files::write(&settings.home.join("audit-policy.json"), policy.to_string())
}

pub(crate) fn controller_manager(settings: &Settings) -> Component {
    let pki = |file| settings.home.pki(file);
    let mut arguments = client_flags(settings, "kube-controller-manager", Port::ControllerManager);
    arguments.extend([
        // With a separate account for each of the roughly fifty controllers, the usual limit of 20
        // requests per second makes the start 4 s longer. The limit itself is kept: it is what
        // makes large Jobs slow on a usual cluster.
        flag("use-service-account-credentials", false),
        path_flag("service-account-private-key-file", &pki("service-accounts.key")),
        path_flag("root-ca-file", &pki("ca.crt")),
        path_flag("cluster-signing-cert-file", &pki("ca.crt")),
        path_flag("cluster-signing-key-file", &pki("ca.key")),
        flag("allocate-node-cidrs", false),
    ]);
    Component {
        name: "kube-controller-manager",
        program: "kube-controller-manager",
        arguments,
        network: ComponentNetwork::Host,
        exit_policy: ExitPolicy::Restart,
        // No pod can be created in a namespace before this account exists, and only the controllers
        // create it.
        ready: vec![
            Probe::Tcp(settings.slot.loopback(Port::ControllerManager)),
            Probe::Api("/api/v1/namespaces/default/serviceaccounts/default".to_owned()),
        ],
    }
}

pub(crate) fn scheduler(settings: &Settings) -> Component {
    Component {
        name: "kube-scheduler",
        program: "kube-scheduler",
        arguments: client_flags(settings, "kube-scheduler", Port::Scheduler),
        network: ComponentNetwork::Host,
        exit_policy: ExitPolicy::Restart,
        ready: vec![Probe::Tcp(settings.slot.loopback(Port::Scheduler))],
    }
}

fn client_flags(settings: &Settings, component: &str, port: Port) -> Vec<String> {
    let kubeconfig = settings.home.kubeconfig_of(component);
    let kubeconfig: &Path = &kubeconfig;
    let address = settings.slot.loopback(port);
    vec![
        path_flag("kubeconfig", kubeconfig),
        path_flag("authentication-kubeconfig", kubeconfig),
        path_flag("authorization-kubeconfig", kubeconfig),
        flag("bind-address", address.ip()),
        flag("secure-port", address.port()),
        // There is only one of each; leader election would only delay the start.
        flag("leader-elect", false),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::tests::settings;

    #[test]
    fn only_a_node_makes_the_service_kubernetes_useful() {
        let arguments = |level| api_server(&settings(level)).arguments;
        assert!(arguments(Level::ControlPlane).contains(&"--endpoint-reconciler-type=none".into()));
        assert!(arguments(Level::Node).contains(&"--endpoint-reconciler-type=lease".into()));
        assert!(arguments(Level::Node).contains(&"--advertise-address=10.213.3.1".into()));
    }

    #[test]
    fn the_audit_log_is_written_if_requested() {
        let mut settings = settings(Level::ControlPlane);
        let is_audit = |argument: &String| argument.starts_with("--audit");
        assert!(!api_server(&settings).arguments.iter().any(is_audit));
        settings.wanted.audit = true;
        let arguments = api_server(&settings).arguments;
        assert!(arguments.contains(&"--audit-log-path=/base/default/log/audit.log".to_owned()));
    }

    #[test]
    fn etcd_serves_only_clients_with_a_certificate() {
        let arguments = etcd(&settings(Level::ControlPlane)).arguments;
        assert!(arguments.contains(&"--client-cert-auth".to_owned()));
        assert!(arguments.contains(&"--listen-client-urls=https://127.0.0.1:20301".to_owned()));
    }
}
