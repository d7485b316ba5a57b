//! A provider of infrastructure, bootstrap and control plane, played by Cluster API's contracts: every
//! object waits for what it needs, then it says that what it stands for exists.
//!
//! It reconciles all objects of its namespace whenever one of them changes.

use std::collections::BTreeSet;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::kinds::{self, BOOTSTRAP, CLUSTER, CONTROL_PLANE, MACHINE, api, core_api};
use crate::TestNamespace;

/// Of which Cluster an object is.
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// What the provider waits for before it lets an object be deleted: itself.
const FINALIZER: &str = "cloud.flux-operator.test/provider";

/// The kinds of Cluster API's core that belong to a Cluster.
const CORE: [&str; 4] = ["Cluster", "MachineDeployment", "MachineSet", "Machine"];

/// The provider of one namespace.
pub struct Provider<'n> {
    namespace: &'n TestNamespace,
    /// The cluster that it "makes".
    kubeconfig: String,
    provisioned: Mutex<Provisioned>,
}

/// What a provider was asked for, all in all.
#[derive(Clone, Debug, Default)]
pub struct Provisioned {
    /// The zones of clusters.
    pub zones: BTreeSet<String>,
    /// The versions of control planes.
    pub versions: BTreeSet<String>,
    /// Machines.
    pub machines: BTreeSet<String>,
}

