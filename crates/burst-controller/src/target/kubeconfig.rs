//! Clients for other Kubernetes clusters, from kubeconfigs in Secrets.
//!
//! A kubeconfig can name programs to run and files to read. They would be run and read by the
//! controller, with its rights, so such a kubeconfig is refused.

use std::collections::HashMap;
use std::sync::Mutex;

use flux_operator_api::Reason;
use flux_operator_api::burst::KubeconfigTarget;
use flux_operator_plan::bursting::TargetFailure;
use flux_operator_service::api_client::with_timeouts;
use flux_operator_service::lock::lock;
use k8s_openapi::api::core::v1::Secret;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use sha2::{Digest, Sha256};

use crate::errors::{chain, target_failure};
use crate::home::Home;

/// The key of a Secret that has a kubeconfig.
const DEFAULT_KEY: &str = "kubeconfig";

/// The largest kubeconfig. A usual one has some 6 KB.
const MAX_BYTES: usize = 64 * 1024;

/// The largest number of clients that are kept.
const MAX_CLIENTS: usize = 256;

/// Clients by the content of their kubeconfig, so that a connection is used more than once.
#[derive(Default)]
pub(crate) struct Clients(Mutex<HashMap<[u8; 32], (Client, String)>>);

impl Clients {
    /// The client of a target, and the namespace there.
    pub(crate) async fn of(
        &self,
        home: &Home,
        namespace: &str,
        target: &KubeconfigTarget,
    ) -> Result<(Client, String), TargetFailure> {
        let text = read(home, namespace, target).await?;
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let known = lock(&self.0).get(&hash).cloned();
        let (client, default) = match known {
            Some(known) => known,
            None => {
                let made = connect(&text).await?;
                let mut clients = lock(&self.0);
                if clients.len() >= MAX_CLIENTS {
                    clients.clear();
                }
                clients.insert(hash, made.clone());
                made
            }
        };
        let there = if target.namespace.is_empty() { default } else { target.namespace.clone() };
        Ok((client, there))
    }
}

/// Reads a kubeconfig from its Secret.
async fn read(
    home: &Home,
    namespace: &str,
    target: &KubeconfigTarget,
) -> Result<String, TargetFailure> {
    let missing = |message: String| TargetFailure::new(Reason::CredentialsMissing, message);
    let name = &target.secret;
    let secret = home.api::<Secret>(namespace).get_opt(name).await;
    let secret = secret.map_err(|error| target_failure("read the Secret of the target", &error))?;
    let secret = secret.ok_or_else(|| {
        missing(format!("there is no Secret {name:?} in namespace {namespace:?}: create it"))
    })?;
    let key = if target.key.is_empty() { DEFAULT_KEY } else { &target.key };
    let value = secret.data.and_then(|mut data| data.remove(key));
    let value = value.ok_or_else(|| {
        missing(format!("the Secret {name:?} has no key {key:?}: add it, or set kubeconfig.key"))
    })?;
    String::from_utf8(value.0)
        .ok()
        .filter(|text| text.len() <= MAX_BYTES)
        .ok_or_else(|| refused("it is not text, or is too large"))
}

fn refused(why: &str) -> TargetFailure {
    TargetFailure::new(Reason::KubeconfigRefused, format!("the kubeconfig is refused: {why}"))
}

/// A client for the cluster of a kubeconfig, and the namespace of its context. A kubeconfig that
/// would run a program or read a file is refused, because others may have written it.
pub async fn connect(text: &str) -> Result<(Client, String), TargetFailure> {
    // The parser's message may contain a part of the text.
    let kubeconfig =
        Kubeconfig::from_yaml(text).map_err(|_error| refused("it is not a kubeconfig"))?;
    check(&kubeconfig)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.map_err(|error| refused(&chain(&error)))?;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|error| refused(&chain(&error)))?;
    Ok((with_timeouts(client), namespace))
}

