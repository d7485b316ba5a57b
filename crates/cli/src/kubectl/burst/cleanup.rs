//! `kubectl minicluster burst cleanup`: find and delete what was made for Bursts that no longer
//! exist.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use flux_operator_api::{Burst, MiniCluster};
use flux_operator_burst_controller::connect_to_target;
use flux_operator_plan::bursting::{BURST_LABEL, cluster_api_kind};
use flux_operator_service::error_chain;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::leftovers::{Existing, Kind, Leftover, Place, among, here, removal, rows};
use crate::connection;
use crate::kubectl::Connection;
use crate::kubectl::listing::is_forbidden;
use crate::kubectl::session::Session;
use crate::print;

/// How often a change of a MiniCluster is tried: the operator writes its status meanwhile.
const MAX_TRIES: usize = 20;

/// Find what was made for Bursts that no longer exist, and delete it with --delete.
///
/// Bursts are given back completely, unless they or the burst controller are removed by force. Here,
/// in the namespace, leftovers are MiniClusters that join for a Burst, invitations and finalizers of
/// MiniClusters, and the Clusters, Jobs and Secrets by which clusters were made for Bursts. At a target,
/// which has to be named, they are Jobs, ConfigMaps, Secrets, Services and Pods.
/// They are found by labels, also if no Burst and no MiniCluster exists any more.
///
/// If several Kubernetes clusters use one namespace of a target, what was made for the others is a
/// leftover too: use --known-only. If the namespace here is a target of others, their brokers are not
/// listed. The account of a target may not list its objects: give a context that may.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Secret of the namespace with a kubeconfig of the target, as in a policy.
    #[arg(long, value_name = "NAME", group = "target")]
    kubeconfig_secret: Option<String>,

    /// The key of the Secret.
    #[arg(long, value_name = "KEY", default_value = "kubeconfig", requires = "kubeconfig_secret")]
    kubeconfig_key: String,

    /// Context of your kubeconfig that is the target.
    #[arg(long, value_name = "CONTEXT", group = "target")]
    target_context: Option<String>,

    /// Namespace at the target. Default: the one of the kubeconfig's context.
    #[arg(long, value_name = "NAMESPACE", requires = "target")]
    target_namespace: Option<String>,

    /// Leave out what was made for MiniClusters that do not exist in this Kubernetes cluster, or that you
    /// may not list.
    #[arg(long)]
    known_only: bool,

    /// Delete what is found, without asking.
    #[arg(long)]
    delete: bool,

    /// Delete also what was made for MiniClusters that do not exist in this Kubernetes cluster, or that
    /// you may not list.
    #[arg(long, requires = "delete", conflicts_with = "known_only")]
    unknown_too: bool,
}

/// A namespace of this or another Kubernetes cluster.
struct Namespace {
    client: Client,
    namespace: String,
}

