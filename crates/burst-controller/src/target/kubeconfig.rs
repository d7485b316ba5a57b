//! Clients for other Kubernetes clusters, from kubeconfigs in Secrets.
//!
//! A kubeconfig can name programs to run and files to read. They would be run and read by the
//! controller, with its rights, so such a kubeconfig is refused.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use flux_operator_api::burst::KubeconfigTarget;
use flux_operator_api::{Burst, Reason};
use flux_operator_plan::bursting::TargetFailure;
use flux_operator_service::api_client::{RequestLimits, limited};
use flux_operator_service::lock::lock;
use http::HeaderValue;
use k8s_openapi::api::core::v1::Secret;
use kube::client::RustlsTlsError;
use kube::config::{
    AuthInfo, Cluster, ExecInteractiveMode, KubeConfigOptions, Kubeconfig, KubeconfigError,
    NamedContext,
};
use kube::{Client, Config, ResourceExt};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::errors::{chain, cut, target_failure};
use crate::home::Home;

/// The key of a Secret that has a kubeconfig.
const DEFAULT_KEY: &str = "kubeconfig";

/// The largest kubeconfig. A usual one has some 6 KB.
const MAX_BYTES: usize = 64 * 1024;

/// The longest address of a server. The client library panics if one of a request is longer than 64 KiB.
const MAX_SERVER: usize = 2048;

/// A target is not ours: it may answer slowly, and with anything. The largest answers that are needed are
/// 50 pods, of 6 to 20 KB each. Up to 32 targets are asked at the same time.
const TARGET_LIMITS: RequestLimits =
    RequestLimits { timeout: Duration::from_secs(8), response_bytes: 1024 * 1024 };

/// The same for a user, who asks one target for everything that is there.
const USER_LIMITS: RequestLimits =
    RequestLimits { response_bytes: 64 * 1024 * 1024, ..TARGET_LIMITS };

/// How long a program of a user's own kubeconfig may take.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest number of clients that are kept, of one namespace and in total.
const MAX_CLIENTS_OF_NAMESPACE: usize = 64;
const MAX_CLIENTS: usize = 256;

/// Clients by the content of their kubeconfig, so that a connection is used more than once.
#[derive(Default)]
pub(crate) struct Clients {
    by_content: Mutex<ByNamespace<[u8; 32]>>,
    /// What each Secret contained last. With that a Burst is given back if the Secret is deleted first,
    /// as with its whole namespace.
    last: Mutex<ByNamespace<KubeconfigTarget>>,
}

/// Clients of each namespace. Those of one are not forgotten for many of another.
struct ByNamespace<K>(HashMap<String, HashMap<K, Connected>>);

impl<K> Default for ByNamespace<K> {
    fn default() -> Self {
        ByNamespace(HashMap::new())
    }
}

impl<K: Eq + Hash> ByNamespace<K> {
    fn get(&self, namespace: &str, key: &K) -> Option<Connected> {
        self.0.get(namespace)?.get(key).cloned()
    }

    /// Keeps a client. They are few; if there are too many, those of the namespace that has most are
    /// made again.
    fn insert(&mut self, namespace: &str, key: K, connected: &Connected) {
        let own = self.0.entry(namespace.to_owned()).or_default();
        if own.len() >= MAX_CLIENTS_OF_NAMESPACE {
            own.clear();
        }
        own.insert(key, connected.clone());
        if self.0.values().map(HashMap::len).sum::<usize>() > MAX_CLIENTS {
            let most = self.0.iter().max_by_key(|(_, clients)| clients.len());
            let most = most.map(|(namespace, _)| namespace.clone());
            most.and_then(|namespace| self.0.remove(&namespace));
        }
    }
}

/// A client for another Kubernetes cluster.
#[derive(Clone)]
pub struct Connected {
    /// The client.
    pub client: Client,
    /// The namespace of the kubeconfig's context.
    pub namespace: String,
    /// The server's address.
    server: String,
}

