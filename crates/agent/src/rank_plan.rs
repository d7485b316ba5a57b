//! Determines an agent's rank from the boot plan.

use std::io;
use std::path::{Path, PathBuf};

use flux_operator_wire::{BootPlan, TerminationReason};

use crate::arguments::CommonArguments;
use crate::view;

/// The boot plan, and the rank of one agent in it.
#[derive(Clone, Debug)]
pub struct RankPlan {
    /// The plan, which is the same for all ranks.
    pub plan: BootPlan,
    /// The rank of this agent's broker.
    pub number: u32,
    /// The role of this agent's broker.
    pub role: Role,
    /// Its host in the rank table, which need not be this machine's host name.
    pub host: String,
}

/// The role of a broker in its instance. It does not follow from the completion index of the Job:
/// index 0 of a Job whose brokers join the instance of another cluster is a joined worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Rank 0: all others connect to it, and it runs the program.
    Lead,
    /// Another broker of the lead's own Job.
    Worker,
    /// A broker of another Job, which leases its rank.
    JoinedWorker,
}

impl Role {
    /// The role of the broker with this rank.
    fn of(rank: u32, plan: &BootPlan) -> Role {
        match (rank, plan.join.is_some() || plan.first_rank > 0) {
            (_, true) => Role::JoinedWorker,
            (0, false) => Role::Lead,
            (_, false) => Role::Worker,
        }
    }
}