/// Refuses whatever would run a program or read a file, by the name of its field.
fn check(kubeconfig: &Kubeconfig) -> Result<(), TargetFailure> {
    for user in kubeconfig.auth_infos.iter().filter_map(|it| it.auth_info.as_ref()) {
        if let Some(field) = forbidden_of_user(user) {
            return Err(refused(&format!(
                "{field} would run a program or read a file of the controller; use a token, or \
                 client-certificate-data and client-key-data"
            )));
        }
    }
    for cluster in kubeconfig.clusters.iter().filter_map(|it| it.cluster.as_ref()) {
        if let Some(field) = forbidden_of_cluster(cluster) {
            return Err(refused(&format!(
                "{field} would read a file of the controller, or send the token to any server; use \
                 an https server and certificate-authority-data"
            )));
        }
    }
    Ok(())
}

fn forbidden_of_user(user: &AuthInfo) -> Option<&'static str> {
    let fields = [
        ("exec", user.exec.is_some()),
        ("auth-provider", user.auth_provider.is_some()),
        ("tokenFile", user.token_file.is_some()),
        ("client-certificate", user.client_certificate.is_some()),
        ("client-key", user.client_key.is_some()),
    ];
    fields.into_iter().find(|(_, is_set)| *is_set).map(|(field, _)| field)
}

fn forbidden_of_cluster(cluster: &Cluster) -> Option<&'static str> {
    let fields = [
        ("certificate-authority", cluster.certificate_authority.is_some()),
        ("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify == Some(true)),
        ("proxy-url", cluster.proxy_url.is_some()),
        ("server", cluster.server.as_deref().is_some_and(is_in_the_clear)),
    ];
    fields.into_iter().find(|(_, is_set)| *is_set).map(|(field, _)| field)
}

/// Whether a token would be sent in the clear, and not only to this machine.
fn is_in_the_clear(server: &str) -> bool {
    let Some(host) = server.strip_prefix("http://") else {
        return !server.starts_with("https://");
    };
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    !matches!(host, "127.0.0.1" | "localhost" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str, cluster: &str) -> String {
        kubeconfig_for("https://127.0.0.1:1", user, cluster)
    }

    fn kubeconfig_for(server: &str, user: &str, cluster: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: k, user: u, namespace: there}}}}]\n\
             clusters: [{{name: k, cluster: {{server: '{server}'{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    #[tokio::test]
    async fn a_kubeconfig_with_a_token_is_accepted() {
        let (_, namespace) = connect(&kubeconfig("token: t", "")).await.unwrap();
        assert_eq!(namespace, "there");
    }

    #[tokio::test]
    async fn what_runs_programs_or_reads_files_is_refused_by_name() {
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}";
        for (user, cluster, field) in [
            (exec, "", "exec"),
            ("auth-provider: {name: gcp}", "", "auth-provider"),
            ("tokenFile: /etc/passwd", "", "tokenFile"),
            ("client-certificate: /c", "", "client-certificate"),
            ("client-key: /k", "", "client-key"),
            ("token: t", ", certificate-authority: /ca", "certificate-authority"),
            ("token: t", ", insecure-skip-tls-verify: true", "insecure-skip-tls-verify"),
            ("token: t", ", proxy-url: 'http://127.0.0.1:2'", "proxy-url"),
        ] {
            let failure = connect(&kubeconfig(user, cluster)).await.err().unwrap();
            assert_eq!(failure.reason, Reason::KubeconfigRefused, "{field}");
            assert!(failure.message.contains(&format!("refused: {field} would")), "{failure}");
        }
        let plain = kubeconfig_for("http://10.0.0.1:80", "token: t", "");
        let failure = connect(&plain).await.err().unwrap();
        assert!(failure.message.contains("refused: server would"), "{failure}");
        let failure = connect("token: very-secret").await.err().unwrap();
        assert!(!failure.message.contains("very-secret"), "{failure}");
    }
}
