//! A connection to the API server, and errors with hints for the user.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use flux_operator_api::{GROUP, MiniCluster, VERSION};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};

use super::Connection;
use crate::connection;

/// The cluster and namespace in which commands act.
pub(super) struct Session {
    pub(super) client: Client,
    /// The namespace.
    pub(super) namespace: String,
    /// Whether the user named the namespace; otherwise it is the context's.
    is_explicit: bool,
    /// Options of the user that select the cluster, as suggested commands need them.
    cluster_options: String,
}

impl Session {
    /// Connects as kubectl would.
    pub(super) async fn open(connection: &Connection) -> Result<Session> {
        let Connection { namespace, context, kubeconfig } = connection;
        let config = connection::load_config(kubeconfig.as_deref(), context.as_deref());
        // The message already contains all causes.
        let config = config.await.map_err(|error| {
            let hint = match context {
                Some(_) => "`kubectl config get-contexts` lists the contexts",
                None => "set KUBECONFIG or give --kubeconfig FILE",
            };
            anyhow!("failed to find a cluster: {error}\nhint: {hint}")
        })?;
        let is_explicit = namespace.is_some();
        let namespace = namespace.clone().unwrap_or(config.default_namespace.clone());
        let client = Client::try_from(config).context("failed to create a client")?;
        let cluster_options = cluster_options(context.as_deref(), kubeconfig.as_deref());
        Ok(Session { client, namespace, is_explicit, cluster_options })
    }

    /// Switches to the namespace of a manifest, if it has one.
    pub(super) fn use_namespace(&mut self, namespace: Option<&str>) -> Result<()> {
        let Some(namespace) = namespace else { return Ok(()) };
        if self.is_explicit && self.namespace != namespace {
            bail!(
                "the manifest is for namespace {namespace:?}, not {:?}\n\
                 hint: omit -n, or change metadata.namespace",
                self.namespace
            );
        }
        self.is_explicit |= self.namespace != namespace;
        self.namespace = namespace.into();
        Ok(())
    }

    /// The same connection for another namespace. Suggested commands name it.
    pub(super) fn in_namespace(&self, namespace: &str) -> Session {
        Session {
            client: self.client.clone(),
            namespace: namespace.to_owned(),
            is_explicit: self.is_explicit || self.namespace != namespace,
            cluster_options: self.cluster_options.clone(),
        }
    }

    /// The API of a kind in the namespace.
    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The API of a kind in all namespaces.
    pub(super) fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// The API of MiniClusters in the namespace.
    pub(super) fn miniclusters(&self) -> Api<MiniCluster> {
        self.api()
    }

    /// The API of pods in the namespace.
    pub(super) fn pods(&self) -> Api<Pod> {
        self.api()
    }

    /// A command of this plugin to suggest to the user, for the same cluster and namespace.
    pub(super) fn command(&self, words: &str) -> String {
        format!("kubectl minicluster{} {words}", self.options())
    }

    /// The remedy of a reason, for an object in the same cluster and namespace.
    pub(super) fn remedy(&self, remedy: &str, name: &str) -> String {
        let (remedy, options) = (remedy.replace("NAME", name), self.options());
        remedy
            .replace("`kubectl minicluster ", &format!("`kubectl minicluster{options} "))
            .replace("`kubectl describe ", &format!("`kubectl describe{options} "))
    }

    /// The options of kubectl that select the same cluster and namespace, each after a space.
    fn options(&self) -> String {
        match self.is_explicit {
            true => format!(" -n {}{}", self.namespace, self.cluster_options),
            false => self.cluster_options.clone(),
        }
    }

    /// Gets a MiniCluster by name. If there is none, the error suggests similar names.
    pub(super) async fn minicluster(&self, name: &str) -> Result<MiniCluster> {
        let found = self.miniclusters().get_opt(name).await;
        match found {
            Ok(Some(minicluster)) => Ok(minicluster),
            Ok(None) => Err(self.minicluster_not_found(name).await),
            Err(error) => Err(self.explain(error, &format!("failed to get {name:?}")).await),
        }
    }

    /// The error for a MiniCluster that does not exist, with similar names.
    pub(super) async fn minicluster_not_found(&self, name: &str) -> anyhow::Error {
        let listed = match self.miniclusters().list_metadata(&ListParams::default()).await {
            Ok(listed) => listed,
            Err(error) => return self.explain(error, "failed to list MiniClusters").await,
        };
        let names: Vec<String> = listed.items.iter().map(ResourceExt::name_any).collect();
        self.not_found("MiniCluster", name, &names)
    }

    /// The error for an object that does not exist, with similar names.
    pub(super) fn not_found(&self, what: &str, name: &str, names: &[String]) -> anyhow::Error {
        let namespace = &self.namespace;
        let list = self.command(list_command(what));
        let hint = suggest_names(name, names, &list);
        anyhow!("there is no {what} {name:?} in {namespace}\nhint: {hint}")
    }

