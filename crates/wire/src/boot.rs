//! The boot plan: everything an agent needs to start its broker.
//!
//! One plan serves all ranks of a cluster. It contains no secret and nothing
//! specific to one host: each agent chooses the paths below its own directory.

use std::collections::BTreeMap;

use flux_operator_flux::{BrokerConfig, HostList, RankList};
use serde::{Deserialize, Serialize};

use crate::BrokerFacts;

/// Everything the agents of one cluster need to start. An agent rejects a plan with an unknown
/// field, so an operator must not rewrite the plan of a cluster that another build has created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BootPlan {
    /// Name of the cluster, for messages.
    pub cluster: String,

    /// The cluster's UID: an earlier cluster may have had the same name. Empty where clusters
    /// have no UID, as on one machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,

    /// The rank table: every host that the instance can ever have, in rank order.
    pub hosts: HostList,

    /// The rank of the agent with index 0. It is not 0 where brokers of a pool are started by hand.
    #[serde(default)]
    pub first_rank: u32,

    /// How the brokers join the instance of another cluster; `None` if they start their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinPlan>,

    /// How many brokers must be online before the program starts.
    pub quorum: u32,

    /// Endpoint of the lead: `tcp://host:port`, where `host` is a name or an address, or
    /// `ipc://path` on one machine. The agent resolves the name and writes the address into the
    /// broker's configuration: a broker that resolves the name too early gets a negative answer,
    /// which its name server then caches.
    pub lead: String,

    /// The endpoint that brokers bind to, with `%p` for the port.
    pub bind: String,

    /// The endpoint at which brokers other than the lead are reached, with `%h` for the host and
    /// `%p` for the port; used where the tree has more than two levels.
    pub connect: String,

    /// The value of `%p`.
    pub port: u16,

    /// Settings of the broker.
    pub broker: BrokerOptions,

    /// The broker's configuration, without the certificate, bootstrap and resources, which the
    /// agent adds. A user's own broker.toml in [`BootPlan::verbatim_config`] replaces it.
    pub config: BrokerConfig,

    /// The user's own broker.toml, used unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbatim_config: Option<String>,

    /// Resources per node. The lead's agent counts those that are unset.
    #[serde(default)]
    pub resources: Resources,

    /// Consecutive hosts with a property and resources of their own, in rank order. Hosts that are
    /// in none of them have no property.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_groups: Vec<HostGroup>,

    /// Where Flux is.
    pub flux: FluxHome,

    /// Directory of Flux's Python packages, if it is not the one in the view.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub python_path: String,

    /// Use Flux's simple scheduler even if the view contains Fluxion.
    #[serde(default)]
    pub simple_scheduler: bool,

    /// What the lead runs.
    pub program: Program,

    /// The user's hooks.
    #[serde(default)]
    pub hooks: Hooks,

    /// Sidecar containers that run a command of their own.
    #[serde(default)]
    pub sidecars: Vec<Sidecar>,

    /// What to print.
    #[serde(default)]
    pub logging: Logging,

    /// How often the lead may be restarted.
    pub restart_limit: u32,

    /// Seconds that an agent's child processes have to exit when the agent is stopped.
    pub grace_seconds: u32,

    /// A worker does not restart its broker, whatever its exit code was.
    #[serde(default)]
    pub complete_workers: bool,

    /// Variables for shells that connect to the cluster.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,

    /// Directory for output files of jobs.
    pub output_directory: String,

    /// Port on which an agent serves its readiness probe; 0 for none.
    #[serde(default)]
    pub ready_port: u16,

    /// Where to send reports; `None` without an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportTarget>,
}

/// How the brokers of a cluster join the instance of another one, the lender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinPlan {
    /// The lender's name, for messages.
    pub lender: String,
    /// UID of the lender. Empty where clusters have no UID, as on one machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// UID of the Job that the lender's brokers belong to: another Job is another instance.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// The rank of each agent, by its index.
    pub ranks: RankList,
    /// Hash of the rank table.
    pub table: String,
    /// Where the lead is, if it is in another Kubernetes cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteLead>,
}

/// A lead in another Kubernetes cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoteLead {
    /// Where it is reached, each as `host:port`, in the order in which they are tried.
    pub addresses: Vec<String>,
    /// The invitation to ask for permission with; `None` if there is nothing to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invitation: Option<String>,
    /// Namespace and name of this cluster, for the lender's status.
    pub joiner_name: String,
    /// The lead of an instance outside Kubernetes, with which brokers compare themselves. No operator
    /// gives them permission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standalone_lead: Option<BrokerFacts>,
}

/// Consecutive hosts of the rank table with one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostGroup {
    /// The hosts.
    pub hosts: HostList,
    /// Their property, by which jobs select them.
    pub property: String,
    /// Cores of each; unset: as many as the lead has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// GPUs of each; unset: as many as the lead has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
}

