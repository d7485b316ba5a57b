//! A BurstPolicy, as the burst controller applies it.
//!
//! The world is shown to `flux_operator_burst` as the controller shows a real one: a MiniCluster with its
//! leases, the view of its jobs and ranks that the operator serves, and Burst objects with their status.
//! What is decided is `decide()`'s alone.

use std::collections::BTreeMap;

use flux_operator_api::burst::{BurstConditionType, BurstStatus, BurstTarget, MIN_IDLE_SECONDS};
use flux_operator_api::minicluster::{Lease, LeaseState, MiniClusterStatus};
use flux_operator_api::view::{InstanceJob, InstanceJobs, SlotRange};
use flux_operator_api::{Burst, BurstPolicy, BurstSpec, MiniCluster};
use flux_operator_burst::{Action, IdleRanks, Memory, PolicyState, Situation, decide};
use flux_operator_flux::{IdSet, JobId};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::Strategy;
use crate::cloud::Cloud;
use crate::world::{self, Change, World};
use crate::{DAY, HOME_NODES};

/// The policy, as it is shown in the documentation.
pub const POLICY_YAML: &str = include_str!("../../policy.yaml");

/// The second at which the simulated day starts: 2026-05-04T00:00:00Z. Any midnight in UTC would do.
const MIDNIGHT: i64 = 1_777_852_800;

/// Requests what a BurstPolicy decides.
#[derive(Clone, Debug)]
pub struct Policy {
    policy: BurstPolicy,
    cluster: MiniCluster,
    memory: Memory,
    idle: IdleRanks,
    wake: Option<u64>,
    created: u64,
    /// The targets of bursts, by id.
    targets: BTreeMap<u64, BurstTarget>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::new(parse_policy())
    }
}

/// The policy of [`POLICY_YAML`].
pub fn parse_policy() -> BurstPolicy {
    serde_saphyr::from_str(POLICY_YAML).expect("the file is a BurstPolicy: a test reads it")
}

impl Policy {
    /// A policy that has decided nothing yet.
    pub fn new(mut policy: BurstPolicy) -> Policy {
        policy.metadata.uid = Some("policy".into());
        // Isolated runs are not simulated.
        policy.spec.isolated = Some(false);
        let cluster = json!({
            "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
            "metadata": { "name": "home", "namespace": policy.namespace(), "uid": "home" },
            "spec": { "size": HOME_NODES, "containers": [{ "image": "app" }],
                "flux": { "bursting": { "expose": { "type": "LoadBalancer" } } } },
        });
        let cluster = serde_json::from_value(cluster).expect("it is a MiniCluster");
        Policy {
            policy,
            cluster,
            memory: Memory::default(),
            idle: IdleRanks::default(),
            wake: None,
            created: 0,
            targets: BTreeMap::new(),
        }
    }

    /// The bursts as objects.
    fn bursts(&self, world: &World) -> Vec<Burst> {
        let of = |(id, burst): (&u64, &world::Burst)| {
            let spec = BurstSpec {
                cluster: self.cluster.name_any(),
                policy: self.policy.name_any(),
                target: self.targets.get(id)?.clone(),
                nodes: i32::try_from(burst.nodes).unwrap_or(i32::MAX),
                drain: burst.is_draining,
                jobs: burst.jobs.iter().map(|id| JobId::from(*id).to_string()).collect(),
                ..BurstSpec::default()
            };
            let mut object = Burst::new(&burst_name(*id), spec);
            object.metadata.namespace = self.policy.namespace();
            object.metadata.owner_references =
                self.policy.controller_owner_ref(&()).map(|owner| vec![owner]);
            object.metadata.creation_timestamp = Some(Time(time(burst.created)));
            object.metadata.deletion_timestamp = burst.given_back_at.map(|at| Time(time(at)));
            object.status = Some(status(world, *id, burst));
            Some(object)
        };
        world.bursts.iter().filter_map(of).collect()
    }

