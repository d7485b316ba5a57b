//! Applies policies: decides about every MiniCluster whose jobs are known, and creates, resizes and
//! deletes Bursts. Each namespace is on its own: what takes long there does not keep the others waiting.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flux_operator_api::{Burst, BurstPolicy, MiniCluster};
use flux_operator_burst::{
    Action, Decision, IdleRanks, Memory, PolicyState, Situation, Summary, decide, exhausted,
    is_burst_of,
};
use flux_operator_flux::JobId;
use flux_operator_plan::bursting::{Service, isolated_policy_burst, needs_nodes, policy_burst};
use flux_operator_service::lock::lock;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::applied::AppliedPolicies;
use crate::bursts::Context;
use crate::errors::{chain, exists_already, is_not_found};
use crate::policy_state::policy_state;
use crate::policy_statuses::{PolicyStatuses, Summaries};
use crate::unreadable::Found;

/// How long a write may take to appear in the watch. Then it is decided without it: it has failed, or
/// the object was deleted again.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// The longest time between two decisions, for changes that no watch shows, such as a new day.
const MAX_INTERVAL: Duration = Duration::from_secs(30);

/// The shortest, for what did not get its turn.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// How long decisions about one namespace may take before it is the turn of others. One about 10,000
/// jobs takes some 20 ms.
const TURN: Duration = Duration::from_millis(500);

/// The policies of all namespaces.
#[derive(Clone, Default)]
pub(crate) struct Policies(Arc<Mutex<HashMap<String, PoliciesOfNamespace>>>);

impl Policies {
    /// Applies the policies of a namespace, and returns when to do it again at the latest; `None` if
    /// there is nothing. It must not run twice at the same time for one namespace. What is kept between
    /// two decisions is lost if this panics or is cut off.
    pub(crate) async fn apply(&self, context: &Context, namespace: &str) -> Option<Duration> {
        let kept = lock(&self.0).remove(namespace);
        let mut policies = kept.unwrap_or_default();
        let next = policies.apply(context, namespace).await?;
        lock(&self.0).insert(namespace.to_owned(), policies);
        Some(next)
    }
}

/// What is kept between two decisions. If it is lost, a target that has failed is tried again.
#[derive(Default)]
struct PoliciesOfNamespace {
    /// By the uid of the MiniCluster: another one of the same name is another instance.
    memories: HashMap<String, Memory>,
    idle: HashMap<String, IdleRanks>,
    /// Bursts that were created or resized, to how many nodes, and that the store does not show like
    /// that yet.
    unseen: HashMap<ObjectRef<Burst>, (i32, Instant)>,
    /// MiniClusters, by uid, for which a write has failed, and when: it is not tried again at once.
    failed: HashMap<String, Instant>,
    /// What was decided last for each MiniCluster, and when.
    decided: HashMap<String, Decided>,
    statuses: PolicyStatuses,
}

/// What was decided for a MiniCluster, by policy, and when.
struct Decided {
    at: Instant,
    summaries: HashMap<String, Summary>,
}

/// A MiniCluster, with the policies that serve it.
type Served = (Arc<MiniCluster>, Vec<Arc<BurstPolicy>>);

