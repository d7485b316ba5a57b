//! Another Kubernetes cluster: a Secret, a ConfigMap and a Job, rendered at home. It needs neither the
//! operator nor its CRDs, and rights for one namespace.

use std::collections::BTreeMap;

use flux_operator_api::{Burst, MiniCluster, Reason};
use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_plan::bursting::{
    BURST_LABEL, IsolatedObjects, PoolPods, Presence, RemotePool, TargetFailure, TargetView,
    burst_annotations, burst_labels, deadline_seconds, isolated_objects, isolated_secret_name,
    job_failure, object_name, pods_trouble, remote_config_map_name, remote_pool,
    remote_secret_name, resize_patch,
};
use flux_operator_plan::kubernetes::Settings;
use flux_operator_plan::status::{RunView, run_view};
use flux_operator_wire::JobspecText;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;

use super::bounded_api::BoundedApi;
use super::kubeconfig::Connected;
use super::{Pool, Target};
use crate::errors::{chain, exists_already, is_not_found, target_failure};
use crate::home::Home;
use crate::output::{self, RunOutput};

/// The label by which Kubernetes tells the pods of a Job apart.
const INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";

/// The oldest Kubernetes that has all fields of a Job that brokers need, as major and minor version.
const OLDEST_KUBERNETES: (u32, u32) = (1, 33);

/// What renders brokers of a Burst, with the keys of the instance that they join.
pub(crate) trait PoolSource: Send + Sync {
    /// How brokers are rendered.
    fn settings(&self) -> &Settings;

    /// The objects of the brokers.
    fn render<'a>(
        &'a self,
        pool: Pool<'a>,
        pods: PoolPods<'a>,
    ) -> BoxFuture<'a, Result<RemotePool, TargetFailure>>;
}

impl PoolSource for Home {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn render<'a>(
        &'a self,
        pool: Pool<'a>,
        pods: PoolPods<'a>,
    ) -> BoxFuture<'a, Result<RemotePool, TargetFailure>> {
        async move {
            let cluster = pool.existing_cluster()?;
            let (job, secrets) = self.keys_of(cluster).await?;
            let name = object_name(pool.burst);
            let settings = &self.settings;
            remote_pool(cluster, job.as_ref(), &name, &name, &pods, secrets, settings)
                .map_err(|error| TargetFailure::new(error.reason(), chain(&error)))
        }
        .boxed()
    }
}

/// Another Kubernetes cluster.
pub(crate) struct OtherCluster<S> {
    source: S,
    connected: Connected,
}

impl<S: PoolSource> OtherCluster<S> {
    pub(crate) fn new(source: S, connected: Connected) -> OtherCluster<S> {
        OtherCluster { source, connected }
    }

    /// Its objects are where they were created: elsewhere it would be started again, and the first
    /// ones would be left.
    fn check_place(&self, burst: &Burst) -> Result<String, TargetFailure> {
        let place = self.connected.place();
        match burst.status.as_ref().map(|status| status.place.as_str()) {
            Some(known) if !known.is_empty() && known != place => Err(TargetFailure::new(
                Reason::TargetChanged,
                "the kubeconfig names another server or namespace than when the Burst was started: \
                 write the former ones into it again",
            )),
            _ => Ok(place),
        }
    }

    /// An older Kubernetes drops the fields of a Job by which a lost lead is not started again.
    async fn check_version(&self) -> Result<(), TargetFailure> {
        match self.api().version().await {
            Ok(Some((major, minor))) if (major, minor) < OLDEST_KUBERNETES => {
                let (least_major, least_minor) = OLDEST_KUBERNETES;
                Err(TargetFailure::new(
                    Reason::TargetRefused,
                    format!(
                        "the target has Kubernetes {major}.{minor}, and brokers need \
                         {least_major}.{least_minor} or newer: use another target"
                    ),
                ))
            }
            // Whoever may create pods there may not have the right to read it.
            Ok(_) | Err(kube::Error::Api(_)) => Ok(()),
            Err(error) => Err(target_failure("read the version of the target", &error)),
        }
    }