    /// An error of the API server, with a hint about what to do.
    pub(super) async fn explain(&self, error: kube::Error, what: &str) -> anyhow::Error {
        let hint = match &error {
            kube::Error::Api(status) if status.code == 404 && !self.serves_our_kinds().await => {
                return anyhow!(
                    "the Kubernetes cluster lacks CRDs of MiniClusters, FluxJobs, FluxSetups, \
                     BurstPolicies or Bursts\n\
                     hint: install them with `flux-operator crd | kubectl apply -f -`"
                );
            }
            kube::Error::Api(status) => match status.code {
                401 => "log in again: the API server did not accept the kubeconfig's credentials",
                403 => "ask an administrator for the permission, or choose a namespace with -n",
                404 => "`kubectl get namespaces` lists the namespaces",
                409 => "delete it and wait until it is deleted, or choose another name",
                _ => return with_server_message(what, error),
            },
            kube::Error::Service(_) | kube::Error::HyperError(_) => {
                "check that the API server and any proxy are running: try `kubectl version`"
            }
            _ => return with_server_message(what, error),
        };
        anyhow!("{:#}\nhint: {hint}", with_server_message(what, error))
    }

    /// Discovery is allowed for every authenticated user.
    async fn serves_our_kinds(&self) -> bool {
        let group = format!("{GROUP}/{VERSION}");
        match self.client.list_api_group_resources(&group).await {
            Ok(served) => ["miniclusters", "fluxjobs", "fluxsetups", "burstpolicies", "bursts"]
                .iter()
                .all(|kind| served.resources.iter().any(|resource| resource.name == *kind)),
            Err(kube::Error::Api(status)) => status.code != 404,
            Err(_) => true,
        }
    }
}

/// The options that select a cluster, each after a space.
fn cluster_options(context: Option<&str>, kubeconfig: Option<&Path>) -> String {
    let context = context.map(|it| format!(" --context {}", shell_word(it)));
    let kubeconfig =
        kubeconfig.map(|it| format!(" --kubeconfig {}", shell_word(&it.to_string_lossy())));
    [context, kubeconfig].into_iter().flatten().collect()
}

/// A text as one word of a shell, so that the user can copy the command.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The API server's own message, without what kube adds.
fn with_server_message(what: &str, error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{what}: {}", status.message),
        error => anyhow::Error::new(error).context(what.to_owned()),
    }
}

/// The command that lists all objects of a kind.
fn list_command(what: &str) -> &'static str {
    match what {
        "Burst" => "burst list",
        "BurstPolicy" => "burst policies",
        "FluxSetup" => "queue",
        _ => "list",
    }
}

/// Suggests similar names, or the command that lists all.
fn suggest_names(name: &str, names: &[String], list: &str) -> String {
    /// The maximum number of suggestions.
    const MAX_SUGGESTIONS: usize = 3;
    // Chosen by hand: a short name with one wrong or missing letter is above it.
    const MIN_SIMILARITY: f64 = 0.75;
    let mut alike: Vec<(f64, &String)> =
        names.iter().map(|known| (strsim::jaro_winkler(name, known), known)).collect();
    alike.retain(|(likeness, _)| *likeness >= MIN_SIMILARITY);
    alike.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let quoted = |names: Vec<&String>| {
        let names: Vec<String> =
            names.into_iter().take(MAX_SUGGESTIONS).map(|n| format!("{n:?}")).collect();
        names.join(" or ")
    };
    match (names.len(), alike.is_empty()) {
        (0, _) => "there are none in this namespace; choose another namespace with -n".into(),
        (1..=MAX_SUGGESTIONS, true) => format!("there is {}", quoted(names.iter().collect())),
        (_, true) => format!("`{list}` lists all"),
        (_, false) => {
            format!("did you mean {}?", quoted(alike.into_iter().map(|(_, name)| name).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_select_the_cluster_can_be_copied_to_a_shell() {
        assert_eq!(cluster_options(None, None), "");
        let file = Path::new("/home/a b/it's.yaml");
        assert_eq!(
            cluster_options(Some("admin@home"), Some(file)),
            r" --context admin@home --kubeconfig '/home/a b/it'\''s.yaml'"
        );
    }

    #[test]
    fn similar_names_are_suggested_best_first() {
        let names = ["hello", "hello-2", "lammps", "a", "b"].map(String::from);
        let suggest = |name: &str, names: &[String]| suggest_names(name, names, "minicluster list");
        assert_eq!(suggest("hallo", &names), "did you mean \"hello\" or \"hello-2\"?");
        assert_eq!(suggest("zzz", &names), "`minicluster list` lists all");
        assert_eq!(suggest("zzz", &names[2..3]), "there is \"lammps\"");
        assert!(suggest("zzz", &[]).starts_with("there are none"));
    }
}
