//! Two replicas of the operator, as programs, and what happens to admissions when one stops; and an
//! operator whose watches stall. Their requests go through proxies.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flux_operator_api::{FluxJob, FluxSetup};
use flux_operator_testkit::cluster::{client, in_namespace, install_crds, program, with_timeout};
use flux_operator_testkit::{fluxjob, fluxsetup, merge};
use flux_operator_tests_e2e::proxy::{Fault, Proxy, RELEASED};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::process::{Child, Command};

/// The number of submitted jobs of one node.
const JOBS: usize = 6;

/// The number of nodes in the quota: fewer than jobs.
const NODES: usize = 4;

/// How much the admissions of the first leader are delayed: until after it was asked to stop, but
/// less than the timeout of a write, which is 4 s.
const ADMISSION_DELAY: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread")]
async fn no_admission_is_executed_after_the_lease_was_released() -> Result<()> {
    with_queue(async |queue| {
        for number in 0..JOBS {
            queue.submit(&format!("job-{number}")).await?;
        }
        let first = Proxy::start(queue.client.clone()).await?;
        first.inject(Fault::Delay(ADMISSION_DELAY));
        let mut leader = OperatorProcess::start(&first, queue)?;
        first.wait_until_watched().await?;
        let second = Proxy::start(queue.client.clone()).await?;
        let mut next = OperatorProcess::start(&second, queue)?;
        second.wait_until_watched().await?;

        queue.create_queue(NODES).await?;
        first.wait_for_traffic(|asked, _| admissions(asked) > 0).await?;
        let status = leader.stop().await?;
        ensure!(status.success(), "it exited with {status}");
        // Requests that were sent are executed, even late.
        first.wait_for_traffic(|asked, landed| admissions(asked) == admissions(landed)).await?;
        let landed = first.executed_writes();
        ensure!(landed.last().is_some_and(|last| last == RELEASED), "written later: {landed:#?}");

        second.wait_for_traffic(|_, landed| landed.len() > 1).await?;
        second.wait_until_idle().await?;
        ensure!(
            queue.count_admitted().await? == NODES,
            "{} have quota",
            queue.count_admitted().await?
        );
        queue.delete_all().await?;
        ensure!(next.stop().await?.success());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_watch_is_detected_within_seconds() -> Result<()> {
    with_queue(async |queue| {
        let proxy = Proxy::start(queue.client.clone()).await?;
        let mut operator = OperatorProcess::start(&proxy, queue)?;
        queue.create_queue(NODES).await?;
        queue.submit("before").await?;
        queue.wait_until_admitted("before").await?;
        proxy.wait_until_idle().await?;
        proxy.stall_watches();
        let begun = Instant::now();
        queue.submit("unseen").await?;
        queue.wait_until_admitted("unseen").await?;
        let taken = begun.elapsed();
        println!("detected after {taken:?}");
        // Otherwise it takes 290 s until the client gives up an idle watch.
        ensure!(taken < Duration::from_secs(90), "detected after {taken:?}");
        queue.delete_all().await?;
        ensure!(operator.stop().await?.success());
        Ok(())
    })
    .await
}

/// How many of these requests write the status of a FluxJob.
fn admissions(requests: &[String]) -> usize {
    let is_admission = |request: &&String| {
        request.contains("/fluxjobs/")
            && request.ends_with("/status")
            && !request.starts_with("GET")
    };
    requests.iter().filter(is_admission).count()
}

/// A namespace with a queue.
struct QueueNamespace {
    client: Client,
    namespace: String,
}

async fn with_queue(test: impl AsyncFnOnce(&QueueNamespace) -> Result<()>) -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    in_namespace(&client, async |namespace| {
        test(&QueueNamespace { client: client.clone(), namespace: namespace.to_owned() }).await
    })
    .await
}

impl QueueNamespace {
    async fn submit(&self, name: &str) -> Result<()> {
        let mut job = fluxjob(name);
        merge(&mut job, &json!({ "spec": { "image": "busybox", "command": "true" } }));
        self.jobs().create(&PostParams::default(), &serde_json::from_value(job)?).await?;
        Ok(())
    }

    /// Creates the queue.
    async fn create_queue(&self, nodes: usize) -> Result<()> {
        let setup = serde_json::from_value(fluxsetup("queue", u32::try_from(nodes)?))?;
        self.setups().create(&PostParams::default(), &setup).await?;
        Ok(())
    }

    async fn wait_until_admitted(&self, name: &str) -> Result<()> {
        let admitted = |job: Option<&FluxJob>| job.is_some_and(has_quota);
        with_timeout(await_condition(self.jobs(), name, admitted))
            .await
            .context("not admitted")??;
        Ok(())
    }

    /// The number of jobs that have quota.
    async fn count_admitted(&self) -> Result<usize> {
        let jobs = self.jobs().list(&ListParams::default()).await?;
        Ok(jobs.iter().filter(|job| has_quota(job)).count())
    }

    /// Deletes everything, while an operator is running to remove the setup's finalizer.
    async fn delete_all(&self) -> Result<()> {
        let (how, all) = (DeleteParams::background(), ListParams::default());
        self.jobs().delete_collection(&how, &all).await?;
        self.setups().delete("queue", &how).await?;
        let deleted = |setup: Option<&FluxSetup>| setup.is_none();
        with_timeout(await_condition(self.setups(), "queue", deleted)).await??;
        Ok(())
    }

    fn jobs(&self) -> Api<FluxJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn setups(&self) -> Api<FluxSetup> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

fn has_quota(job: &FluxJob) -> bool {
    job.status.as_ref().is_some_and(|status| status.admission.is_some())
}

/// A replica, as a separate process, which is killed when this is dropped.
struct OperatorProcess {
    child: Child,
    _kubeconfig: NamedTempFile,
}

impl OperatorProcess {
    fn start(proxy: &Proxy, queue: &QueueNamespace) -> Result<OperatorProcess> {
        let kubeconfig = NamedTempFile::new()?;
        serde_json::to_writer(&kubeconfig, &proxy.kubeconfig(&queue.namespace))?;
        let child = Command::new(program()?)
            .args(["run", "--leader-elect", "--bind", "127.0.0.1:0"])
            .args(["--namespace", &queue.namespace, "--agent-image", "none.invalid/none"])
            .env("KUBECONFIG", kubeconfig.path())
            .kill_on_drop(true)
            .spawn()?;
        Ok(OperatorProcess { child, _kubeconfig: kubeconfig })
    }

    /// Asks it to stop, as the kubelet does, and waits until it has exited.
    async fn stop(&mut self) -> Result<std::process::ExitStatus> {
        let pid = self.child.id().context("it has already exited")?.to_string();
        let asked = Command::new("kill").args(["-TERM", &pid]).status().await?;
        ensure!(asked.success(), "failed to ask it to stop");
        with_timeout(self.child.wait()).await?.context("failed to wait for its exit")
    }
}
