//! Applies policies: has every MiniCluster decided about whose jobs are known, and creates, resizes and
//! deletes Bursts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::burst::{BurstTarget, JobAnswer};
use flux_operator_api::{Burst, BurstPolicy, BurstPolicyStatus, BurstSpec, MiniCluster};
use flux_operator_burst::{
    Action, Answer, Decision, IdleRanks, Memory, PolicyState, Situation, decide, is_burst_of,
};
use flux_operator_flux::JobId;
use flux_operator_plan::bursting::{
    needs_nodes, policy_burst_name, policy_status, selects, used_today,
};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::bursts::{Context, exactly};
use crate::errors::{chain, is_conflict, is_not_found};

/// How long a write may take to appear in the watch. Then it is decided without it: it has failed, or
/// the object was deleted again.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// How many answers a policy's status has.
const MAX_ANSWERS: usize = 50;

/// The shortest time between two writes of one policy's status, which a busy queue changes all the
/// time.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// The longest time between two decisions, for changes that no watch shows, such as a new day.
const MAX_INTERVAL: Duration = Duration::from_secs(30);

type ClusterRef = ObjectRef<MiniCluster>;

/// What is kept between two decisions. If it is lost, a target that has failed is tried again.
#[derive(Default)]
pub(crate) struct Policies {
    /// By the uid of the MiniCluster: another one of the same name is another instance.
    memories: HashMap<String, Memory>,
    idle: HashMap<String, IdleRanks>,
    /// Bursts that were created or resized, to how many nodes, and that the store does not show like
    /// that yet.
    unseen: HashMap<ObjectRef<Burst>, (i32, Instant)>,
    /// MiniClusters, by uid, for which a write was refused, and when: it is not tried again at once.
    refused: HashMap<String, Instant>,
    /// What was decided last for each MiniCluster.
    decided: HashMap<String, Vec<Answer>>,
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
        let policies = served_policies(context);
        self.follow(context, &policies);
        let stores = &context.stores;
        self.unseen.retain(|burst, (nodes, since)| {
            let shown = stores.bursts.get(burst).map(|burst| burst.spec.nodes);
            shown != Some(*nodes) && since.elapsed() < WRITE_PATIENCE
        });
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
            let uid = cluster.uid().unwrap_or_default();
            let is_unseen = self.unseen.keys().any(|it| it.namespace == reference.namespace);
            let is_deleting = cluster.metadata.deletion_timestamp.is_some();
            let was_refused =
                self.refused.get(&uid).is_some_and(|at| at.elapsed() < WRITE_PATIENCE);
            let decision = match is_unseen || is_deleting || was_refused {
                true => None,
                false => self.decide(context, &cluster, &serving, now),
            };
            if let Some(decision) = decision {
                for action in &decision.actions {
                    self.act(context, &cluster, &serving, action).await;
                }
                let wait = decision.requeue_at.map(|at| at.duration_since(now).try_into());
                next = wait.and_then(Result::ok).unwrap_or(next).min(next);
                self.memories.insert(uid.clone(), decision.memory);
                self.decided.insert(uid.clone(), decision.answers);
            }
            let is_late = context.feeds.is_late(&reference);
            let answers = match self.decided.get(&uid).filter(|_| !is_late) {
                Some(answers) => Answers::Known(answers),
                None if is_late && needs_nodes(&cluster) => Answers::Late,
                None if is_late => Answers::Known(&[]),
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
        let clusters = context.stores.clusters.state();
        let uids: HashSet<String> = clusters.iter().filter_map(|it| it.uid()).collect();
        self.memories.retain(|uid, _| uids.contains(uid));
        self.idle.retain(|uid, _| uids.contains(uid));
        self.decided.retain(|uid, _| uids.contains(uid));
        self.refused.retain(|uid, at| uids.contains(uid) && at.elapsed() < WRITE_PATIENCE);
        self.written.retain(|policy, _| context.stores.policies.get(policy).is_some());
        context.feeds.follow(&wanted);
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
        let uid = cluster.uid().unwrap_or_default();
        let idle = self.idle.entry(uid.clone()).or_default();
        let situation = Situation::of(cluster, &jobs, &bursts, idle, now);
        let states: Vec<PolicyState> =
            serving.iter().map(|policy| state_of(context, policy, now)).collect();
        let none = Memory::default();
        let memory = self.memories.get(&uid).unwrap_or(&none);
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
                let burst = self.new_burst(context, policy, cluster, target, *nodes, jobs);
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
                let patched = bursts.patch(burst, &PatchParams::default(), &patch).await;
                if patched.is_ok() {
                    self.unseen.insert(reference, (*nodes, Instant::now()));
                }
                patched.map(drop)
            }
            Action::GiveBack { burst, why } => {
                tracing::info!(burst, ?why, "a policy gives a Burst back");
                let reference = ObjectRef::new(burst).within(&namespace);
                match context.stores.bursts.get(&reference) {
                    Some(found) => bursts.delete(burst, &exactly(&found)).await.map(drop),
                    None => Ok(()),
                }
            }
        };
        if let Err(error) =
            result.or_else(|error| if is_not_found(&error) { Ok(()) } else { Err(error) })
        {
            self.refused.insert(cluster.uid().unwrap_or_default(), Instant::now());
            let cluster = cluster.name_any();
            tracing::warn!(
                cluster,
                error = chain(&error),
                "failed to apply a decision of a policy"
            );
        }
    }

    /// The Burst that a policy creates. The first name that is not taken is used.
    fn new_burst(
        &self,
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
            let reference = ObjectRef::new(name).within(&namespace);
            context.stores.bursts.get(&reference).is_none() && !self.unseen.contains_key(&reference)
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
                jobs: jobs
                    .iter()
                    .take(MAX_ANSWERS)
                    .map(|id| JobId::from(*id).to_string())
                    .collect(),
            },
        );
        burst.metadata.namespace = Some(namespace);
        // A policy that is deleted takes its Bursts with it.
        burst.metadata.owner_references = policy.controller_owner_ref(&()).map(|it| vec![it]);
        burst
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
                pending_jobs: summary.pending,
                jobs: summary.answers.clone(),
                ..policy_status(
                    &policy,
                    &of_policy,
                    is_served,
                    summary.clusters,
                    &summary.unknown,
                    now,
                )
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

/// The policies of namespaces that are served, the oldest first.
fn served_policies(context: &Context) -> Vec<Arc<BurstPolicy>> {
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