    fn api(&self) -> BoundedApi<'_> {
        let Connected { client, namespace, .. } = &self.connected;
        BoundedApi { client, namespace }
    }

    /// Creates an object, unless it exists.
    async fn create_one<K>(&self, object: &K) -> Result<(), TargetFailure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Serialize,
    {
        match self.api().create(object).await {
            Ok(()) => Ok(()),
            Err(error) if exists_already(&error) => Ok(()),
            Err(error) => {
                Err(target_failure(&format!("create the {} at the target", K::kind(&())), &error))
            }
        }
    }

    /// Deletes an object, unless it does not exist.
    async fn delete_one<K>(&self, name: &str) -> Result<(), TargetFailure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match self.api().delete::<K>(name).await {
            Ok(()) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => {
                Err(target_failure(&format!("delete the {} at the target", K::kind(&())), &error))
            }
        }
    }

    /// Where and how the pods of a Burst run.
    fn pods<'a>(&'a self, pool: Pool<'a>, identity: &'a PodIdentity) -> PoolPods<'a> {
        PoolPods {
            namespace: &self.connected.namespace,
            uid: &identity.uid,
            nodes: pool.burst.spec.nodes,
            labels: &identity.labels,
            target: &pool.burst.spec.target,
            deadline_seconds: Some(deadline_seconds(pool.burst)),
        }
    }

    /// Renders the instance of a run.
    fn render_run(
        &self,
        pool: Pool<'_>,
        jobspec: &JobspecText,
    ) -> Result<IsolatedObjects, TargetFailure> {
        let refused = |message: String| TargetFailure::new(Reason::LenderNotReady, message);
        let cluster = pool.existing_cluster()?;
        let identity = PodIdentity::of(pool, cluster);
        let pods = self.pods(pool, &identity);
        let key = SecretKey::from_os().map_err(|error| refused(chain(&error)))?;
        let metadata = Metadata::new("flux-operator").expect("Flux accepts all its characters");
        let certificate = Certificate::new(key, metadata);
        let name = object_name(pool.burst);
        let settings = self.source.settings();
        let made = isolated_objects(cluster, &name, &pods, certificate, jobspec, settings);
        let mut made = made.map_err(|error| TargetFailure::new(error.reason(), chain(&error)))?;
        let all = [
            &mut made.secret.metadata,
            &mut made.config_map.metadata,
            &mut made.service.metadata,
            &mut made.job.metadata,
        ];
        for metadata in all {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.extend(burst_annotations(pool.burst));
        }
        Ok(made)
    }

    /// Creates the instance of a run. Its Secret has a new certificate, so that one of an earlier try
    /// must be the one that the pods get: it is kept.
    async fn create_run(&self, pool: Pool<'_>, jobspec: &JobspecText) -> Result<(), TargetFailure> {
        let IsolatedObjects { secret, config_map, service, job } =
            self.render_run(pool, jobspec)?;
        self.create_one(&secret).await?;
        self.create_one(&config_map).await?;
        self.create_one(&service).await?;
        // Last: from then on the job may run.
        self.create_one(&job).await
    }

    /// What has become of a run.
    async fn run(&self, name: &str, job: Option<&Job>) -> Result<RunView, TargetFailure> {
        let lead = format!("{BURST_LABEL}={name},{INDEX_LABEL}=0");
        let leads = self.api().pods(&lead).await;
        let leads = leads.map_err(|error| target_failure("list pods at the target", &error))?;
        Ok(run_view(job, &leads))
    }

    /// Renders what the brokers need.
    async fn render(&self, pool: Pool<'_>) -> Result<RemotePool, TargetFailure> {
        let identity = PodIdentity::of(pool, pool.existing_cluster()?);
        let mut made = self.source.render(pool, self.pods(pool, &identity)).await?;
        for metadata in
            [&mut made.secret.metadata, &mut made.config_map.metadata, &mut made.job.metadata]
        {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.extend(burst_annotations(pool.burst));
        }
        Ok(made)
    }
}

/// By what the pods of a Burst are told apart from others.
struct PodIdentity {
    uid: String,
    labels: BTreeMap<String, String>,
}

impl PodIdentity {
    fn of(pool: Pool<'_>, cluster: &MiniCluster) -> PodIdentity {
        PodIdentity {
            uid: pool.burst.uid().unwrap_or_default(),
            labels: burst_labels(pool.burst, &cluster.uid().unwrap_or_default()),
        }
    }
}