impl<'n> Provider<'n> {
    /// A provider that writes this kubeconfig for every Cluster.
    pub fn new(namespace: &'n TestNamespace, kubeconfig: String) -> Provider<'n> {
        Provider { namespace, kubeconfig, provisioned: Mutex::default() }
    }

    /// What it was asked for so far.
    pub fn provisioned(&self) -> Provisioned {
        self.provisioned.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Works until it fails, as it does when something is deleted too early.
    pub async fn run(&self) -> Result<()> {
        let ours = [CLUSTER, CONTROL_PLANE, BOOTSTRAP, MACHINE].map(|it| api(self.namespace, it));
        let core = ["Cluster", "Machine"].map(|kind| core_api(self.namespace, kind));
        let watches = ours.into_iter().chain(core).map(|api| {
            watcher(api, watcher::Config::default()).default_backoff().touched_objects().boxed()
        });
        // Of many changes at once, the last state counts.
        let mut changes = stream::select_all(watches).ready_chunks(64);
        while changes.next().await.is_some() {
            self.reconcile().await?;
        }
        Ok(())
    }

    /// Lists first what is deleted last: if something of it is being deleted, the rest must be gone.
    async fn reconcile(&self) -> Result<()> {
        let infrastructures = self.list(CLUSTER).await?;
        let control_planes = self.list(CONTROL_PLANE).await?;
        let machines = self.list(MACHINE).await?;
        let clusters = items(&core_api(self.namespace, "Cluster")).await?;
        let core_machines = items(&core_api(self.namespace, "Machine")).await?;
        for infrastructure in &infrastructures {
            let is_early = !control_planes.is_empty() || !machines.is_empty();
            ensure!(!(is_deleting(infrastructure) && is_early), "{CLUSTER} is not deleted last");
            self.infrastructure(infrastructure).await?;
        }
        for control_plane in &control_planes {
            let is_early = is_deleting(control_plane) && !machines.is_empty();
            ensure!(!is_early, "{CONTROL_PLANE} is deleted before its machines");
            self.control_plane(control_plane, of(control_plane, &clusters)).await?;
        }
        for config in self.list(BOOTSTRAP).await? {
            self.bootstrap(&config, of(&config, &clusters)).await?;
        }
        for machine in &machines {
            let owner = machine.owner_references().iter().find(|it| it.kind == "Machine");
            let owner = owner.and_then(|it| core_machines.iter().find(|m| m.name_any() == it.name));
            self.machine(machine, owner).await?;
        }
        Ok(())
    }

    async fn infrastructure(&self, object: &DynamicObject) -> Result<()> {
        if self.is_deleted(CLUSTER, object).await? || object.owner_references().is_empty() {
            return Ok(());
        }
        self.note(|it| &mut it.zones, &object.data["spec"]["zone"]);
        self.finish(
            CLUSTER,
            object,
            json!({}),
            json!({ "initialization": { "provisioned": true } }),
        )
        .await
    }

    /// The control plane, which needs the network of the infrastructure.
    async fn control_plane(
        &self,
        object: &DynamicObject,
        cluster: Option<&DynamicObject>,
    ) -> Result<()> {
        if self.is_deleted(CONTROL_PLANE, object).await?
            || !is_initialized(cluster, "infrastructureProvisioned")
        {
            return Ok(());
        }
        let version = &object.data["spec"]["version"];
        self.note(|it| &mut it.versions, version);
        let cluster = cluster.context("a control plane without a Cluster")?.name_any();
        let secret = format!("{cluster}-kubeconfig");
        self.write_secret(&secret, &cluster, CONTROL_PLANE, object, &self.kubeconfig).await?;
        let endpoint = json!({ "controlPlaneEndpoint": endpoint_of(&self.kubeconfig)? });
        let status = json!({ "initialization": { "controlPlaneInitialized": true },
            "externalManagedControlPlane": true, "version": version });
        self.finish(CONTROL_PLANE, object, endpoint, status).await
    }

    /// The data with which a machine starts; it contains how to join the control plane.
    async fn bootstrap(
        &self,
        object: &DynamicObject,
        cluster: Option<&DynamicObject>,
    ) -> Result<()> {
        if is_deleting(object) || !is_initialized(cluster, "controlPlaneInitialized") {
            return Ok(());
        }
        let (name, cluster) = (object.name_any(), cluster.map(ResourceExt::name_any));
        let cluster = cluster.context("bootstrap data without a Cluster")?;
        self.write_secret(&name, &cluster, BOOTSTRAP, object, "join").await?;
        let status =
            json!({ "dataSecretName": name, "initialization": { "dataSecretCreated": true } });
        self.patch_status(BOOTSTRAP, object, status).await
    }

    async fn machine(&self, object: &DynamicObject, owner: Option<&DynamicObject>) -> Result<()> {
        let data = owner.map(|it| &it.data["spec"]["bootstrap"]["dataSecretName"]);
        if self.is_deleted(MACHINE, object).await? || data.is_none_or(Value::is_null) {
            return Ok(());
        }
        let name = json!(object.name_any());
        self.note(|it| &mut it.machines, &name);
        let spec = json!({ "providerID": format!("cloud:///{}", object.name_any()) });
        self.finish(MACHINE, object, spec, json!({ "initialization": { "provisioned": true } }))
            .await
    }

    /// Whether an object is being deleted; if so, nothing keeps it any longer.
    async fn is_deleted(&self, kind: &str, object: &DynamicObject) -> Result<bool> {
        if is_deleting(object) && object.finalizers().iter().any(|it| it == FINALIZER) {
            let mut others = object.finalizers().to_vec();
            others.retain(|it| it != FINALIZER);
            let change = json!({ "metadata": { "finalizers": others,
                "resourceVersion": object.resource_version() } });
            self.patch(kind, object, change).await?;
        }
        Ok(is_deleting(object))
    }

    /// Writes what the contract asks for, once.
    async fn finish(
        &self,
        kind: &str,
        object: &DynamicObject,
        spec: Value,
        status: Value,
    ) -> Result<()> {
        if object.finalizers().iter().all(|it| it != FINALIZER) {
            let mut all = object.finalizers().to_vec();
            all.push(FINALIZER.to_owned());
            // With the version: another finalizer may be removed meanwhile.
            let change = json!({ "spec": spec, "metadata": { "finalizers": all,
                "resourceVersion": object.resource_version() } });
            return self.patch(kind, object, change).await;
        }
        self.patch_status(kind, object, status).await
    }

    async fn patch(&self, kind: &str, object: &DynamicObject, change: Value) -> Result<()> {
        let (api, name) = (api(self.namespace, kind), object.name_any());
        let written = api.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
        unless_changed(written.map(drop))
    }

    async fn patch_status(&self, kind: &str, object: &DynamicObject, status: Value) -> Result<()> {
        let (api, name) = (api(self.namespace, kind), object.name_any());
        let change = json!({ "status": status });
        let mut merged = object.data.clone();
        flux_operator_testkit::merge(&mut merged, &change);
        if merged == object.data {
            return Ok(());
        }
        let written = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(change)).await;
        unless_changed(written.map(drop))
    }

    /// Writes a Secret that belongs to an object, in the form that Cluster API reads.
    async fn write_secret(
        &self,
        name: &str,
        cluster: &str,
        kind: &str,
        owner: &DynamicObject,
        value: &str,
    ) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": { "name": name, "labels": { CLUSTER_LABEL: cluster }, "ownerReferences": [{
                "apiVersion": kinds::api_version(), "kind": kind, "name": owner.name_any(),
                "uid": owner.uid(), "controller": true, "blockOwnerDeletion": true }] },
            "stringData": { "value": value },
        });
        let how = PatchParams::apply("cloud").force();
        let secrets = self.namespace.api::<Secret>();
        secrets.patch(name, &how, &Patch::Apply(&secret)).await?;
        Ok(())
    }

    fn note(&self, of: impl Fn(&mut Provisioned) -> &mut BTreeSet<String>, value: &Value) {
        let mut all = self.provisioned.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        of(&mut all).extend(value.as_str().map(str::to_owned));
    }

    async fn list(&self, kind: &str) -> Result<Vec<DynamicObject>> {
        items(&api(self.namespace, kind)).await
    }

    /// What is left of Clusters: objects of Cluster API, of the provider, and Secrets.
    pub async fn leftovers(&self) -> Result<Vec<String>> {
        let ours = [CLUSTER, CONTROL_PLANE, BOOTSTRAP, MACHINE];
        let ours = ours.map(|kind| (kind, api(self.namespace, kind)));
        let mut left = Vec::new();
        for (kind, api) in
            CORE.map(|kind| (kind, core_api(self.namespace, kind))).iter().chain(&ours)
        {
            left.extend(items(api).await?.iter().map(|it| format!("{kind} {}", it.name_any())));
        }
        let of_clusters = ListParams::default().labels(CLUSTER_LABEL);
        let secrets = self.namespace.api::<Secret>().list_metadata(&of_clusters).await?;
        left.extend(secrets.iter().map(|it| format!("Secret {}", it.name_any())));
        Ok(left)
    }
}

async fn items(api: &Api<DynamicObject>) -> Result<Vec<DynamicObject>> {
    Ok(api.list(&ListParams::default()).await?.items)
}

fn is_deleting(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

/// The Cluster of an object.
fn of<'c>(object: &DynamicObject, clusters: &'c [DynamicObject]) -> Option<&'c DynamicObject> {
    let name = object.labels().get(CLUSTER_LABEL)?;
    clusters.iter().find(|cluster| cluster.name_any() == *name)
}

fn is_initialized(cluster: Option<&DynamicObject>, part: &str) -> bool {
    cluster.is_some_and(|it| it.data["status"]["initialization"][part] == true)
}

/// Whether it was written; if it has changed or is gone, an event about that follows.
fn unless_changed(written: kube::Result<()>) -> Result<()> {
    match written {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        written => Ok(written?),
    }
}

fn endpoint_of(kubeconfig: &str) -> Result<Value> {
    let kubeconfig: Value = serde_saphyr::from_str(kubeconfig)?;
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().context("no server")?;
    let server: http::Uri = server.parse()?;
    let host = server.host().context("the server has no host")?;
    Ok(json!({ "host": host, "port": server.port_u16().unwrap_or(443) }))
}