impl Connected {
    /// A hash of the server and the namespace.
    pub(crate) fn place(&self) -> String {
        let digest = Sha256::digest(format!("{}\n{}", self.server, self.namespace).as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Clients {
    /// The client of a target, with the namespace there. For a Burst that is given back, the last one
    /// is good enough.
    pub(crate) async fn of(
        &self,
        home: &Home,
        burst: &Burst,
        target: &KubeconfigTarget,
    ) -> Result<Connected, TargetFailure> {
        let namespace = burst.namespace().unwrap_or_default();
        let text = match read(home, &namespace, target).await {
            Ok(text) => text,
            Err(failure) => {
                let is_deleting = burst.metadata.deletion_timestamp.is_some();
                let last = lock(&self.last).get(&namespace, target).filter(|_| is_deleting);
                return last.ok_or(failure);
            }
        };
        let mut connected = self.connected(&namespace, &text).await?;
        if !target.namespace.is_empty() {
            connected.namespace.clone_from(&target.namespace);
        }
        lock(&self.last).insert(&namespace, target.clone(), &connected);
        Ok(connected)
    }

    async fn connected(&self, namespace: &str, text: &str) -> Result<Connected, TargetFailure> {
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let known = lock(&self.by_content).get(namespace, &hash);
        match known {
            Some(known) => Ok(known),
            None => {
                let made = connect_within(text, TARGET_LIMITS).await?;
                lock(&self.by_content).insert(namespace, hash, &made);
                Ok(made)
            }
        }
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
    // It may quote the kubeconfig.
    let why = cut(why);
    TargetFailure::new(Reason::KubeconfigRefused, format!("the kubeconfig is refused: {why}"))
}

/// A client for the cluster of a kubeconfig, and the namespace of its context. A kubeconfig that
/// would run a program or read a file is refused, because others may have written it.
pub async fn connect(text: &str) -> Result<Connected, TargetFailure> {
    connect_within(text, USER_LIMITS).await
}

/// A client for a context of a kubeconfig of the user who runs this program. It may run programs and read
/// files, as with kubectl, but no program may ask the user anything.
pub(crate) async fn connect_with_file(
    path: &Path,
    context: Option<String>,
) -> Result<Connected, TargetFailure> {
    let mut kubeconfig =
        Kubeconfig::read_from(path).map_err(|error| refused(&problem_of(&error)))?;
    let users = kubeconfig.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut());
    for exec in users.filter_map(|user| user.exec.as_mut()) {
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
    let config =
        config_of(kubeconfig, &KubeConfigOptions { context, ..Default::default() }).await?;
    // A program of the kubeconfig is waited for here.
    let made = tokio::task::spawn_blocking(move || connected(config, TARGET_LIMITS));
    let slow = || refused("its program does not finish");
    let made = tokio::time::timeout(PROGRAM_TIMEOUT, made).await.map_err(|_elapsed| slow())?;
    // The client library panics about a token that cannot be a header.
    let odd = || refused("its program does not give a token that can be used");
    made.unwrap_or_else(|_panic| Err(odd()))
}

/// Checks the file of [`connect_with_file`], without running a program of it. Returns its current
/// context, or what is wrong with it.
pub(crate) async fn check_file(path: &Path) -> Result<Option<String>, String> {
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| problem_of(&error))?;
    let context = kubeconfig.current_context.clone();
    let is_current = |it: &&NamedContext| Some(&it.name) == context.as_ref();
    let current = kubeconfig.contexts.iter().find(is_current).and_then(|it| it.context.as_ref());
    let user = current.and_then(|it| it.user.clone()).unwrap_or_default();
    // It would be anonymous.
    if !user.is_empty() && !kubeconfig.auth_infos.iter().any(|it| it.name == user) {
        return Err(format!("users has no {user:?}, which the current context names"));
    }
    let mut config = checked_config(kubeconfig, &KubeConfigOptions::default()).await?;
    (config.auth_info.exec, config.auth_info.auth_provider) = (None, None);
    Client::try_from(config).map_err(|error| problem_of_client(&error))?;
    Ok(context)
}

/// What is wrong with a kubeconfig, by the name of its field. The parser's message may contain a part of
/// the text, so only the place is said.
fn problem_of(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => {
            let place = error.location().map(|it| format!(": see line {}", it.line()));
            format!("it is not a kubeconfig{}", place.unwrap_or_default())
        }
        KubeconfigError::CurrentContextNotSet => "it has no current-context".to_owned(),
        KubeconfigError::LoadContext(name) => {
            format!("contexts has no {name:?}, which is the current-context")
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("clusters has no {name:?}, which the current context names")
        }
        KubeconfigError::MissingClusterUrl => "its cluster has no server".to_owned(),
        KubeconfigError::ParseClusterUrl(_) => NOT_A_URL.to_owned(),
        KubeconfigError::ParseCertificates(_) => {
            "certificate-authority-data of its cluster is not PEM".to_owned()
        }
        other => chain(other),
    }
}

/// Why there can be no client, by the name of a field. The library's message may quote a key.
fn problem_of_client(error: &kube::Error) -> String {
    let problem = match error {
        kube::Error::InferKubeconfig(error) => return problem_of(error),
        kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(_)) => {
            "tls-server-name of its cluster is not the name of a host"
        }
        kube::Error::RustlsTls(
            RustlsTlsError::AddRootCertificate(_) | RustlsTlsError::NoValidNativeRootCA(_),
        ) => "certificate-authority-data of its cluster is missing, or is not a certificate",
        kube::Error::RustlsTls(_) => {
            "client-certificate-data and client-key-data of its user are not a certificate and its \
             key as PEM"
        }
        kube::Error::Auth(_) => "its program or token file gives no credentials",
        kube::Error::ProxyProtocolDisabled { .. }
        | kube::Error::ProxyProtocolUnsupported { .. } => {
            "it would be used through a proxy, by its proxy-url or by HTTPS_PROXY, which is not \
             supported"
        }
        _ => "no request can be made with what it contains",
    };
    problem.to_owned()
}

const NOT_A_URL: &str = "the server of its cluster is not a URL such as https://host:6443";

async fn connect_within(text: &str, limits: RequestLimits) -> Result<Connected, TargetFailure> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| refused(&problem_of(&error)))?;
    check(&kubeconfig)?;
    connected(config_of(kubeconfig, &KubeConfigOptions::default()).await?, limits)
}

