//! Shared by tests on a real node: a namespace with its own operator, and helpers for the
//! MiniClusters in it. The tests are in `tests/`.
//!
//! The operator runs in the test's process, but with the roles with which it is installed: a test
//! that needs another permission fails.

pub mod access;
pub mod bursting;
pub mod cluster_api;
pub mod gateway;
pub mod install;
pub mod object_counter;
pub mod objects;
pub mod plugin;
pub mod proxy;
pub mod queue;
pub mod second_cluster;

use anyhow::{Context, Result, bail};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::{Burst, BurstPolicy, MiniCluster};
use flux_operator_install::BurstClusters;
use flux_operator_operator::{GatewayLocation, Options};
use flux_operator_plan::kubernetes::Settings;
use flux_operator_testbed::Testbed;
use flux_operator_testkit::cluster::{first_match, install_crds, testbed, with_timeout};
use flux_operator_testkit::images::{AGENT_IMAGE, import_all, with_flux};
use flux_operator_testkit::{cluster, merge, smallest_minicluster};
use k8s_openapi::api::core::v1::{ContainerState, Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{
    AttachParams, DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams,
};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// A command that runs until [`TestNamespace::let_finish`].
pub const WAIT_FOR_FILE: &str = "sh -c 'until [ -e /tmp/go ]; do sleep 0.1; done'";

/// A namespace with its own operator, which watches nothing else.
pub struct TestNamespace {
    /// The client.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    /// The testbed that it is in.
    pub testbed: Testbed,
    /// The gateway that the operator uses.
    pub gateway: Option<GatewayLocation>,
    /// How its burst controller may have Kubernetes clusters made.
    pub burst_clusters: BurstClusters,
    /// The image of the program with which it has clusters of Google Kubernetes Engine made.
    pub gke_image: Option<String>,
    /// The listener for reports, which outlives the operator.
    reports: std::net::TcpListener,
    operator: Option<RunningOperator>,
}

/// An operator with its own threads, so that it can be stopped at once.
struct RunningOperator(Option<Runtime>);

impl Drop for RunningOperator {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs a test in its own namespace, with an operator.
pub async fn with_operator<T>(
    test: impl AsyncFnOnce(&mut TestNamespace) -> Result<T>,
) -> Result<T> {
    without_operator(async |namespace| {
        namespace.start_operator().await?;
        test(namespace).await
    })
    .await
}

/// Runs a test in its own namespace, without an operator.
pub async fn without_operator<T>(
    test: impl AsyncFnOnce(&mut TestNamespace) -> Result<T>,
) -> Result<T> {
    import_all()?;
    in_namespace_of(testbed()?, test).await
}

/// Runs a test in its own namespace of a testbed, without an operator.
pub async fn in_namespace_of<T>(
    testbed: Testbed,
    test: impl AsyncFnOnce(&mut TestNamespace) -> Result<T>,
) -> Result<T> {
    let client = Client::try_from(cluster::config_of(&testbed).await?)?;
    install_crds(&client).await?;
    cluster::in_namespace(&client, async |namespace| {
        // The address of this machine that pods can reach.
        let host = testbed.slot().host_address();
        let reports = TcpListener::bind((host, 0)).await?.into_std()?;
        let mut stage = TestNamespace {
            client: client.clone(),
            namespace: namespace.to_owned(),
            testbed: testbed.clone(),
            gateway: None,
            burst_clusters: BurstClusters::default(),
            gke_image: None,
            reports,
            operator: None,
        };
        // Unoptimized, the future of a long test is too large for a test's stack.
        let outcome = Box::pin(test(&mut stage)).await;
        if outcome.is_ok() {
            stage.delete_all().await?;
        }
        stage.stop_operator();
        outcome
    })
    .await
}

impl TestNamespace {
    /// Starts the operator.
    pub async fn start_operator(&mut self) -> Result<()> {
        let client = self.operator_client().await?;
        self.start_operator_with(client).await
    }

    /// A client with the operator's roles.
    pub async fn operator_client(&self) -> Result<Client> {
        access::operator_client(&self.client, cluster::config_of(&self.testbed).await?).await
    }

    /// Starts the operator with a client that is used by nothing else, so that its connections are
    /// closed with the operator.
    pub async fn start_operator_with(&mut self, client: Client) -> Result<()> {
        let options = Options {
            namespace: Some(self.namespace.clone()),
            settings: Settings {
                agent_image: AGENT_IMAGE.into(),
                cluster_domain: "cluster.local".into(),
                delivery: flux_operator_operator::detect_delivery(&self.client).await,
                report_url: Some(self.report_url()?),
            },
            election: None,
            rate: None,
            gateway: self.gateway.clone(),
        };
        let reports = self.reports.try_clone()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.spawn(async move {
            let listener = TcpListener::from_std(reports).expect("the listener is valid");
            flux_operator_operator::run(client, listener, options).await
        });
        self.operator = Some(RunningOperator(Some(runtime)));
        Ok(())
    }

    /// Stops the operator as a crash would.
    pub fn stop_operator(&mut self) {
        self.operator = None;
    }

    /// Deletes everything that the operator would act on, whether or not it is running.
    async fn delete_all(&self) -> Result<()> {
        let (how, all) = (DeleteParams::background(), ListParams::default());
        self.fluxjobs().delete_collection(&how, &all).await?;
        self.api::<BurstPolicy>().delete_collection(&how, &all).await?;
        self.api::<Burst>().delete_collection(&how, &all).await?;
        for burst in self.api::<Burst>().list(&all).await? {
            remove_finalizers(&self.api::<Burst>(), &burst.name_any()).await?;
        }
        self.miniclusters().delete_collection(&how, &all).await?;
        self.setups().delete_collection(&how, &all).await?;
        for setup in self.setups().list(&all).await? {
            remove_finalizers(&self.setups(), &setup.name_any()).await?;
        }
        for minicluster in self.miniclusters().list(&all).await? {
            remove_finalizers(&self.miniclusters(), &minicluster.name_any()).await?;
        }
        Ok(())
    }

    /// The URL to which agents report.
    pub fn report_url(&self) -> Result<String> {
        Ok(format!("http://{}", self.reports.local_addr()?))
    }

    /// Creates the smallest MiniCluster, patched with `spec`.
    pub async fn create(&self, name: &str, spec: Value) -> Result<MiniCluster> {
        let mut manifest = smallest_minicluster(name);
        merge(&mut manifest, &json!({ "metadata": { "namespace": self.namespace }, "spec": spec }));
        with_flux(&mut manifest);
        let minicluster = serde_json::from_value(manifest)?;
        Ok(self.miniclusters().create(&PostParams::default(), &minicluster).await?)
    }

    /// Deletes a MiniCluster as `kubectl delete` does.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.miniclusters().delete(name, &DeleteParams::background()).await?;
        Ok(())
    }

    /// Waits until a condition has a status, and returns the MiniCluster.
    pub async fn wait_for_status(
        &self,
        name: &str,
        kind: ConditionType,
        status: &str,
    ) -> Result<MiniCluster> {
        self.wait_for_condition(name, kind, |condition| condition.status == status)
            .await
            .with_context(|| format!("{name} never had {}={status}", kind.as_str()))
    }

    /// Waits until a condition has a reason, with any status, and returns the condition.
    pub async fn wait_for_reason(
        &self,
        name: &str,
        kind: ConditionType,
        reason: &str,
    ) -> Result<Condition> {
        let found =
            self.wait_for_condition(name, kind, |condition| condition.reason == reason).await;
        let found = found
            .with_context(|| format!("{name} never had reason {reason} of {}", kind.as_str()))?;
        Ok(condition(&found, kind).context("the condition is missing")?.clone())
    }

    async fn wait_for_condition(
        &self,
        name: &str,
        kind: ConditionType,
        wanted: impl Fn(&Condition) -> bool,
    ) -> Result<MiniCluster> {
        let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let changes = watcher(self.miniclusters(), one).applied_objects();
        let mut last = String::new();
        let found = first_match(changes, |minicluster| {
            let condition = condition(&minicluster, kind);
            last = format!("{:?}", minicluster.status);
            condition.is_some_and(&wanted).then_some(minicluster)
        });
        found.await.with_context(|| format!("its last status was {last}"))
    }

    /// Changes the spec of a MiniCluster with a merge patch.
    pub async fn patch(&self, name: &str, spec: Value) -> Result<()> {
        self.edit::<MiniCluster>(name, json!({ "spec": spec })).await
    }

    /// Waits until the command has finished, successfully or not.
    pub async fn wait_until_finished(&self, name: &str) -> Result<MiniCluster> {
        self.wait_for_status(name, ConditionType::JobFinished, "True").await
    }

    /// The pods of a MiniCluster.
    pub async fn pods(&self, name: &str) -> Result<Vec<Pod>> {
        let of_cluster = ListParams::default().labels(&format!("job-name={name}"));
        Ok(self.pod_api().list(&of_cluster).await?.items)
    }

    /// The newest pod with an index.
    pub async fn pod(&self, name: &str, index: u32) -> Result<Pod> {
        let mut pods = self.pods(name).await?;
        pods.retain(|pod| index_of(pod) == Some(index));
        pods.sort_by_key(|pod| pod.creation_timestamp());
        pods.pop().with_context(|| format!("there is no pod of index {index}"))
    }

    /// The log of the runner of a pod.
    pub async fn log(&self, name: &str, index: u32) -> Result<String> {
        let pod = self.pod(name, index).await?.name_any();
        let runner = LogParams { container: Some(name.into()), ..LogParams::default() };
        Ok(self.pod_api().logs(&pod, &runner).await?)
    }

    /// Waits until an init container of a pod has terminated, and returns its log.
    pub async fn wait_for_init(&self, name: &str, container: &str) -> Result<String> {
        let of_cluster = watcher::Config::default().labels(&format!("job-name={name}"));
        let changes = watcher(self.pod_api(), of_cluster).applied_objects();
        let pod = first_match(changes, |pod| {
            let statuses = pod.status.as_ref()?.init_container_statuses.as_ref()?;
            let status = statuses.iter().find(|status| status.name == container)?;
            let finished = |state: &ContainerState| state.terminated.is_some();
            let has_ended = status.state.as_ref().is_some_and(finished)
                || status.last_state.as_ref().is_some_and(finished);
            has_ended.then(|| pod.name_any())
        });
        let of_container = LogParams { container: Some(container.into()), ..LogParams::default() };
        Ok(self.pod_api().logs(&pod.await?, &of_container).await?)
    }

    /// Runs a shell command in the runner of a pod and returns its output.
    pub async fn exec(&self, name: &str, index: u32, line: &str) -> Result<String> {
        let pod = self.pod(name, index).await?.name_any();
        let parameters = AttachParams::default().container(name).stderr(true);
        let mut process = self.pod_api().exec(&pod, ["sh", "-c", line], &parameters).await?;
        let (mut output, mut errors) = (String::new(), String::new());
        let mut stdout = process.stdout().context("there is no output")?;
        let mut stderr = process.stderr().context("there is no error output")?;
        let status = process.take_status().context("there is no status")?;
        with_timeout(async {
            tokio::try_join!(stdout.read_to_string(&mut output), stderr.read_to_string(&mut errors))
        })
        .await??;
        match status.await.and_then(|status| status.status).as_deref() {
            Some("Success") => Ok(output),
            other => bail!("{line:?} exited with {other:?}: {output}{errors}"),
        }
    }

    /// Lets [`WAIT_FOR_FILE`], which runs in every pod of a MiniCluster, finish.
    pub async fn let_finish(&self, name: &str) -> Result<()> {
        for pod in self.pods(name).await? {
            let index = index_of(&pod).context("a pod has no index")?;
            self.exec(name, index, "touch /tmp/go").await?;
        }
        Ok(())
    }

    /// Waits for an Event with this reason.
    pub async fn wait_for_event(&self, reason: &str) -> Result<()> {
        self.wait_for_event_with(reason, "").await
    }

    /// Waits for an Event with this reason and this part of its message.
    pub async fn wait_for_event_with(&self, reason: &str, part: &str) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let written = watcher(events, watcher::Config::default()).applied_objects();
        let found = first_match(written, |event| {
            let has_part = event.message.as_deref().unwrap_or_default().contains(part);
            (event.reason.as_deref() == Some(reason) && has_part).then_some(())
        });
        found.await.with_context(|| format!("no Event {reason} with {part:?}"))
    }

    /// The API of MiniClusters in the namespace.
    pub fn miniclusters(&self) -> Api<MiniCluster> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The API of pods in the namespace.
    pub fn pod_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Removes finalizers: the operator may not be running to do it, or may be doing it now.
async fn remove_finalizers<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    match api.patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A condition of a MiniCluster.
pub fn condition(minicluster: &MiniCluster, kind: ConditionType) -> Option<&Condition> {
    let conditions = &minicluster.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// The index of a Job's pod.
pub fn index_of(pod: &Pod) -> Option<u32> {
    pod.annotations().get("batch.kubernetes.io/job-completion-index")?.parse().ok()
}