impl PoliciesOfNamespace {
    /// Decides about all MiniClusters, applies the decisions, and returns when to do it again at the
    /// latest; `None` if there is nothing to decide.
    async fn apply(&mut self, context: &Context, namespace: &str) -> Option<Duration> {
        let now = Timestamp::now();
        let clusters = of_namespace(context.stores.clusters.state(), namespace);
        let bursts = of_namespace(context.stores.bursts.state(), namespace);
        let policies = of_namespace(context.stores.policies.state(), namespace);
        let is_served = context.home.serves(namespace);
        let applied = AppliedPolicies::of(policies.clone(), |_| is_served);
        let mut served: Vec<Served> = (clusters.iter())
            .map(|cluster| (Arc::clone(cluster), applied.serving(cluster)))
            .filter(|(_, serving)| !serving.is_empty())
            .collect();
        // Those that did not get their turn are first.
        served.sort_by_cached_key(|(cluster, _)| {
            self.decided.get(&cluster.uid().unwrap_or_default()).map(|decided| decided.at)
        });
        self.forget(&clusters);
        let named: HashSet<&str> = bursts.iter().map(|burst| burst.spec.cluster.as_str()).collect();
        let named =
            clusters.iter().filter(|it| is_served && named.contains(it.name_any().as_str()));
        let followed = served.iter().map(|(cluster, _)| cluster).chain(named);
        let followed =
            followed.map(|it| (ObjectRef::from_obj(&**it), it.uid().unwrap_or_default()));
        context.feeds.follow(namespace, &followed.collect());
        if policies.is_empty() && bursts.is_empty() {
            return None;
        }
        if is_served {
            drain_exhausted(context, &policies, &bursts, now).await;
        }
        self.unseen.retain(|burst, (nodes, since)| {
            let shown = context.stores.bursts.get(burst).map(|burst| burst.spec.nodes);
            shown != Some(*nodes) && since.elapsed() < WRITE_PATIENCE
        });
        let mut summaries = Summaries::new();
        let start = Instant::now();
        let mut next = MAX_INTERVAL;
        for (cluster, serving) in &served {
            match start.elapsed() >= TURN {
                true => next = MIN_INTERVAL,
                false => next = self.apply_to(context, cluster, serving, now).await.min(next),
            }
            for policy in serving {
                let of_cluster = self.summary(context, cluster, policy);
                summaries.entry(policy.name_any()).or_default().add(&of_cluster);
            }
        }
        if self.statuses.write(context, &policies, &bursts, &applied, &summaries, now).await {
            next = MIN_INTERVAL;
        }
        Some(next.max(MIN_INTERVAL))
    }

    /// Forgets MiniClusters that no longer exist.
    fn forget(&mut self, clusters: &[Arc<MiniCluster>]) {
        let uids: HashSet<String> = clusters.iter().filter_map(|it| it.uid()).collect();
        self.memories.retain(|uid, _| uids.contains(uid));
        self.idle.retain(|uid, _| uids.contains(uid));
        self.decided.retain(|uid, _| uids.contains(uid));
        self.failed.retain(|uid, at| uids.contains(uid) && at.elapsed() < WRITE_PATIENCE);
    }

    /// Decides about a MiniCluster, unless a write has to show first. Returns when to do it again at the
    /// latest.
    async fn apply_to(
        &mut self,
        context: &Context,
        cluster: &Arc<MiniCluster>,
        serving: &[Arc<BurstPolicy>],
        now: Timestamp,
    ) -> Duration {
        let uid = cluster.uid().unwrap_or_default();
        let is_unseen = !self.unseen.is_empty();
        let is_deleting = cluster.metadata.deletion_timestamp.is_some();
        let has_failed = self.failed.get(&uid).is_some_and(|at| at.elapsed() < WRITE_PATIENCE);
        if is_unseen || is_deleting || has_failed {
            return MAX_INTERVAL;
        }
        let Some(mut decision) = self.decide(context, cluster, serving, now).await else {
            return MAX_INTERVAL;
        };
        let mut refusals: HashMap<String, String> = HashMap::new();
        for action in std::mem::take(&mut decision.actions) {
            let Err(error) = self.act(context, cluster, serving, &action).await else { continue };
            let (cluster, error) = (cluster.name_any(), chain(&error));
            tracing::warn!(cluster, error, "failed to apply a decision of a policy");
            self.failed.insert(uid.clone(), Instant::now());
            if let Action::Create { policy, .. } | Action::RunIsolated { policy, .. } = action {
                decision.record_refusal(&policy, &error);
                refusals.insert(policy, error);
            }
        }
        self.memories.insert(uid.clone(), decision.memory);
        let summaries = serving.iter().map(|policy| {
            let name = policy.name_any();
            let summary = Summary::of(&name, &cluster.name_any(), &decision.answers);
            let summary = Summary { refused: refusals.remove(&name), ..summary };
            (name, summary)
        });
        self.decided.insert(uid, Decided { at: Instant::now(), summaries: summaries.collect() });
        let wait = decision.requeue_at.map(|at| at.duration_since(now).try_into());
        wait.and_then(Result::ok).unwrap_or(MAX_INTERVAL)
    }

