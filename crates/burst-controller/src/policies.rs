//! Applies policies: has every MiniCluster decided about whose jobs are known, and creates, resizes and
//! deletes Bursts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::burst::{BurstTarget, JobAnswer};
use flux_operator_api::{Burst, BurstPolicy, BurstPolicyStatus, BurstSpec, MiniCluster};
use flux_operator_burst::{
    Action, Answer, Decision, IdleRanks, Memory, PolicyState, Pool, PoolState, Situation, decide,
    is_burst_of,
};
use flux_operator_flux::JobId;
use flux_operator_plan::bursting::{policy_burst_name, policy_status, selects, used_today};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::bursts::Context;
use crate::errors::{chain, is_conflict, is_not_found};

/// How long a write may take to appear in the watch. Then it is decided without it: it has failed, or
/// the object was deleted again.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// How many answers a policy's status has.
const MAX_ANSWERS: usize = 50;

/// The shortest time between two writes of one policy's status, which a busy queue changes all the
/// time.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// How long a target is not tried again after a Burst whose brokers did not join.
const FAILED_DURATION: SignedDuration = SignedDuration::from_mins(10);

/// The longest time between two decisions, for changes that no watch shows, such as a new day.
const MAX_INTERVAL: Duration = Duration::from_secs(30);

type ClusterRef = ObjectRef<MiniCluster>;

/// What is kept between two rounds. If it is lost, nothing is requested that would not have been.
#[derive(Default)]
pub(crate) struct Policies {
    memories: HashMap<ClusterRef, Memory>,
    idle: HashMap<ClusterRef, IdleRanks>,
    /// Bursts that were created or resized, to how many nodes, and that the store does not show like
    /// that yet.
    unseen: HashMap<ObjectRef<Burst>, (i32, Instant)>,
    /// Targets of MiniClusters whose last Burst has never joined, and until when they are not tried
    /// again.
    failed: HashMap<(ClusterRef, String, String), Timestamp>,
    /// What was decided last for each MiniCluster.
    decided: HashMap<ClusterRef, Vec<Answer>>,
    /// When the status of each policy was written last.
    written: HashMap<ObjectRef<BurstPolicy>, Instant>,
}

/// What was decided for the MiniClusters of one policy.
#[derive(Default)]
struct Summary {
    clusters: i32,
    pending: i32,
    answers: Vec<JobAnswer>,
    /// MiniClusters whose jobs are not known.
    unknown: Vec<String>,
    /// The jobs of a MiniCluster will be known in a moment.
    is_incomplete: bool,
}

impl Policies {
    /// Decides about all MiniClusters, applies the decisions, and returns when to do it again at the
    /// latest.
    pub(crate) async fn apply(&mut self, context: &Context) -> Duration {
        let now = Timestamp::now();
        let policies = accepted_first(context);
        self.follow(context, &policies);
        let stores = &context.stores;
        self.unseen.retain(|burst, (nodes, since)| {
            let shown = stores.bursts.get(burst).map(|burst| burst.spec.nodes);
            shown != Some(*nodes) && since.elapsed() < WRITE_PATIENCE
        });
        self.note_failures(context, now);
        let mut summaries: BTreeMap<String, Summary> = BTreeMap::new();
        let mut next = MAX_INTERVAL;
        for cluster in stores.clusters.state() {
            let serving: Vec<Arc<BurstPolicy>> =
                policies.iter().filter(|policy| selects(policy, &cluster)).cloned().collect();
            if serving.is_empty() || cluster.spec.is_joiner() {
                continue;
            }
            for policy in &serving {
                summaries.entry(key(policy)).or_default().clusters += 1;
            }
            let reference = ObjectRef::from_obj(&*cluster);
            let is_unseen = self.unseen.keys().any(|it| it.namespace == reference.namespace);
            let is_deleting = cluster.metadata.deletion_timestamp.is_some();
            let decision = match is_unseen || is_deleting {
                true => None,
                false => self.decide(context, &cluster, &serving, now),
            };
            if let Some(decision) = decision {
                for action in &decision.actions {
                    self.act(context, &cluster, &serving, action).await;
                }
                let wait = decision.requeue_at.map(|at| at.duration_since(now).try_into());
                next = wait.and_then(Result::ok).unwrap_or(next).min(next);
                self.memories.insert(reference.clone(), decision.memory);
                self.decided.insert(reference.clone(), decision.answers);
            }
            let is_late = context.feeds.is_late(&reference);
            let answers = match self.decided.get(&reference).filter(|_| !is_late) {
                Some(answers) => Answers::Known(answers),
                None if is_late => Answers::Late,
                None => Answers::Expected,
            };
            summarize(&mut summaries, &cluster, &serving, &answers);
        }
        let nodes = stores.bursts.state().iter().map(|burst| i64::from(burst.spec.nodes)).sum();
        context.metrics.nodes.set(nodes);
        self.write_statuses(context, &summaries, now).await;
        next.max(Duration::from_millis(100))
    }