pub(super) async fn run(
    session: &Session,
    connection: &Connection,
    arguments: &Arguments,
) -> Result<ExitCode> {
    let target = target(session, connection, arguments).await?;
    // Bursts are listed last: what exists now was made for Bursts that existed before.
    let miniclusters = miniclusters(session).await?;
    let home = Namespace { client: session.client.clone(), namespace: session.namespace.clone() };
    let of_made_clusters = home.objects_of_made_clusters().await?;
    let objects = match &target {
        Some(target) => target.objects().await?,
        None => Vec::new(),
    };
    let existing = existing(session, &miniclusters).await?;
    let mut found = here(&miniclusters, &existing);
    found.extend(among(Place::Here, &of_made_clusters, &existing));
    found.extend(among(Place::Target, &objects, &existing));
    if arguments.known_only {
        found.retain(|leftover| leftover.is_of_known_cluster);
    }
    if found.is_empty() {
        let target = if target.is_some() { " and at the target" } else { "" };
        print::message(format_args!(
            "No leftovers found in {} namespace{target}.",
            session.namespace
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let unknown = found.iter().filter(|leftover| !leftover.is_of_known_cluster).count();
    if arguments.delete && unknown > 0 && !arguments.unknown_too {
        print::output(rows(&found, Timestamp::now()))?;
        bail!(
            "nothing was deleted: {unknown} of them are of MiniClusters that do not exist in this \
             Kubernetes cluster, or that you may not list. If others use the same namespace, they may \
             be in use\n\
             hint: --known-only leaves them out; --unknown-too deletes them"
        );
    }
    if arguments.delete {
        return delete_all(session, &home, target.as_ref(), &found, &existing).await;
    }
    print::output(rows(&found, Timestamp::now()))?;
    if unknown > 0 {
        print::message(format_args!(
            "warning: {unknown} of them are of MiniClusters that do not exist in this Kubernetes \
             cluster, or that you may not list: if others use the same namespace, they may be in use\n\
             hint: --known-only leaves them out"
        ));
    }
    print::message("note: nothing was deleted; --delete deletes them");
    Ok(ExitCode::SUCCESS)
}

/// Connects to the target, if one is named.
async fn target(
    session: &Session,
    connection: &Connection,
    arguments: &Arguments,
) -> Result<Option<Namespace>> {
    let (client, default) = match (&arguments.kubeconfig_secret, &arguments.target_context) {
        (Some(secret), _) => {
            let text = kubeconfig(session, secret, &arguments.kubeconfig_key).await?;
            let connected = connect_to_target(&text).await;
            let connected = connected.map_err(|failure| anyhow!("Secret {secret:?}: {failure}"))?;
            (connected.client, connected.namespace)
        }
        (None, Some(context)) => {
            let file = connection.kubeconfig.as_deref();
            let config = connection::load_config(file, Some(context)).await.map_err(|error| {
                anyhow!(
                    "failed to find the target: {error}\n\
                     hint: `kubectl config get-contexts` lists the contexts"
                )
            })?;
            let namespace = config.default_namespace.clone();
            (Client::try_from(config).context("failed to create a client")?, namespace)
        }
        (None, None) => return Ok(None),
    };
    let namespace = arguments.target_namespace.clone().unwrap_or(default);
    Ok(Some(Namespace { client, namespace }))
}

/// The kubeconfig in a Secret. It is never printed.
async fn kubeconfig(session: &Session, name: &str, key: &str) -> Result<String> {
    let secrets = session.api::<Secret>();
    let secret = match secrets.get_opt(name).await {
        Ok(Some(secret)) => secret,
        Ok(None) => {
            bail!(
                "there is no Secret {name:?} in {}\n\
                 hint: `kubectl get burstpolicies -o yaml` shows the Secrets of targets",
                session.namespace
            );
        }
        Err(error) => {
            return Err(session
                .explain(error, &format!("failed to get the Secret {name:?}"))
                .await);
        }
    };
    let value = secret.data.and_then(|mut data| data.remove(key));
    let Some(value) = value else {
        bail!(
            "the Secret {name:?} has no key {key:?}\nhint: give another one with --kubeconfig-key"
        );
    };
    // The error would contain the text.
    String::from_utf8(value.0).map_err(|_text| anyhow!("the kubeconfig in {name:?} is not text"))
}

/// The MiniClusters of the namespace; none if the Kubernetes cluster does not know the kind.
async fn miniclusters(session: &Session) -> Result<Vec<MiniCluster>> {
    match session.miniclusters().list(&ListParams::default()).await {
        Ok(listed) => Ok(listed.items),
        Err(error) if is_not_found(&error) => Ok(Vec::new()),
        Err(error) => Err(session.explain(error, "failed to list MiniClusters").await),
    }
}

/// The Bursts and MiniClusters that exist: those of all namespaces, if the user may list them.
async fn existing(session: &Session, miniclusters: &[MiniCluster]) -> Result<Existing> {
    let everything = ListParams::default();
    let bursts = match session.all::<Burst>().list(&everything).await {
        Err(error) if is_forbidden(&error) => session.api::<Burst>().list(&everything).await,
        listed => listed,
    };
    let bursts = match bursts {
        Ok(listed) => listed.items,
        Err(error) if is_not_found(&error) => Vec::new(),
        Err(error) => return Err(session.explain(error, "failed to list Bursts").await),
    };
    let all = session.all::<MiniCluster>().list_metadata(&everything).await;
    let all: Vec<ObjectMeta> = match all {
        Ok(listed) => listed.items.into_iter().map(|it| it.metadata).collect(),
        Err(error) if is_forbidden(&error) || is_not_found(&error) => Vec::new(),
        Err(error) => return Err(session.explain(error, "failed to list MiniClusters").await),
    };
    Ok(Existing::new(&bursts, miniclusters.iter().map(|it| &it.metadata).chain(&all)))
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The server's message, or the whole error.
fn message_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error_chain::chain(error),
    }
}

impl Namespace {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Everything there that was made for Bursts. Of Secrets, only the metadata is read.
    async fn objects(&self) -> Result<Vec<(Kind, ObjectMeta)>> {
        let mut objects = self.list::<Job>(Kind::Job).await?;
        objects.extend(self.list::<ConfigMap>(Kind::ConfigMap).await?);
        objects.extend(self.list::<Secret>(Kind::Secret).await?);
        objects.extend(self.list::<Service>(Kind::Service).await?);
        objects.extend(self.list::<Pod>(Kind::Pod).await?);
        Ok(objects)
    }

    /// Of the same, the kinds of what makes clusters for Bursts, at home. What the user may not list, or
    /// Kubernetes does not know, is left out.
    async fn objects_of_made_clusters(&self) -> Result<Vec<(Kind, ObjectMeta)>> {
        let lists = [
            (Kind::Cluster, metadata_of(self.clusters()).await),
            (Kind::Job, metadata_of(self.api::<Job>()).await),
            (Kind::Secret, metadata_of(self.api::<Secret>()).await),
        ];
        let mut objects = Vec::new();
        for (kind, listed) in lists {
            match listed {
                Ok(listed) => objects.extend(listed.into_iter().map(|it| (kind, it))),
                Err(error) if is_forbidden(&error) || is_not_found(&error) => {}
                Err(error) => bail!("failed to list {}s: {}", kind.name(), message_of(&error)),
            }
        }
        Ok(objects)
    }

    fn clusters(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &cluster_api_kind())
    }

    async fn list<K>(&self, kind: Kind) -> Result<Vec<(Kind, ObjectMeta)>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + DeserializeOwned,
    {
        match metadata_of(self.api::<K>()).await {
            Ok(listed) => Ok(listed.into_iter().map(|it| (kind, it)).collect()),
            Err(error) => bail!(
                "failed to list {}s of {} at the target: {}\n\
                 hint: give a kubeconfig or context that may list and delete them",
                kind.name(),
                self.namespace,
                message_of(&error)
            ),
        }
    }

    async fn delete(&self, kind: Kind, name: &str) -> kube::Result<()> {
        match kind {
            Kind::Cluster => delete(self.clusters(), name).await,
            Kind::Job => delete(self.api::<Job>(), name).await,
            Kind::ConfigMap => delete(self.api::<ConfigMap>(), name).await,
            Kind::Secret => delete(self.api::<Secret>(), name).await,
            Kind::Service => delete(self.api::<Service>(), name).await,
            Kind::Pod => delete(self.api::<Pod>(), name).await,
            // They are parts of a MiniCluster, or one.
            Kind::Joiner | Kind::Invitation | Kind::Finalizer => Ok(()),
        }
    }
}

/// The metadata of all objects that were made for Bursts.
async fn metadata_of<K>(api: Api<K>) -> kube::Result<Vec<ObjectMeta>>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let listed = api.list_metadata(&ListParams::default().labels(BURST_LABEL)).await?;
    Ok(listed.items.into_iter().map(|it| it.metadata).collect())
}