    /// What was decided last for a MiniCluster and a policy that serves it.
    fn summary(&self, context: &Context, cluster: &MiniCluster, policy: &BurstPolicy) -> Summary {
        let is_late = context.feeds.is_late(&ObjectRef::from_obj(cluster));
        let decided = self.decided.get(&cluster.uid().unwrap_or_default());
        let decided = decided.and_then(|it| it.summaries.get(&policy.name_any()));
        match decided.filter(|_| !is_late) {
            Some(summary) => summary.clone(),
            None if is_late && needs_nodes(cluster) => Summary::unknown(&cluster.name_any()),
            None if is_late => Summary { clusters: 1, ..Summary::default() },
            None => Summary::expected(),
        }
    }

    /// Decides about a MiniCluster whose jobs are known. A long queue takes a while, so that is not done
    /// on a thread that serves others.
    async fn decide(
        &mut self,
        context: &Context,
        cluster: &Arc<MiniCluster>,
        serving: &[Arc<BurstPolicy>],
        now: Timestamp,
    ) -> Option<Decision> {
        let reference = ObjectRef::from_obj(&**cluster);
        let jobs = context.feeds.jobs(&reference)?;
        let bursts = bursts_of(context, cluster);
        let states: Vec<PolicyState> =
            serving.iter().map(|policy| state_of(context, policy, now)).collect();
        let uid = cluster.uid().unwrap_or_default();
        let memory = self.memories.get(&uid).cloned().unwrap_or_default();
        let mut idle = self.idle.remove(&uid).unwrap_or_default();
        let cluster = Arc::clone(cluster);
        let decided = tokio::task::spawn_blocking(move || {
            let bursts: Vec<&Burst> = bursts.iter().map(Arc::as_ref).collect();
            let situation = Situation::of(&cluster, &jobs, &bursts, &mut idle, now);
            let start = Instant::now();
            let Situation { instance, pools, jobs } = &situation;
            let decision = decide(instance, &states, pools, jobs, &memory, now);
            (decision, idle, start.elapsed())
        });
        match decided.await {
            Ok((decision, idle, took)) => {
                context.metrics.decide_seconds.observe(took.as_secs_f64());
                self.idle.insert(uid, idle);
                Some(decision)
            }
            // One that panics must not keep the others from being decided.
            Err(error) => {
                tracing::error!(cluster = %reference, %error, "a decision has failed");
                self.failed.insert(uid, Instant::now());
                None
            }
        }
    }

    /// Applies a part of a decision.
    async fn act(
        &mut self,
        context: &Context,
        cluster: &MiniCluster,
        serving: &[Arc<BurstPolicy>],
        action: &Action,
    ) -> Result<(), kube::Error> {
        let namespace = cluster.namespace().unwrap_or_default();
        let bursts = context.home.api::<Burst>(&namespace);
        let named = |name: &String| serving.iter().find(|it| it.name_any() == *name);
        match action {
            Action::Create { policy, target, nodes, jobs } => {
                let Some(policy) = named(policy) else { return Ok(()) };
                let is_free = |name: &str| {
                    let reference = ObjectRef::new(name).within(&namespace);
                    let is_missing = matches!(context.stores.burst(&reference), Found::Missing);
                    is_missing && !self.unseen.contains_key(&reference)
                };
                let burst = policy_burst(policy, cluster, target, *nodes, jobs, is_free);
                let reference = ObjectRef::from_obj(&burst);
                tracing::info!(burst = %reference, nodes, "a policy creates a Burst");
                self.create(&bursts, &burst).await
            }
            Action::RunIsolated { policy, target, nodes, job } => {
                let Some(policy) = named(policy) else { return Ok(()) };
                let burst = isolated_policy_burst(policy, cluster, target, *nodes, *job);
                let reference = ObjectRef::from_obj(&burst);
                let id = JobId::from(*job);
                tracing::info!(burst = %reference, nodes, job = %id, "a policy runs a job elsewhere");
                self.create(&bursts, &burst).await
            }
            Action::Resize { burst, nodes } => {
                tracing::info!(burst, nodes, "a policy resizes a Burst");
                patch(&bursts, burst, json!({ "spec": { "nodes": nodes } })).await?;
                let reference = ObjectRef::new(burst).within(&namespace);
                self.unseen.insert(reference, (*nodes, Instant::now()));
                Ok(())
            }
            Action::Drain { burst, why } => {
                tracing::info!(burst, ?why, "a policy drains a Burst");
                let reference = ObjectRef::new(burst).within(&namespace);
                match context.stores.bursts.get(&reference) {
                    Some(found) if !found.spec.drain => drain(&bursts, burst).await,
                    _ => Ok(()),
                }
            }
        }
    }

