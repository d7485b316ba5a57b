//! The boot plan: everything an agent needs to start its broker.
//!
//! One plan serves all ranks of a cluster. Nothing in it is secret, nothing in
//! it is about one host: paths below the agent's own directory are the agent's
//! to choose.

use std::collections::BTreeMap;

use flux_operator_flux::{BrokerConfig, HostList};
use serde::{Deserialize, Serialize};

/// What the agents of one cluster do. An agent that does not know a field refuses the plan, so
/// an operator must not rewrite the plan of a cluster that another build has made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BootPlan {
    /// Name of the cluster, for messages.
    pub cluster: String,

    /// Identity of the cluster: another one may have had the same name. Empty where
    /// nothing gives identities, as on one machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,

    /// The rank table: every host the instance may ever have, in rank order.
    pub hosts: HostList,

    /// The rank of the agent with index 0. Not 0 where a cluster leases slots of
    /// another one.
    #[serde(default)]
    pub first_rank: u32,

    /// How many brokers must be online before the program starts.
    pub quorum: u32,

    /// Address of the lead: a name to resolve or an address, with a port, as
    /// `tcp://host:port`, or `ipc://path` on one machine. The agent puts what
    /// the name resolves to into the broker's configuration, because a broker
    /// that asks for a name too early waits long for a cached "no".
    pub lead: String,

    /// Where brokers listen, with `%p` for the port.
    pub bind: String,

    /// Where brokers other than the lead are reached, with `%h` and `%p`; needed
    /// where the tree has more than two levels.
    pub connect: String,

    /// The port of `%p`.
    pub port: u16,

    /// Settings of the broker.
    pub broker: BrokerOptions,

    /// The configuration, without what only the agent knows: certificate,
    /// bootstrap and resources are filled in by it. When the user gave a
    /// whole broker.toml, [`BootPlan::verbatim_config`] replaces it.
    pub config: BrokerConfig,

    /// The user's own broker.toml, used as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbatim_config: Option<String>,

    /// Resources per node. What is unset the lead's agent counts.
    #[serde(default)]
    pub resources: Resources,

    /// Where Flux is.
    pub flux: FluxHome,

    /// Where Flux's Python packages are, if not where a view has them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub python_path: String,

    /// Flux's own simple scheduler stays, although a view may bring Fluxion.
    #[serde(default)]
    pub simple_scheduler: bool,

    /// What the lead runs.
    pub program: Program,

    /// The user's hooks.
    #[serde(default)]
    pub hooks: Hooks,

    /// Containers beside the runner that run a command of theirs.
    #[serde(default)]
    pub sidecars: Vec<Sidecar>,

    /// What is printed.
    #[serde(default)]
    pub logging: Logging,

    /// How often the lead may be started again.
    pub restart_limit: u32,

    /// How long everything below an agent has to end when the agent is told to, in seconds.
    pub grace_seconds: u32,

    /// A worker does not start its broker again, whatever it ended with.
    #[serde(default)]
    pub complete_workers: bool,

    /// Variables for shells that connect to the cluster.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,

    /// Directory for output files of jobs.
    pub output_directory: String,

    /// Port on which an agent answers whether it is ready; 0 for none.
    #[serde(default)]
    pub ready_port: u16,

    /// Where reports go; none without an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportTarget>,
}

/// Settings of the broker that become attributes (`-S`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BrokerOptions {
    /// Shape of the tree, such as `kary:256`.
    pub topology: String,
    /// How long one attempt to reach the parent may take.
    pub connect_timeout: String,
    /// How much is logged, from 1 to 7.
    pub log_level: u8,
    /// Log what connections do.
    #[serde(default)]
    pub log_connections: bool,
    /// The socket is at its well-known path.
    pub socket: bool,
    /// State to start from, if the file exists, and to leave at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// Program that brokers are run under.
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
    /// Tasks are bound to cores. Not where pods share a machine: all would be
    /// bound to the same ones.
    #[serde(default)]
    pub bind_tasks: bool,
}

/// Where Flux is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum FluxHome {
    /// On the search path of the image or machine.
    Path,
    /// In a view, a directory with `bin` and `lib`, or one with such a directory
    /// as the only entry of `._view`. What the image has of the same name wins.
    View(String),
}

/// What the lead runs once enough brokers are online.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Program {
    /// Nothing: the cluster stays up.
    Stay,
    /// These words, passed on byte for byte.
    Words(Vec<String>),
    /// A line for a shell, as typed at a prompt, and words it gets as `"$@"`.
    /// Without a shell the line is split by a shell's rules for words.
    Line {
        /// The line.
        line: String,
        /// The words.
        #[serde(default)]
        words: Vec<String>,
    },
    /// A script that Flux runs as a job of its own. Needs a shell.
    Batch(Batch),
}

/// A batch script and how it is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Batch {
    /// Shell text before the command that submits the script and waits for it.
    #[serde(default)]
    pub prefix: String,
    /// Options of `flux batch`, as shell text.
    pub options: String,
    /// The script, without its first line: the agent knows what shell there is.
    pub script: String,
}

/// The user's hooks, each a piece of shell text; empty ones are not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hooks {
    /// First, everywhere.
    pub init: String,
    /// When Flux is configured, everywhere.
    pub pre: String,
    /// Before the lead's broker.
    pub broker_pre: String,
    /// Before a worker's broker.
    pub worker_pre: String,
    /// After the broker, everywhere.
    pub post: String,
    /// A script that the program runs; written to a file before it starts.
    pub script: String,
}

/// A container beside the runner that runs a command of its own.
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
    /// Words that follow the command.
    #[serde(default)]
    pub words: Vec<String>,
    /// Shell text to run after the command.
    #[serde(default)]
    pub post: String,
    /// Wait for the broker's socket before the command.
    #[serde(default)]
    pub wait_for_socket: bool,
}

/// What is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Logging {
    /// Only what the program prints.
    pub quiet: bool,
    /// Stop at the first hook that fails.
    pub strict: bool,
    /// Print how long Flux and the program took.
    pub timed: bool,
}

/// Where reports go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportTarget {
    /// Address of the operator, as `http://host:port`.
    pub url: String,
    /// The cluster's identity, which seals are bound to.
    pub uid: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_back_as_it_was_written() {
        let plan = example();
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<BootPlan>(&text).unwrap(), plan);
    }

    #[test]
    fn a_plan_of_another_version_is_refused_rather_than_half_read() {
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