    /// The MiniCluster with the leases of bursts.
    fn cluster(&self, world: &World) -> MiniCluster {
        let lease = |(id, burst): (&u64, &world::Burst)| Lease {
            ranks: id_set(burst.ranks.iter().copied()).to_string(),
            holder: String::new(),
            namespace: String::new(),
            name: burst_name(*id),
            table: String::new(),
            since: String::new(),
            state: LeaseState::Active,
            invitation: None,
        };
        let leases = world.bursts.iter().map(lease).collect();
        let status = Some(MiniClusterStatus { leases, ..MiniClusterStatus::default() });
        MiniCluster { status, ..self.cluster.clone() }
    }

    /// What the operator shows of the instance.
    fn shown(&self, world: &World) -> InstanceJobs {
        let slots = |owner: &str, from: u32, count: u32| SlotRange {
            owner: owner.into(),
            ranks: format!("{from}-{}", from + count - 1),
            hosts: format!("home-[{from}-{}]", from + count - 1),
            ..SlotRange::default()
        };
        // A MiniCluster gets as many spare ranks as its policies may have nodes.
        let spare = self.policy.spec.limits.nodes.unsigned_abs();
        let online = || world.nodes.iter().filter(|(_, node)| node.up_at <= world.now);
        let busy = online().filter(|(_, node)| node.job.is_some());
        InstanceJobs {
            listed: true,
            online: Some(id_set(online().map(|(rank, _)| *rank)).to_string()),
            busy: Some(id_set(busy.map(|(rank, _)| *rank)).to_string()),
            slots: vec![slots("Job", 0, world.home), slots("Spare", world.home, spare)],
            lead_cores: 96,
            items: world.waiting.iter().map(|job| shown_job(world, job)).collect(),
            ..InstanceJobs::default()
        }
    }

    fn change(&mut self, action: Action) -> Change {
        match action {
            Action::Create { target, nodes, jobs, .. } => {
                self.created += 1;
                let id = self.created;
                let spec = BurstSpec { target: *target, nodes, ..BurstSpec::default() };
                let ranks = spec.leased_ranks().unsigned_abs();
                let cloud = Cloud::named(&spec.target.name)
                    .expect("a test compares the policy's targets with the clouds");
                self.targets.insert(id, spec.target);
                let idle = self.policy.spec.give_back.idle_seconds().max(MIN_IDLE_SECONDS);
                Change::Create {
                    id,
                    cloud,
                    nodes: nodes.unsigned_abs(),
                    ranks,
                    only_for: None,
                    jobs,
                    idle_seconds: Some(idle.unsigned_abs().into()),
                }
            }
            Action::RunIsolated { .. } => unreachable!("the policy has no isolated runs"),
            Action::Resize { burst, nodes } => {
                Change::Resize { id: burst_id(&burst), nodes: nodes.unsigned_abs() }
            }
            Action::Drain { burst, .. } => Change::Drain { id: burst_id(&burst) },
        }
    }
}

impl Strategy for Policy {
    fn name(&self) -> &'static str {
        "policy"
    }

    fn changes(&mut self, world: &World) -> Vec<Change> {
        let now = time(world.now);
        let bursts = self.bursts(world);
        let bursts: Vec<&Burst> = bursts.iter().collect();
        let (cluster, shown) = (self.cluster(world), self.shown(world));
        let Situation { instance, pools, jobs } =
            Situation::of(&cluster, &shown, &bursts, &mut self.idle, now);
        let used = world.used_since(world.now / DAY * DAY);
        let states = [PolicyState::of(&self.policy, bursts, used)];
        let decision = decide(&instance, &states, &pools, &jobs, &self.memory, now);
        self.memory = decision.memory;
        self.wake = decision.requeue_at.map(seconds);
        decision.actions.into_iter().map(|action| self.change(action)).collect()
    }

    fn wake(&self) -> Option<u64> {
        self.wake
    }
}