    /// Creates a Burst, unless it exists: then its creation was forgotten.
    async fn create(&mut self, bursts: &Api<Burst>, burst: &Burst) -> Result<(), kube::Error> {
        match bursts.create(&PostParams::default(), burst).await {
            Err(error) if !exists_already(&error) => Err(error),
            _ => {
                let written = (burst.spec.nodes, Instant::now());
                self.unseen.insert(ObjectRef::from_obj(burst), written);
                Ok(())
            }
        }
    }
}

/// Drains the Bursts of policies that have reached a limit of the day, also of those that serve no
/// MiniCluster any more, or one whose jobs are not known.
async fn drain_exhausted(
    context: &Context,
    policies: &[Arc<BurstPolicy>],
    bursts: &[Arc<Burst>],
    now: Timestamp,
) {
    let is_limited = |policy: &&Arc<BurstPolicy>| {
        let limits = &policy.spec.limits;
        limits.node_hours_per_day.is_some() || limits.cost_per_day().is_some()
    };
    for policy in policies.iter().filter(is_limited) {
        let usage = policy.status.as_ref().and_then(|status| status.usage.as_ref());
        let state = policy_state(policy, bursts.iter().map(Arc::as_ref), usage, now);
        let Some(why) = exhausted(&state) else { continue };
        let own = bursts.iter().filter(|burst| is_burst_of(policy, burst) && may_drain(burst));
        for burst in own {
            let reference = ObjectRef::from_obj(&**burst);
            tracing::info!(burst = %reference, ?why, "a policy drains a Burst");
            let api = context.home.api::<Burst>(&burst.namespace().unwrap_or_default());
            if let Err(error) = drain(&api, &burst.name_any()).await {
                tracing::warn!(burst = %reference, error = chain(&error), "failed to drain a Burst");
            }
        }
    }
}

/// Whether a Burst has nodes that can be drained. A run goes on to its end.
fn may_drain(burst: &Burst) -> bool {
    !burst.spec.drain && !burst.is_isolated() && burst.metadata.deletion_timestamp.is_none()
}

/// Has a Burst drained, unless it was deleted.
async fn drain(bursts: &Api<Burst>, name: &str) -> Result<(), kube::Error> {
    patch(bursts, name, json!({ "spec": { "drain": true } })).await
}

/// Changes a Burst, unless it was deleted.
async fn patch(bursts: &Api<Burst>, name: &str, change: Value) -> Result<(), kube::Error> {
    match bursts.patch(name, &PatchParams::default(), &Patch::Merge(change)).await {
        Err(error) if !is_not_found(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Those of a namespace.
fn of_namespace<K: ResourceExt>(mut objects: Vec<Arc<K>>, namespace: &str) -> Vec<Arc<K>> {
    objects.retain(|object| object.meta().namespace.as_deref() == Some(namespace));
    objects
}

fn bursts_of(context: &Context, cluster: &MiniCluster) -> Vec<Arc<Burst>> {
    let mut bursts = context.stores.bursts.state();
    bursts.retain(|burst| {
        burst.namespace() == cluster.namespace() && burst.spec.cluster == cluster.name_any()
    });
    bursts.sort_by_key(|it| (it.creation_timestamp(), it.name_any()));
    bursts
}

/// A policy, with what its Bursts use.
fn state_of(context: &Context, policy: &BurstPolicy, now: Timestamp) -> PolicyState {
    let bursts = context.stores.bursts.state();
    let usage = policy.status.as_ref().and_then(|status| status.usage.as_ref());
    // What a Burst uses that cannot be read is not known, nor which job it runs.
    let namespace = policy.namespace().unwrap_or_default();
    let is_unknown = context.stores.unreadable.has_any::<Burst>(&namespace);
    let blocked = is_unknown.then(|| Service::UnreadableBurst.blocked()).flatten();
    PolicyState {
        blocked: blocked.map(|(_, message)| message),
        ..policy_state(policy, bursts.iter().map(Arc::as_ref), usage, now)
    }
}

#[cfg(test)]
mod tests;
