//! A connection to the API server, and errors that say what to do.

use anyhow::{Context, Result, anyhow, bail};
use flux_operator_api::{GROUP, MiniCluster, VERSION};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};

use super::Connection;
use crate::connection;

/// Where commands act.
pub(super) struct Session {
    client: Client,
    /// The namespace.
    pub(super) namespace: String,
    /// The user named it; else it is the context's.
    named: bool,
}

impl Session {
    /// Connects as kubectl would.
    pub(super) async fn open(connection: &Connection) -> Result<Session> {
        // Its message holds all causes already.
        let Connection { namespace, context, kubeconfig } = connection;
        let config = connection::config(kubeconfig.as_deref(), context.as_deref());
        let config = config.await.map_err(|error| {
            let hint = match context {
                Some(_) => "`kubectl config get-contexts` shows the contexts there are",
                None => "set KUBECONFIG or give --kubeconfig FILE",
            };
            anyhow!("failed to find a cluster: {error}\nhint: {hint}")
        })?;
        let named = namespace.is_some();
        let namespace = namespace.clone().unwrap_or(config.default_namespace.clone());
        let client = Client::try_from(config).context("failed to make a client")?;
        Ok(Session { client, namespace, named })
    }

    /// Goes to the namespace of a manifest, if it has one.
    pub(super) fn enter(&mut self, namespace: Option<&str>) -> Result<()> {
        let Some(namespace) = namespace else { return Ok(()) };
        if self.named && self.namespace != namespace {
            bail!(
                "the manifest is for namespace {namespace:?}, not {:?}\n\
                 hint: leave -n out, or change metadata.namespace",
                self.namespace
            );
        }
        self.named |= self.namespace != namespace;
        self.namespace = namespace.into();
        Ok(())
    }

    /// Objects in the namespace.
    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Objects everywhere.
    pub(super) fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// MiniClusters in the namespace.
    pub(super) fn miniclusters(&self) -> Api<MiniCluster> {
        self.api()
    }

    /// Pods in the namespace.
    pub(super) fn pods(&self) -> Api<Pod> {
        self.api()
    }

    /// A command of this plugin to tell the user, for the same namespace.
    pub(super) fn command(&self, words: &str) -> String {
        match self.named {
            true => format!("kubectl minicluster -n {} {words}", self.namespace),
            false => format!("kubectl minicluster {words}"),
        }
    }

    /// The remedy of a reason, for an object of the same namespace.
    pub(super) fn remedy(&self, remedy: &str, name: &str) -> String {
        let remedy = remedy.replace("NAME", name);
        if !self.named {
            return remedy;
        }
        let namespace = &self.namespace;
        remedy
            .replace("`kubectl minicluster ", &format!("`kubectl minicluster -n {namespace} "))
            .replace("`kubectl describe ", &format!("`kubectl describe -n {namespace} "))
    }

    /// A MiniCluster by name. When there is none, the error names those alike.
    pub(super) async fn minicluster(&self, name: &str) -> Result<MiniCluster> {
        let found = self.miniclusters().get_opt(name).await;
        match found {
            Ok(Some(minicluster)) => Ok(minicluster),
            Ok(None) => Err(self.no_such(name).await),
            Err(error) => Err(self.explain(error, &format!("failed to get {name:?}")).await),
        }
    }

    /// There is no MiniCluster `name`: which are there?
    pub(super) async fn no_such(&self, name: &str) -> anyhow::Error {
        let listed = match self.miniclusters().list_metadata(&ListParams::default()).await {
            Ok(listed) => listed,
            Err(error) => return self.explain(error, "failed to list MiniClusters").await,
        };
        let names: Vec<String> = listed.items.iter().map(ResourceExt::name_any).collect();
        self.none("MiniCluster", name, &names)
    }

    /// There is no such object; these names are there.
    pub(super) fn none(&self, what: &str, name: &str, names: &[String]) -> anyhow::Error {
        let namespace = &self.namespace;
        anyhow!("there is no {what} {name:?} in {namespace}\nhint: {}", hint(name, names))
    }

    /// What the API server said, with what to do about it.
    pub(super) async fn explain(&self, error: kube::Error, what: &str) -> anyhow::Error {
        let hint = match &error {
            kube::Error::Api(status) if status.code == 404 && !self.serves_our_kinds().await => {
                return anyhow!(
                    "this cluster does not know MiniClusters, FluxJobs and FluxSetups\n\
                     hint: install them with `flux-operator crd | kubectl apply -f -`"
                );
            }
            kube::Error::Api(status) => match status.code {
                401 => "log in again: the kubeconfig's credentials were not accepted",
                403 => "ask an administrator for the right, or choose a namespace with -n",
                404 => "`kubectl get namespaces` shows which there are",
                409 => "delete it first, or choose another name",
                _ => return api_error(what, error),
            },
            kube::Error::Service(_) | kube::Error::HyperError(_) => {
                "is the API server of the kubeconfig's context up, and its proxy, if it has one? Try `kubectl version`"
            }
            _ => return api_error(what, error),
        };
        anyhow!("{:#}\nhint: {hint}", api_error(what, error))
    }

    /// Discovery is open to everybody who may log in.
    async fn serves_our_kinds(&self) -> bool {
        let group = format!("{GROUP}/{VERSION}");
        match self.client.list_api_group_resources(&group).await {
            Ok(served) => ["miniclusters", "fluxjobs", "fluxsetups"]
                .iter()
                .all(|kind| served.resources.iter().any(|resource| resource.name == *kind)),
            Err(kube::Error::Api(status)) => status.code != 404,
            Err(_) => true,
        }
    }
}

/// The API server's own sentence, without kube's words around it.
fn api_error(what: &str, error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{what}: {}", status.message),
        error => anyhow::Error::new(error).context(what.to_owned()),
    }
}

/// Which names somebody may have meant.
fn hint(name: &str, names: &[String]) -> String {
    /// More would not be read.
    const SHOWN: usize = 3;
    // Chosen by hand: one letter wrong or left out in a short name is above it.
    const ALIKE: f64 = 0.75;
    let mut alike: Vec<(f64, &String)> =
        names.iter().map(|known| (strsim::jaro_winkler(name, known), known)).collect();
    alike.retain(|(likeness, _)| *likeness >= ALIKE);
    alike.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let quoted = |names: Vec<&String>| {
        let names: Vec<String> = names.into_iter().take(SHOWN).map(|n| format!("{n:?}")).collect();
        names.join(" or ")
    };
    match (names.len(), alike.is_empty()) {
        (0, _) => "there are none in this namespace; choose another with -n".into(),
        (1..=SHOWN, true) => format!("there is {}", quoted(names.iter().collect())),
        (_, true) => "`kubectl minicluster list` shows which there are".into(),
        (_, false) => {
            format!("did you mean {}?", quoted(alike.into_iter().map(|(_, name)| name).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_alike_are_told_best_first() {
        let names = ["hello", "hello-2", "lammps", "a", "b"].map(String::from);
        assert_eq!(hint("hallo", &names), "did you mean \"hello\" or \"hello-2\"?");
        assert_eq!(hint("zzz", &names), "`kubectl minicluster list` shows which there are");
        assert_eq!(hint("zzz", &names[2..3]), "there is \"lammps\"");
        assert!(hint("zzz", &[]).starts_with("there are none"));
    }
}