/// Settings of the broker that become attributes (`-S`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BrokerOptions {
    /// Shape of the tree, such as `kary:256`.
    pub topology: String,
    /// How long one attempt to reach the parent may take.
    pub connect_timeout: String,
    /// Log level of the broker, from 1 to 7.
    pub log_level: u8,
    /// Log connection events.
    #[serde(default)]
    pub log_connections: bool,
    /// Put the broker's socket at its well-known path.
    pub socket: bool,
    /// Archive to restore the instance's state from, if the file exists, and to write it to when
    /// the instance exits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// Program to run brokers under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrap: Option<String>,
}

/// Resources of each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Cores; unset: counted by the lead's agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// GPUs; unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Bind tasks to cores. Off where pods share a machine, because all would be bound to the
    /// same cores.
    #[serde(default)]
    pub bind_tasks: bool,
}

/// Where Flux is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum FluxHome {
    /// On the search path of the image or machine.
    Path,
    /// In a view: a directory with `bin` and `lib`, or one with such a directory as the only
    /// entry of `._view`. Programs of the image take precedence over those of the view.
    View(String),
}

/// What the lead runs once enough brokers are online.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Program {
    /// Nothing: the cluster stays up.
    Stay,
    /// A program and its arguments, passed on byte for byte.
    Words(Vec<String>),
    /// A line for a shell, as typed at a prompt, and arguments that it gets as `"$@"`.
    /// Without a shell the line is split into arguments by a shell's quoting rules.
    Line {
        /// The line.
        line: String,
        /// The arguments.
        #[serde(default)]
        words: Vec<String>,
    },
    /// A script that Flux runs as a batch job. Needs a shell.
    Batch(Batch),
}

/// A batch script and how it is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Batch {
    /// Shell text to put before the command that submits the script and waits for it.
    #[serde(default)]
    pub prefix: String,
    /// Options of `flux batch`, as shell text.
    pub options: String,
    /// The script without its `#!` line: the agent adds it for the shell that it finds.
    pub script: String,
}

/// The user's hooks, each a piece of shell text; empty ones are not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hooks {
    /// Run first, on all ranks.
    pub init: String,
    /// Run once Flux is configured, on all ranks.
    pub pre: String,
    /// Run before the lead's broker.
    pub broker_pre: String,
    /// Run before a worker's broker.
    pub worker_pre: String,
    /// Run after the broker, on all ranks.
    pub post: String,
    /// A script that the program runs; written to a file before it starts.
    pub script: String,
}

/// A sidecar: a container beside the runner that runs a command of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sidecar {
    /// Its container's name.
    pub name: String,
    /// Shell text to run first.
    #[serde(default)]
    pub init: String,
    /// Shell text to run before the command.
    #[serde(default)]
    pub service_pre: String,
    /// The command, as typed at a prompt.
    #[serde(default)]
    pub command: String,
    /// Arguments that follow the command.
    #[serde(default)]
    pub words: Vec<String>,
    /// Shell text to run after the command.
    #[serde(default)]
    pub post: String,
    /// Wait for the broker's socket before the command.
    #[serde(default)]
    pub wait_for_socket: bool,
}

/// What to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Logging {
    /// Print only the program's output.
    pub quiet: bool,
    /// Stop at the first hook that fails.
    pub strict: bool,
    /// Print how long Flux and the program took.
    pub timed: bool,
}

/// Where to send reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportTarget {
    /// Address of the operator, as `http://host:port`.
    pub url: String,
    /// The cluster's UID, which is part of every seal.
    pub uid: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_a_round_trip() {
        let plan = example();
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<BootPlan>(&text).unwrap(), plan);
    }

    #[test]
    fn a_plan_with_an_unknown_field_is_rejected() {
        let mut value = serde_json::to_value(example()).unwrap();
        value["newerField"] = true.into();
        let error = serde_json::from_value::<BootPlan>(value).unwrap_err().to_string();
        assert!(error.contains("newerField"), "{error}");
    }

    fn example() -> BootPlan {
        BootPlan {
            cluster: "fs".into(),
            uid: String::new(),
            hosts: "fs-[0-3]".parse().unwrap(),
            first_rank: 0,
            join: None,
            quorum: 4,
            lead: "tcp://fs-0.fs.default.svc.cluster.local:8050".into(),
            bind: "tcp://*:%p".into(),
            connect: "tcp://%h.fs.default.svc.cluster.local:%p".into(),
            port: 8050,
            broker: BrokerOptions {
                topology: "kary:256".into(),
                connect_timeout: "5s".into(),
                log_level: 6,
                socket: true,
                ..BrokerOptions::default()
            },
            config: BrokerConfig::default(),
            verbatim_config: None,
            resources: Resources::default(),
            host_groups: Vec::new(),
            flux: FluxHome::View("/mnt/flux/view".into()),
            python_path: String::new(),
            simple_scheduler: false,
            program: Program::Line { line: "flux submit hostname".into(), words: vec!["".into()] },
            hooks: Hooks { pre: "export A='b c'\n".into(), ..Hooks::default() },
            sidecars: vec![Sidecar { name: "web".into(), ..Sidecar::default() }],
            logging: Logging::default(),
            restart_limit: 0,
            grace_seconds: 1,
            complete_workers: false,
            environment: BTreeMap::new(),
            output_directory: "/tmp/fluxout".into(),
            ready_port: 8051,
            report: None,
        }
    }
}