    /// Follows the jobs of every MiniCluster that a policy serves or a Burst names.
    fn follow(&mut self, context: &Context, policies: &[Arc<BurstPolicy>]) {
        let clusters = context.stores.clusters.state().into_iter().filter(|cluster| {
            policies.iter().any(|policy| selects(policy, cluster)) && !cluster.spec.is_joiner()
        });
        let mut wanted: HashSet<ClusterRef> =
            clusters.map(|it| ObjectRef::from_obj(&*it)).collect();
        wanted.extend(context.stores.bursts.state().iter().map(|burst| {
            let namespace = burst.namespace().unwrap_or_default();
            ObjectRef::new(&burst.spec.cluster).within(&namespace)
        }));
        wanted.retain(|it| context.home.serves(it.namespace.as_deref().unwrap_or_default()));
        self.memories.retain(|cluster, _| wanted.contains(cluster));
        self.idle.retain(|cluster, _| wanted.contains(cluster));
        self.decided.retain(|cluster, _| wanted.contains(cluster));
        context.feeds.follow(&wanted);
    }

    /// Notes targets that are given up because no broker has ever joined, so that the next one in the
    /// list is tried.
    fn note_failures(&mut self, context: &Context, now: Timestamp) {
        self.failed.retain(|_, until| *until > now);
        for burst in context.stores.bursts.state() {
            let status = burst.status.clone().unwrap_or_default();
            let has_joined = status.online > 0 || !status.idle_since.is_empty();
            let since = status.giving_back_since.parse::<Timestamp>();
            if let (Ok(since), Some(policy), false) = (since, burst.policy(), has_joined) {
                let namespace = burst.namespace().unwrap_or_default();
                let cluster = ObjectRef::new(&burst.spec.cluster).within(&namespace);
                let key = (cluster, policy.to_owned(), burst.spec.target.name.clone());
                self.failed.insert(key, since + FAILED_DURATION);
            }
        }
    }

    /// The targets of a MiniCluster that are not tried now, as Bursts without nodes.
    fn failed_targets(&self, cluster: &ClusterRef, serving: &[Arc<BurstPolicy>]) -> Vec<Pool> {
        let of_cluster = self.failed.iter().filter(|((it, _, _), _)| it == cluster);
        let pools = of_cluster.filter_map(|((_, policy, target), until)| {
            let policy = serving.iter().find(|it| it.name_any() == *policy)?;
            let target = policy.spec.targets.iter().find(|it| it.name == *target)?;
            Some(Pool {
                name: String::new(),
                policy: Some(policy.name_any()),
                target: target.clone(),
                nodes: 0,
                state: PoolState::Failed { until: *until },
            })
        });
        pools.collect()
    }

    fn decide(
        &mut self,
        context: &Context,
        cluster: &MiniCluster,
        serving: &[Arc<BurstPolicy>],
        now: Timestamp,
    ) -> Option<Decision> {
        let reference = ObjectRef::from_obj(cluster);
        let jobs = context.feeds.jobs(&reference)?;
        let bursts = bursts_of(context, cluster);
        let bursts: Vec<&Burst> = bursts.iter().map(Arc::as_ref).collect();
        let idle = self.idle.entry(reference.clone()).or_default();
        let mut situation = Situation::of(cluster, &jobs, &bursts, idle, now);
        situation.pools.extend(self.failed_targets(&reference, serving));
        let states: Vec<PolicyState> =
            serving.iter().map(|policy| state_of(context, policy, now)).collect();
        let none = Memory::default();
        let memory = self.memories.get(&reference).unwrap_or(&none);
        let start = Instant::now();
        let Situation { instance, pools, jobs } = &situation;
        let decision = decide(instance, &states, pools, jobs, memory, now);
        context.metrics.decide_seconds.observe(start.elapsed().as_secs_f64());
        Some(decision)
    }