async fn config_of(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<Config, TargetFailure> {
    checked_config(kubeconfig, options).await.map_err(|problem| refused(&problem))
}

/// The configuration of a client, with which the client library does not panic. The error is what is wrong.
async fn checked_config(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<Config, String> {
    let config = Config::from_custom_kubeconfig(kubeconfig, options).await;
    let mut config = config.map_err(|error| problem_of(&error))?;
    // A small answer could become a large one.
    config.disable_compression = true;
    let server = &config.cluster_url;
    let has_scheme = matches!(server.scheme_str(), Some("http" | "https"));
    if !has_scheme || server.host().is_none() || server.to_string().len() > MAX_SERVER {
        return Err(NOT_A_URL.to_owned());
    }
    // Every server would be refused, as if it did not respond.
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        return Err("certificate-authority-data of its cluster has no certificate".to_owned());
    }
    if config.default_namespace.is_empty() {
        "default".clone_into(&mut config.default_namespace);
    }
    if !is_namespace(&config.default_namespace) {
        let namespace = &config.default_namespace;
        return Err(format!("its context names {namespace:?}, which no namespace can be called"));
    }
    match field_that_is_no_header(&config.auth_info) {
        Some(field) => Err(format!(
            "{field} of its user has characters that a header cannot have, such as a line break"
        )),
        None => Ok(config),
    }
}

fn is_namespace(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_edge = name.starts_with('-') || name.ends_with('-');
    (1..=63).contains(&name.len()) && name.bytes().all(is_allowed) && !is_edge
}

/// The first field of a user that is sent as a header and cannot be one.
fn field_that_is_no_header(user: &AuthInfo) -> Option<&'static str> {
    // The library gives its secrets to whoever serializes them.
    let fields = serde_json::to_value(user).unwrap_or_default();
    let sent = ["token", "as", "as-uid", "as-groups", "as-user-extra"];
    sent.into_iter().find(|field| !can_be_header(&fields[field]))
}

fn can_be_header(value: &Value) -> bool {
    match value {
        Value::String(text) => HeaderValue::from_str(text).is_ok(),
        Value::Array(all) => all.iter().all(can_be_header),
        Value::Object(fields) => fields.values().all(can_be_header),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn connected(config: Config, limits: RequestLimits) -> Result<Connected, TargetFailure> {
    let (namespace, server) = (config.default_namespace.clone(), config.cluster_url.to_string());
    let client = Client::try_from(config);
    let client = client.map_err(|error| refused(&problem_of_client(&error)))?;
    Ok(Connected { client: limited(client, limits), namespace, server })
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
    let Ok(uri) = server.parse::<http::Uri>() else { return true };
    let is_local = matches!(uri.host(), Some("127.0.0.1" | "localhost" | "[::1]"));
    match uri.scheme_str() {
        Some("https") => false,
        Some("http") => !is_local,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