/// Deletes an object, unless it does not exist any more.
async fn delete<K>(api: Api<K>, name: &str) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    match api.delete(name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes leftovers, and prints what was deleted. What fails does not keep the rest from being
/// deleted.
async fn delete_all(
    session: &Session,
    home: &Namespace,
    target: Option<&Namespace>,
    found: &[Leftover],
    existing: &Existing,
) -> Result<ExitCode> {
    let mut is_complete = true;
    let mut changed: BTreeSet<&str> = BTreeSet::new();
    let mut unchanged: BTreeSet<&str> = BTreeSet::new();
    for leftover in found {
        let object = leftover.object.as_str();
        let deleted = match (leftover.place, leftover.kind) {
            (Place::Here, Kind::Invitation | Kind::Finalizer) => {
                // All of a MiniCluster's are removed with one patch.
                if changed.contains(object) {
                    Ok(())
                } else if unchanged.contains(object) {
                    continue;
                } else {
                    let result = release(session, object, existing).await;
                    let done = if result.is_ok() { &mut changed } else { &mut unchanged };
                    done.insert(object);
                    result
                }
            }
            (Place::Here, Kind::Joiner) => delete(session.miniclusters(), object).await,
            (Place::Here, kind) => home.delete(kind, object).await,
            (Place::Target, kind) => match target {
                Some(target) => target.delete(kind, object).await,
                None => Ok(()),
            },
        };
        let (kind, name) = (leftover.kind.name(), leftover.name());
        let place = if leftover.place == Place::Target { " at the target" } else { "" };
        match deleted {
            Ok(()) => print::output(format!("{kind} {name:?}{place} deleted\n"))?,
            Err(error) => {
                is_complete = false;
                let why = message_of(&error);
                print::message(format_args!(
                    "error: failed to delete {kind} {name:?}{place}: {why}"
                ));
            }
        }
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Removes invitations and the finalizer of Bursts that no longer exist from a MiniCluster.
async fn release(session: &Session, name: &str, existing: &Existing) -> kube::Result<()> {
    let api = session.miniclusters();
    let mut tries = 1..=MAX_TRIES;
    loop {
        let Some(minicluster) = api.get_opt(name).await? else { return Ok(()) };
        let Some(patch) = removal(&minicluster, existing) else { return Ok(()) };
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        match patched {
            Err(kube::Error::Api(status)) if status.code == 409 && tries.next().is_some() => {}
            Err(error) if is_not_found(&error) => return Ok(()),
            patched => return patched.map(drop),
        }
    }
}