/// How much exists. Pods without a Job are being deleted.
fn presence(job: Option<&Job>, pods: &[Pod]) -> Presence {
    match job {
        Some(job) if job.metadata.deletion_timestamp.is_none() => Presence::Complete,
        None if pods.is_empty() => Presence::Nothing,
        Some(_) | None => Presence::Leaving,
    }
}

/// How many pods a Job has. Kubernetes may not have counted those of a new one yet.
fn present(job: &Job, wanted: Option<i32>) -> i32 {
    let status = job.status.clone().unwrap_or_default();
    let is_new = status.start_time.is_none();
    let wanted = wanted.filter(|_| is_new && job_failure(job, &[]).is_none());
    status.active.or(wanted).unwrap_or_default()
}

impl<S: PoolSource> Target for OtherCluster<S> {
    fn observe<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<TargetView, TargetFailure>> {
        async move {
            let place = self.check_place(pool.burst)?;
            let name = object_name(pool.burst);
            let job = self.api().job(&name).await;
            let job = job.map_err(|error| target_failure("get the Job at the target", &error))?;
            let pods = self.api().pods(&format!("{BURST_LABEL}={name}")).await;
            let pods = pods.map_err(|error| target_failure("list pods at the target", &error))?;
            let nodes = job.as_ref().and_then(|job| job.spec.as_ref()?.completions);
            let run = match pool.burst.is_isolated() {
                true => Some(self.run(&name, job.as_ref()).await?),
                false => None,
            };
            let presence = presence(job.as_ref(), &pods);
            // Pods that are being deleted are still there.
            let is_leaving = presence == Presence::Leaving;
            let present = job.as_ref().map_or(0, |job| present(job, nodes));
            Ok(TargetView {
                presence,
                nodes: nodes.unwrap_or_default(),
                present: (!is_leaving).then_some(present),
                trouble: pods_trouble(&pods),
                job_failure: job.as_ref().and_then(|job| job_failure(job, &pods)),
                run,
                place,
                ..TargetView::default()
            })
        }
        .boxed()
    }

    fn create<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            self.check_place(pool.burst)?;
            self.check_version().await?;
            if pool.burst.is_isolated() {
                let missing = "the job's jobspec is not known";
                let missing = || TargetFailure::new(Reason::LenderNotReady, missing);
                return self.create_run(pool, pool.jobspec.ok_or_else(missing)?).await;
            }
            let RemotePool { secret, config_map, job } = self.render(pool).await?;
            self.create_one(&secret).await?;
            self.create_one(&config_map).await?;
            // Last: its pods need the others, and while it exists they do too.
            self.create_one(&job).await
        }
        .boxed()
    }

    fn scale<'a>(&'a self, pool: Pool<'a>, nodes: i32) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            self.check_place(pool.burst)?;
            let name = object_name(pool.burst);
            let patched = self.api().patch::<Job>(&name, &resize_patch(nodes)).await;
            patched.map_err(|error| target_failure("resize the Job at the target", &error))
        }
        .boxed()
    }

    fn output<'a>(
        &'a self,
        pool: Pool<'a>,
        pod: &'a str,
    ) -> BoxFuture<'a, Result<RunOutput, TargetFailure>> {
        async move {
            self.check_place(pool.burst)?;
            let Connected { client, namespace, .. } = &self.connected;
            let pods = Api::namespaced(client.clone(), namespace);
            output::read(&pods, pod, &object_name(pool.burst)).await
        }
        .boxed()
    }

    fn delete<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            self.check_place(pool.burst)?;
            let name = object_name(pool.burst);
            self.delete_one::<Job>(&name).await?;
            self.delete_one::<ConfigMap>(&remote_config_map_name(&name)).await?;
            if pool.burst.is_isolated() {
                self.delete_one::<Service>(&name).await?;
                let uid = pool.burst.uid().unwrap_or_default();
                return self.delete_one::<Secret>(&isolated_secret_name(&name, &uid)).await;
            }
            self.delete_one::<Secret>(&remote_secret_name(&name)).await
        }
        .boxed()
    }
}