    async fn act(
        &mut self,
        context: &Context,
        cluster: &MiniCluster,
        serving: &[Arc<BurstPolicy>],
        action: &Action,
    ) {
        let namespace = cluster.namespace().unwrap_or_default();
        let bursts = context.home.api::<Burst>(&namespace);
        let result = match action {
            Action::Create { policy, target, nodes, jobs } => {
                let Some(policy) = serving.iter().find(|it| it.name_any() == *policy) else {
                    return;
                };
                let burst = new_burst(context, policy, cluster, target, *nodes, jobs);
                let reference = ObjectRef::from_obj(&burst);
                tracing::info!(burst = %reference, nodes, "a policy creates a Burst");
                match bursts.create(&PostParams::default(), &burst).await {
                    Err(error) if !is_conflict(&error) => Err(error),
                    _ => {
                        self.unseen.insert(reference, (*nodes, Instant::now()));
                        Ok(())
                    }
                }
            }
            Action::Resize { burst, nodes } => {
                tracing::info!(burst, nodes, "a policy resizes a Burst");
                let patch = Patch::Merge(json!({ "spec": { "nodes": nodes } }));
                let reference = ObjectRef::new(burst).within(&namespace);
                self.unseen.insert(reference, (*nodes, Instant::now()));
                bursts.patch(burst, &PatchParams::default(), &patch).await.map(drop)
            }
            Action::GiveBack { burst, why } => {
                tracing::info!(burst, ?why, "a policy gives a Burst back");
                bursts.delete(burst, &DeleteParams::default()).await.map(drop)
            }
        };
        if let Err(error) =
            result.or_else(|error| if is_not_found(&error) { Ok(()) } else { Err(error) })
        {
            let cluster = cluster.name_any();
            tracing::warn!(
                cluster,
                error = chain(&error),
                "failed to apply a decision of a policy"
            );
        }
    }

    async fn write_statuses(
        &mut self,
        context: &Context,
        summaries: &BTreeMap<String, Summary>,
        now: Timestamp,
    ) {
        for policy in context.stores.policies.state() {
            let reference = ObjectRef::from_obj(&*policy);
            let none = Summary::default();
            let summary = summaries.get(&key(&policy)).unwrap_or(&none);
            let of_policy = bursts_of_policy(context, &policy);
            let of_policy: Vec<&Burst> = of_policy.iter().map(Arc::as_ref).collect();
            let is_served = context.home.serves(&policy.namespace().unwrap_or_default());
            let status = BurstPolicyStatus {
                clusters: summary.clusters,
                pending_jobs: summary.pending,
                jobs: summary.answers.clone(),
                ..policy_status(&policy, &of_policy, is_served, &summary.unknown, now)
            };
            let lately =
                self.written.get(&reference).is_some_and(|at| at.elapsed() < STATUS_INTERVAL);
            let is_early = summary.is_incomplete && policy.status.is_some();
            if policy.status.as_ref() == Some(&status) || lately || is_early {
                continue;
            }
            self.written.insert(reference.clone(), Instant::now());
            let mut changed = (*policy).clone();
            changed.status = Some(status);
            let policies = context.home.api::<BurstPolicy>(&policy.namespace().unwrap_or_default());
            let name = policy.name_any();
            match policies.replace_status(&name, &PostParams::default(), &changed).await {
                Ok(_) => {}
                Err(error) if is_conflict(&error) || is_not_found(&error) => {}
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(policy = %reference, error, "failed to write a policy's status");
                }
            }
        }
    }
}

/// The policies that are applied, the oldest first.
fn accepted_first(context: &Context) -> Vec<Arc<BurstPolicy>> {
    let mut policies = context.stores.policies.state();
    policies.retain(|policy| {
        let is_deleting = policy.metadata.deletion_timestamp.is_some();
        !is_deleting && context.home.serves(&policy.namespace().unwrap_or_default())
    });
    policies.sort_by_key(|it| (it.creation_timestamp(), it.name_any()));
    policies
}

fn key(policy: &BurstPolicy) -> String {
    format!("{}/{}", policy.namespace().unwrap_or_default(), policy.name_any())
}