fn shown_job(world: &World, job: &crate::Job) -> InstanceJob {
    // With `easy`, only the first job that waits has a reservation, and with it an estimate.
    let estimate = world.reserved.filter(|(id, _)| *id == job.id).map(|(_, at)| at);
    InstanceJob {
        id: job.id,
        nodes: Some(job.nodes),
        tasks: job.nodes,
        submitted: time(job.submitted).as_second().unsigned_abs(),
        duration: job.limit,
        estimate: estimate.map(|at| time(at).as_second().unsigned_abs()),
        ..InstanceJob::default()
    }
}

fn status(world: &World, id: u64, burst: &world::Burst) -> BurstStatus {
    let online = world.online_nodes(burst);
    let text = |at: Option<u64>| at.map(|at| time(at).to_string()).unwrap_or_default();
    let has_joined = online >= burst.nodes;
    let joined = Condition {
        type_: BurstConditionType::Joined.as_str().into(),
        status: if has_joined { "True" } else { "False" }.into(),
        reason: if has_joined { "Joined" } else { "Joining" }.into(),
        message: String::new(),
        last_transition_time: Time(time(burst.joining_since)),
        observed_generation: None,
    };
    BurstStatus {
        object_name: burst_name(id),
        online: i32::try_from(online).unwrap_or(i32::MAX),
        joined_at: text(burst.joined_at),
        giving_back_since: text(burst.given_back_at),
        counted_nodes: i32::try_from(burst.nodes).unwrap_or(i32::MAX),
        conditions: vec![joined],
        ..BurstStatus::default()
    }
}

fn burst_name(id: u64) -> String {
    format!("burst-{id}")
}

fn burst_id(name: &str) -> u64 {
    let number = name.strip_prefix("burst-").and_then(|number| number.parse().ok());
    number.expect("all names are made from ids")
}

fn id_set(ranks: impl Iterator<Item = u32>) -> IdSet {
    ranks.collect()
}

fn time(seconds: u64) -> Timestamp {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(MIDNIGHT.saturating_add(seconds)).unwrap_or(Timestamp::MAX)
}

fn seconds(time: Timestamp) -> u64 {
    // Rounded up: a moment before, nothing has changed yet.
    let whole = time.as_second() + i64::from(time.subsec_nanosecond() > 0);
    u64::try_from(whole - MIDNIGHT).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use flux_operator_api::{manifest, validate};

    use super::*;
    use crate::cloud::CLOUDS;
    use crate::run::HORIZON;

    #[test]
    fn the_policy_has_the_prices_and_start_up_times_of_the_clouds() {
        let policy = parse_policy();
        let targets: Vec<&str> = policy.spec.targets.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(targets, CLOUDS.map(|cloud| cloud.name));
        for target in &policy.spec.targets {
            let cloud = Cloud::named(&target.name).unwrap();
            assert_eq!(target.price(), cloud.price, "{}", target.name);
            let middle = (cloud.startup.0 + cloud.startup.1) / 2;
            assert_eq!(target.startup_seconds().unsigned_abs(), middle, "{}", target.name);
        }
    }

    #[test]
    fn the_policy_is_valid() {
        let manifest = manifest::read(POLICY_YAML.as_bytes()).unwrap();
        assert_eq!(manifest.warnings, Vec::<String>::new());
        for document in &manifest.documents {
            assert_eq!(validate::check_document(document), Vec::new());
        }
    }

    /// The end of a lifetime, with jobs that fail, is not simulated.
    #[test]
    fn no_burst_reaches_its_lifetime() {
        let lifetime = parse_policy().spec.limits.lifetime_seconds();
        assert!(u64::from(lifetime.unsigned_abs()) > HORIZON);
    }

    #[test]
    fn times_are_converted_and_back() {
        assert_eq!(time(0).to_string(), "2026-05-04T00:00:00Z");
        assert_eq!(seconds(time(12_345)), 12_345);
    }
}
