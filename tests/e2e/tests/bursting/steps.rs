//! What the tests of bursts have in common.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::{Burst, BurstPolicy, BurstStatus, MiniCluster};
use flux_operator_plan::bursting::BURST_LABEL;
use flux_operator_testkit::cluster::{first_match, with_timeout};
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::objects::NamespacedKind;
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret, Service};
use kube::api::{DeleteParams, ListParams, LogParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

/// Runs `flux` in the instance of a pod.
pub const FLUX: &str = ". /mnt/flux/flux-view.sh && flux proxy $fluxsocket flux";

/// Runs a test with a home, which has an operator and a gateway, and a target, which has neither.
pub async fn with_target<T>(
    test: impl AsyncFnOnce(&mut TestNamespace, &mut TestNamespace) -> Result<T>,
) -> Result<T> {
    with_two_clusters(async |home, away| {
        away.stop_operator();
        home.start_gateway().await?;
        home.start_operator().await?;
        home.create_target_secret("away", away).await?;
        Box::pin(test(home, away)).await
    })
    .await
}

/// Waits until a condition of a Burst has a status and, unless it is empty, a reason.
pub async fn wait_for_condition(
    home: &TestNamespace,
    name: &str,
    kind: &str,
    is: &str,
    reason: &str,
) -> Result<Burst> {
    let found = home.wait_for_object(name, |it: &Burst| has_condition(it, kind, is, reason));
    found.await.with_context(|| format!("{kind} is never {is} {reason}"))
}

/// The only Burst there is, once there is one.
pub async fn wait_for_burst(home: &TestNamespace) -> Result<Burst> {
    let bursts = watcher(home.api::<Burst>(), watcher::Config::default()).applied_objects();
    first_match(bursts, Some).await.context("there is no Burst")
}

/// Deletes a Burst, and waits until nothing is left of it.
pub async fn give_back(home: &TestNamespace, away: &TestNamespace, name: &str) -> Result<()> {
    home.api::<Burst>().delete(name, &DeleteParams::default()).await?;
    home.wait_until_deleted::<Burst>(name).await?;
    wait_until_nothing_is_left(away).await?;
    expect_released(home, "primary").await
}

/// The target of most tests: the other cluster.
pub fn other_cluster() -> Value {
    json!({ "name": "away", "maxNodes": 4, "startupSeconds": 1, "kubeconfig": { "secret": "away" } })
}

/// The MiniCluster of most tests: two brokers. It is created after the policy, and so has spare ranks.
pub async fn start_primary(home: &TestNamespace, name: &str) -> Result<()> {
    let spec = json!({ "size": 2, "interactive": true,
        "flux": { "bursting": { "expose": { "type": "NodePort" } } } });
    home.create(name, spec).await?;
    home.wait_for_status(name, ConditionType::Ready, "True").await?;
    Ok(())
}

/// Submits a job, and returns its id.
pub async fn submit(home: &TestNamespace, cluster: &str, words: &str) -> Result<String> {
    let job = home.exec(cluster, 0, &format!("{FLUX} submit {words}")).await?;
    Ok(job.trim().to_owned())
}

/// Waits until a job has finished, and returns the different lines of its output.
pub async fn output(home: &TestNamespace, cluster: &str, job: &str) -> Result<Vec<String>> {
    let output = home.exec(cluster, 0, &format!("{FLUX} job attach {job}")).await?;
    let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines.dedup();
    Ok(lines)
}

/// The status of a Burst.
pub fn status(burst: &Burst) -> BurstStatus {
    burst.status.clone().unwrap_or_default()
}

/// Whether a condition of a Burst has this status and, unless it is empty, this reason.
pub fn has_condition(burst: &Burst, kind: &str, is: &str, reason: &str) -> bool {
    let conditions = status(burst).conditions;
    conditions
        .iter()
        .any(|it| it.type_ == kind && it.status == is && (reason.is_empty() || it.reason == reason))
}

/// Waits until there are no Bursts.
pub async fn wait_for_no_bursts(home: &TestNamespace) -> Result<()> {
    for burst in home.api::<Burst>().list(&ListParams::default()).await? {
        let name = burst.name_any();
        home.wait_until_deleted::<Burst>(&name)
            .await
            .with_context(|| format!("Burst {name} is never given back"))?;
    }
    let left = home.api::<Burst>().list(&ListParams::default()).await?.items;
    ensure!(left.is_empty(), "others have been created meanwhile: {left:?}");
    Ok(())
}

/// Waits until nothing is left of Bursts at a target. Kubernetes deletes pods after their owners.
pub async fn wait_until_nothing_is_left(away: &TestNamespace) -> Result<()> {
    let mut left = Vec::new();
    let gone = async {
        loop {
            left = leftovers(away).await?;
            if left.is_empty() {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let outcome = with_timeout(gone).await;
    outcome.and_then(|it| it).with_context(|| format!("the target still has {left:?}"))
}

async fn leftovers(away: &TestNamespace) -> Result<Vec<String>> {
    let mut left = Vec::new();
    left.extend(labelled(&away.api::<Job>()).await?);
    left.extend(labelled(&away.api::<Pod>()).await?);
    left.extend(labelled(&away.api::<ConfigMap>()).await?);
    left.extend(labelled(&away.api::<Secret>()).await?);
    left.extend(labelled(&away.api::<Service>()).await?);
    left.extend(labelled(&away.api::<MiniCluster>()).await?);
    Ok(left)
}

async fn labelled<K>(api: &Api<K>) -> Result<Vec<String>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let found = api.list(&ListParams::default().labels(BURST_LABEL)).await?;
    Ok(found.iter().map(|it| format!("{} {}", K::kind(&()), it.name_any())).collect())
}

/// Fails if a MiniCluster still has anything of Bursts.
pub async fn expect_released(home: &TestNamespace, name: &str) -> Result<()> {
    let cluster = home.miniclusters().get(name).await?;
    let bursting = cluster.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    let invitations = bursting.map(|it| it.invitations.len()).unwrap_or_default();
    ensure!(invitations == 0, "{name} still has {invitations} invitations");
    ensure!(cluster.finalizers().is_empty(), "{name} still has {:?}", cluster.finalizers());
    Ok(())
}

/// Fails if a secret is in an object other than a Secret, or in the log of a pod.
pub async fn expect_no_secrets(
    home: &TestNamespace,
    away: &TestNamespace,
    secrets: &[String],
) -> Result<()> {
    let mut texts = Vec::new();
    for namespace in [home, away] {
        texts.push(all::<Event>(namespace).await?);
        texts.push(all::<ConfigMap>(namespace).await?);
        texts.push(all::<Job>(namespace).await?);
        texts.push(all::<Pod>(namespace).await?);
        for pod in namespace.pod_api().list(&ListParams::default()).await? {
            // One that has just been created has no log.
            let log = namespace.pod_api().logs(&pod.name_any(), &LogParams::default()).await;
            texts.push(log.unwrap_or_default());
        }
    }
    texts.push(all::<Burst>(home).await?);
    texts.push(all::<BurstPolicy>(home).await?);
    texts.push(all::<MiniCluster>(home).await?);
    let found = texts.iter().find(|text| secrets.iter().any(|secret| text.contains(secret)));
    ensure!(found.is_none(), "a secret is in {found:?}");
    Ok(())
}

async fn all<K: NamespacedKind + Serialize>(namespace: &TestNamespace) -> Result<String> {
    let listed = namespace.api::<K>().list(&ListParams::default()).await?;
    ensure!(!listed.items.is_empty(), "there is no {}", K::kind(&()));
    Ok(serde_json::to_string(&listed.items)?)
}