fn bursts_of(context: &Context, cluster: &MiniCluster) -> Vec<Arc<Burst>> {
    let mut bursts = context.stores.bursts.state();
    bursts.retain(|burst| {
        burst.namespace() == cluster.namespace() && burst.spec.cluster == cluster.name_any()
    });
    bursts.sort_by_key(|it| (it.creation_timestamp(), it.name_any()));
    bursts
}

fn bursts_of_policy(context: &Context, policy: &BurstPolicy) -> Vec<Arc<Burst>> {
    let mut bursts = context.stores.bursts.state();
    bursts.retain(|burst| is_burst_of(policy, burst));
    bursts
}

/// A policy, with what its Bursts use.
fn state_of(context: &Context, policy: &BurstPolicy, now: Timestamp) -> PolicyState {
    let bursts = bursts_of_policy(context, policy);
    let bursts: Vec<&Burst> = bursts.iter().map(Arc::as_ref).collect();
    let usage = policy.status.as_ref().and_then(|status| status.usage.as_ref());
    let used = used_today(usage, bursts.iter().copied(), now);
    PolicyState::of(policy, bursts, used)
}

/// The Burst that a policy creates. The first name that is not taken is used.
fn new_burst(
    context: &Context,
    policy: &BurstPolicy,
    cluster: &MiniCluster,
    target: &BurstTarget,
    nodes: i32,
    jobs: &[u64],
) -> Burst {
    let namespace = cluster.namespace().unwrap_or_default();
    let uid = |object: Option<String>| object.unwrap_or_default();
    let (policy_uid, cluster_uid) = (uid(policy.uid()), uid(cluster.uid()));
    let name = |number: usize| {
        policy_burst_name(&policy_uid, &cluster_uid, &cluster.name_any(), &target.name, number)
    };
    let is_free = |name: &String| {
        context.stores.bursts.get(&ObjectRef::new(name).within(&namespace)).is_none()
    };
    let name = (0..).map(name).find(is_free).unwrap_or_default();
    let mut burst = Burst::new(
        &name,
        BurstSpec {
            cluster: cluster.name_any(),
            policy: policy.name_any(),
            target: target.clone(),
            nodes,
            lifetime_seconds: Some(policy.spec.limits.lifetime_seconds()),
            idle_seconds: Some(policy.spec.give_back.idle_seconds()),
            grace_seconds: Some(policy.spec.give_back.grace_seconds()),
            jobs: jobs.iter().take(MAX_ANSWERS).map(|id| JobId::from(*id).to_string()).collect(),
        },
    );
    burst.metadata.namespace = Some(namespace);
    // A policy that is deleted takes its Bursts with it.
    burst.metadata.owner_references = policy.controller_owner_ref(&()).map(|it| vec![it]);
    burst
}

/// What is known of the jobs of a MiniCluster.
enum Answers<'a> {
    /// What was decided for them.
    Known(&'a [Answer]),
    /// Nothing yet: the controller has just started.
    Expected,
    /// Nothing, although the operator has had time to list them.
    Late,
}

/// Adds what was decided for a MiniCluster to the summaries of the policies that serve it.
fn summarize(
    summaries: &mut BTreeMap<String, Summary>,
    cluster: &MiniCluster,
    serving: &[Arc<BurstPolicy>],
    answers: &Answers<'_>,
) {
    for policy in serving {
        let name = policy.name_any();
        let summary = summaries.entry(key(policy)).or_default();
        let answers = match answers {
            Answers::Known(answers) => answers,
            Answers::Expected => {
                summary.is_incomplete = true;
                continue;
            }
            Answers::Late => {
                summary.unknown.push(cluster.name_any());
                continue;
            }
        };
        let of_policy = answers.iter().filter(|it| it.policy.as_ref() == Some(&name));
        for answer in of_policy.filter(|it| it.reason.is_selected()) {
            summary.pending = summary.pending.saturating_add(1);
            if summary.answers.len() < MAX_ANSWERS {
                summary.answers.push(JobAnswer {
                    cluster: cluster.name_any(),
                    id: JobId::from(answer.job).to_string(),
                    reason: answer.reason.as_str().to_owned(),
                    message: answer.message.clone(),
                });
            }
        }
    }
}
