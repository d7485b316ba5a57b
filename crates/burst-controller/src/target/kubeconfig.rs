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
use k8s_openapi::api::core::v1::Secret;
use kube::config::{
    AuthInfo, Cluster, ExecInteractiveMode, KubeConfigOptions, Kubeconfig, KubeconfigError,
    NamedContext,
};
use kube::{Client, Config, ResourceExt};
use sha2::{Digest, Sha256};

use crate::errors::{chain, target_failure};
use crate::home::Home;

/// The key of a Secret that has a kubeconfig.
const DEFAULT_KEY: &str = "kubeconfig";

/// The largest kubeconfig. A usual one has some 6 KB.
const MAX_BYTES: usize = 64 * 1024;

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
    made.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
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
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| problem_of(&error))?;
    (config.auth_info.exec, config.auth_info.auth_provider) = (None, None);
    Client::try_from(config).map_err(|error| chain(&error))?;
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
        KubeconfigError::ParseClusterUrl(_) => "the server of its cluster is not a URL".to_owned(),
        other => chain(other),
    }
}

async fn connect_within(text: &str, limits: RequestLimits) -> Result<Connected, TargetFailure> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| refused(&problem_of(&error)))?;
    check(&kubeconfig)?;
    connected(config_of(kubeconfig, &KubeConfigOptions::default()).await?, limits)
}

async fn config_of(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<Config, TargetFailure> {
    let config = Config::from_custom_kubeconfig(kubeconfig, options).await;
    let mut config = config.map_err(|error| refused(&problem_of(&error)))?;
    // A small answer could become a large one.
    config.disable_compression = true;
    Ok(config)
}

fn connected(config: Config, limits: RequestLimits) -> Result<Connected, TargetFailure> {
    let (namespace, server) = (config.default_namespace.clone(), config.cluster_url.to_string());
    let client = Client::try_from(config);
    let client = client.map_err(|error| target_failure("use the kubeconfig", &error))?;
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
        let connected = connect(&kubeconfig("token: t", "")).await.unwrap();
        assert_eq!(connected.namespace, "there");
        let other = connect(&kubeconfig_for("https://127.0.0.1:2", "token: t", "")).await.unwrap();
        assert_ne!(connected.place(), other.place());
        connect(&kubeconfig_for("http://127.0.0.1:1", "token: t", "")).await.unwrap();
    }

    #[tokio::test]
    async fn clients_of_a_namespace_are_kept_whatever_others_have() {
        let connected = connect(&kubeconfig("token: t", "")).await.unwrap();
        let mut clients = ByNamespace::default();
        clients.insert("one", 0, &connected);
        let total = |clients: &ByNamespace<_>| clients.0.values().map(HashMap::len).sum::<usize>();
        for namespace in ["a", "b", "c", "d", "e"] {
            for key in 0..MAX_CLIENTS {
                clients.insert(namespace, key, &connected);
                assert!(total(&clients) <= MAX_CLIENTS);
            }
        }
        assert!(clients.get("one", &0).is_some());
    }

    /// A text of some KB must not become gigabytes.
    #[tokio::test]
    async fn a_kubeconfig_that_repeats_its_parts_is_refused() {
        let with_levels = |count: usize| {
            let levels = (1..=count).map(|level| {
                let parts = vec![format!("*a{}", level.saturating_sub(1)); 10].join(", ");
                format!("- name: e{level}\n  extension: &a{level} [{parts}]\n")
            });
            let first = "extensions:\n- name: e0\n  extension: &a0 [x, x, x]\n";
            format!("{}{first}{}", kubeconfig("token: t", ""), levels.collect::<String>())
        };
        connect(&with_levels(1)).await.unwrap();
        let failure = connect(&with_levels(11)).await.err().unwrap();
        assert_eq!(failure.reason, Reason::KubeconfigRefused);
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
        for server in ["http://10.0.0.1:80", "http://127.0.0.1:80@10.0.0.1", "ftp://127.0.0.1"] {
            let plain = kubeconfig_for(server, "token: t", "");
            let failure = connect(&plain).await.err().unwrap();
            assert!(failure.message.contains("refused: server would"), "{server}: {failure}");
        }
        let failure = connect("token: very-secret").await.err().unwrap();
        assert!(!failure.message.contains("very-secret"), "{failure}");
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_used_says_why_by_its_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let check = async |text: &str| {
            std::fs::write(&path, text).unwrap();
            check_file(&path).await
        };
        let good = kubeconfig("token: t", "");
        assert_eq!(check(&good).await.unwrap().as_deref(), Some("c"));
        // It is not run yet.
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /no/such}";
        check(&kubeconfig(exec, "")).await.unwrap();
        let secret = "users: [{name: {token: very-secret}}]\n";
        for (text, problem) in [
            ("", "it has no current-context"),
            (secret, "it is not a kubeconfig: see line 1"),
            (&good.replace("current-context: c\n", ""), "it has no current-context"),
            (&good.replace("current-context: c", "current-context: d"), "contexts has no \"d\""),
            (&good.replace("cluster: k,", "cluster: other,"), "clusters has no \"other\""),
            (&good.replace("user: u,", "user: other,"), "users has no \"other\""),
            (&good.replace("server:", "address:"), "its cluster has no server"),
            (&good.replace("https://127.0.0.1:1", "a b"), "is not a URL"),
            (&kubeconfig("token: t", ", certificate-authority: no-such-file"), "no-such-file"),
            (&kubeconfig("client-certificate-data: '*', client-key-data: '*'", ""), "certificate"),
        ] {
            let found = check(text).await.unwrap_err();
            assert!(found.contains(problem) && !found.contains("very-secret"), "{found}");
        }
    }
}