/// Why an agent has no rank.
#[derive(Debug, thiserror::Error)]
pub enum RankPlanError {
    /// The plan cannot be read.
    #[error("failed to read the boot plan {path:?}")]
    Read {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The plan is not valid, or is for another version of the agent.
    #[error("the boot plan {path:?} is not valid for this version of the agent")]
    Parse {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// No rank is leased for the agent, because the pod was created for another lease.
    #[error("no rank is leased for index {index}")]
    NotLeased {
        /// The agent's index.
        index: u32,
    },
    /// There are more agents than slots.
    #[error("rank {rank} is not in the rank table, which has {slots} slots")]
    NoSlot {
        /// The rank that the agent would have.
        rank: u64,
        /// The number of slots.
        slots: usize,
    },
}

impl RankPlanError {
    /// The reason in the agent's termination message.
    pub fn reason(&self) -> TerminationReason {
        match self {
            RankPlanError::NotLeased { .. } => TerminationReason::StaleTable,
            RankPlanError::Read { .. }
            | RankPlanError::Parse { .. }
            | RankPlanError::NoSlot { .. } => TerminationReason::BadPlan,
        }
    }
}

impl RankPlan {
    /// Reads the boot plan, and finds the agent's rank in it.
    pub fn read(common: &CommonArguments) -> Result<RankPlan, RankPlanError> {
        let plan = read_plan(&common.plan)?;
        let rank = match &plan.join {
            Some(join) => {
                let leased = join.ranks.nth(common.index as usize);
                leased.map(u64::from).ok_or(RankPlanError::NotLeased { index: common.index })?
            }
            None => u64::from(plan.first_rank) + u64::from(common.index),
        };
        let host = usize::try_from(rank).ok().and_then(|rank| plan.hosts.nth(rank));
        match (host, u32::try_from(rank)) {
            (Some(host), Ok(number)) => {
                let role = Role::of(number, &plan);
                Ok(RankPlan { plan, number, role, host })
            }
            _ => Err(RankPlanError::NoSlot { rank, slots: plan.hosts.len() }),
        }
    }

    /// Whether this is the lead.
    pub fn is_lead(&self) -> bool {
        self.role == Role::Lead
    }
}

/// Reads a boot plan, and resolves the path of its view.
pub fn read_plan(path: &Path) -> Result<BootPlan, RankPlanError> {
    let text = std::fs::read(path)
        .map_err(|source| RankPlanError::Read { path: path.to_owned(), source })?;
    let mut plan = serde_json::from_slice(&text)
        .map_err(|source| RankPlanError::Parse { path: path.to_owned(), source })?;
    view::resolve(&mut plan);
    Ok(plan)
}

/// How often the lead was lost before: the sum of the Job's counts of the index's failures and
/// ignored failures. An invalid count is 0.
pub fn total_failures(counts: [Option<&str>; 2]) -> u64 {
    let number = |count: &str| count.trim().parse::<u64>().unwrap_or(0);
    counts.into_iter().flatten().map(number).fold(0, u64::saturating_add)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use flux_operator_wire::{BrokerOptions, FluxHome, JoinPlan, Program};

    /// A plan for `fs-[0-3]` over sockets in `/s`.
    pub fn plan() -> BootPlan {
        BootPlan {
            cluster: "fs".into(),
            uid: String::new(),
            hosts: "fs-[0-3]".parse().unwrap(),
            first_rank: 0,
            join: None,
            quorum: 4,
            lead: "ipc:///s/fs-0".into(),
            bind: "ipc:///s/%h".into(),
            connect: "ipc:///s/%h".into(),
            port: 8050,
            broker: BrokerOptions {
                topology: "kary:256".into(),
                connect_timeout: "5s".into(),
                log_level: 6,
                socket: true,
                ..BrokerOptions::default()
            },
            config: Default::default(),
            verbatim_config: None,
            resources: Default::default(),
            host_groups: Vec::new(),
            flux: FluxHome::Path,
            program: Program::Words(vec!["hostname".into()]),
            hooks: Default::default(),
            sidecars: Vec::new(),
            logging: Default::default(),
            restart_limit: 0,
            grace_seconds: 1,
            complete_workers: false,
            python_path: String::new(),
            simple_scheduler: false,
            environment: Default::default(),
            output_directory: "/tmp/fluxout".into(),
            ready_port: 0,
            report: None,
        }
    }

    /// Rank `number` of a plan.
    pub fn rank(plan: BootPlan, number: u32) -> RankPlan {
        let host = plan.hosts.nth(number as usize).unwrap();
        let role = Role::of(number, &plan);
        RankPlan { plan, number, role, host }
    }

    fn read(plan: &BootPlan, index: u32) -> Result<RankPlan, RankPlanError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.json");
        std::fs::write(&path, serde_json::to_vec(plan).unwrap()).unwrap();
        let place = CommonArguments {
            plan: path,
            secrets: "/".into(),
            root: "/".into(),
            index,
            flux: None,
        };
        RankPlan::read(&place)
    }

    #[test]
    fn the_rank_is_the_index_from_the_first_rank_on() {
        let mut plan = plan();
        let lead = read(&plan, 0).unwrap();
        assert_eq!((lead.number, lead.role, lead.host.as_str()), (0, Role::Lead, "fs-0"));
        let worker = read(&plan, 1).unwrap();
        assert_eq!((worker.number, worker.role), (1, Role::Worker));
        plan.first_rank = 2;
        let joined = read(&plan, 0).unwrap();
        assert_eq!((joined.number, joined.role), (2, Role::JoinedWorker));
        let joined = read(&plan, 1).unwrap();
        assert_eq!((joined.number, joined.host.as_str()), (3, "fs-3"));
    }

    #[test]
    fn the_rank_of_a_joined_worker_is_the_leased_one() {
        let join = JoinPlan {
            lender: "lender".into(),
            cluster: "uid".into(),
            job: "job".into(),
            ranks: "3,1".parse().unwrap(),
            table: "hash".into(),
            remote: None,
        };
        let plan = BootPlan { join: Some(join), ..plan() };
        let joined = [0, 1].map(|index| read(&plan, index).unwrap());
        assert_eq!(
            joined.clone().map(|it| (it.number, it.role)),
            [3, 1].map(|it| (it, Role::JoinedWorker))
        );
        assert_eq!(joined.map(|it| it.host), ["fs-3", "fs-1"]);
        assert!(matches!(read(&plan, 2), Err(RankPlanError::NotLeased { index: 2 })));
    }

    #[test]
    fn an_agent_without_a_slot_is_rejected() {
        let mut plan = plan();
        assert!(matches!(read(&plan, 4), Err(RankPlanError::NoSlot { rank: 4, slots: 4 })));
        plan.first_rank = u32::MAX;
        assert!(matches!(read(&plan, u32::MAX), Err(RankPlanError::NoSlot { .. })));
    }

    #[test]
    fn failures_are_the_sum_of_the_jobs_counts() {
        for (counts, sum) in [
            ([None, None], 0),
            ([Some(""), Some("")], 0),
            ([Some("1"), Some("2")], 3),
            ([Some("x"), Some("2")], 2),
        ] {
            assert_eq!(total_failures(counts), sum, "{counts:?}");
        }
    }
}
