//! A cluster, independent of where it runs.

use flux_operator_api::minicluster::{Container, Flux, Logging};
use flux_operator_flux::broker_config::{Access, QueueManager};
use flux_operator_flux::{BrokerConfig, RankList};
use flux_operator_wire as wire;
use flux_operator_wire::{BrokerOptions, Hooks, Program, Resources, Sidecar};

use crate::gpus::gpus;
use crate::grace;
use crate::program::program;
use crate::rank_table::{RankTable, RankTableError};
use crate::valid::Valid;

/// Where Flux and its configuration are mounted, unless the manifest sets it.
const MOUNT: &str = "/mnt/flux";

/// Where jobs write their output, unless the manifest sets it.
const OUTPUT: &str = "/tmp/fluxout";

/// A Flux cluster as a MiniCluster describes it: ranks, programs, settings.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its rank table.
    pub ranks: RankTable,
    /// How the command is run.
    pub mode: Mode,
    /// The program of the lead.
    pub program: Program,
    /// The user's hooks.
    pub hooks: Hooks,
    /// Containers beside the runner that run under an agent.
    pub sidecars: Vec<Sidecar>,
    /// Settings of the brokers.
    pub broker: BrokerOptions,
    /// The brokers' configuration, as far as it is known at this point.
    pub config: BrokerConfig,
    /// The user's own configuration, which replaces it.
    pub verbatim_config: Option<String>,
    /// Resources of each node.
    pub resources: Resources,
    /// Logging settings.
    pub logging: wire::Logging,
    /// How often the lead may be restarted.
    pub restart_limit: u32,
    /// Seconds that an agent's child processes have to exit.
    pub grace_seconds: u32,
    /// A worker's broker is not restarted.
    pub complete_workers: bool,
    /// The path of Flux's Python packages, if it is not that of the view.
    pub python_path: String,
    /// Use Flux's simple scheduler, even if the view has Fluxion.
    pub simple_scheduler: bool,
    /// Variables for shells that connect.
    pub environment: std::collections::BTreeMap<String, String>,
    /// Where jobs write their output.
    pub output_directory: String,
    /// Where Flux and its configuration are mounted.
    pub mount: String,
    /// The instance that its brokers join; `None` if they start their own.
    pub joining: Option<Joining>,
}

/// The instance of another cluster that brokers join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// The lender's name.
    pub lender: String,
    /// The lender's uid.
    pub cluster: String,
    /// The uid of the lender's Job.
    pub job: String,
    /// The rank of each broker, by its index.
    pub ranks: RankList,
    /// Hash of the lender's rank table.
    pub table: String,
    /// The endpoint of the lender's lead.
    pub lead: String,
    /// How the lead is reached, if it is in another Kubernetes cluster.
    pub remote: Option<wire::RemoteLead>,
}

/// How the command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a job.
    Submit,
    /// As a script that runs as a job; each line of it is a job in turn.
    Batch,
    /// Beside the broker; it submits jobs of its own.
    Launcher,
    /// Not at all: the cluster stays up.
    Interactive,
}

impl Mode {
    /// The mode of a spec. Without a command the cluster is interactive.
    pub(crate) fn of(spec: &flux_operator_api::MiniClusterSpec, runner: &Container) -> Mode {
        let script = runner.commands.as_ref().is_some_and(|commands| !commands.script.is_empty());
        let nothing = runner.command.trim().is_empty() && runner.args.is_empty() && !script;
        match (spec.interactive || nothing, runner.launcher, runner.batch) {
            (true, _, _) => Mode::Interactive,
            (false, true, _) => Mode::Launcher,
            (false, false, true) => Mode::Batch,
            (false, false, false) => Mode::Submit,
        }
    }
}

impl Cluster {
    /// The cluster that a MiniCluster describes.
    pub fn of(minicluster: &Valid) -> Result<Cluster, RankTableError> {
        let spec = &minicluster.spec;
        let name = minicluster.metadata.name.clone().unwrap_or_default();
        let runner = minicluster.runner();
        let mode = Mode::of(spec, runner);
        let flux = spec.flux.clone().unwrap_or_default();
        let logging = spec.logging.clone().unwrap_or_default();
        let resources = resources(&flux, runner);
        Ok(Cluster {
            ranks: RankTable::of(&name, spec, resources)?,
            name,
            mode,
            program: program(spec, runner, mode),
            hooks: hooks(runner),
            sidecars: sidecars(minicluster.sidecars(), &flux),
            broker: broker_options(&flux, &logging, spec, minicluster.has_spare_ranks()),
            config: config(&flux, minicluster.has_spare_ranks()),
            verbatim_config: Some(flux.broker_config.clone()).filter(|text| !text.is_empty()),
            resources,
            logging: wire::Logging {
                quiet: logging.quiet,
                strict: logging.strict,
                timed: logging.timed,
            },
            restart_limit: restart_limit(spec, mode),
            grace_seconds: grace::agent_seconds(spec),
            complete_workers: flux.complete_workers,
            python_path: flux.container.as_ref().map(|c| c.python_path.clone()).unwrap_or_default(),
            simple_scheduler: flux.scheduler.as_ref().is_some_and(|scheduler| scheduler.simple),
            environment: flux.environment.clone(),
            output_directory: non_empty_or(&runner.logs, OUTPUT),
            mount: mount(spec),
            joining: None,
        })
    }

    /// The same brokers as part of the instance of `lender`: its ranks, its configuration and its
    /// tree, but programs and pods of their own.
    pub fn joining(self, lender: &Cluster, joining: Joining) -> Cluster {
        let size = self.ranks.size;
        Cluster {
            ranks: RankTable { size, ..lender.ranks.clone() },
            mode: Mode::Interactive,
            program: Program::Stay,
            hooks: Hooks { broker_pre: String::new(), script: String::new(), ..self.hooks },
            broker: BrokerOptions {
                topology: lender.broker.topology.clone(),
                archive: None,
                ..self.broker
            },
            config: lender.config.clone(),
            verbatim_config: lender.verbatim_config.clone(),
            resources: lender.resources,
            simple_scheduler: lender.simple_scheduler,
            joining: Some(joining),
            ..self
        }
    }
}

fn hooks(runner: &Container) -> Hooks {
    let commands = runner.commands.clone().unwrap_or_default();
    Hooks {
        init: commands.init,
        pre: commands.pre,
        broker_pre: commands.broker_pre,
        worker_pre: commands.worker_pre,
        post: commands.post,
        script: commands.script,
    }
}

/// Sidecars with a command or hooks. One without keeps its image's
/// entrypoint; the Go operator started a script that exited at once.
fn sidecars(containers: &[Container], flux: &Flux) -> Vec<Sidecar> {
    containers
        .iter()
        .filter(|container| is_wrapped(container))
        .map(|container| {
            let commands = container.commands.clone().unwrap_or_default();
            Sidecar {
                name: container.name.clone(),
                init: commands.init,
                service_pre: commands.service_pre,
                command: container.command.trim_end().to_owned(),
                words: container.args.clone(),
                post: commands.post,
                wait_for_socket: !flux.no_wait_socket && !flux.disable_socket,
            }
        })
        .collect()
}

/// Whether a sidecar runs under an agent.
pub(crate) fn is_wrapped(container: &Container) -> bool {
    let commands = container.commands.clone().unwrap_or_default();
    let texts = [&container.command, &commands.init, &commands.service_pre, &commands.post];
    !container.no_wrap_entrypoint
        && (texts.iter().any(|text| !text.trim().is_empty()) || !container.args.is_empty())
}

fn broker_options(
    flux: &Flux,
    logging: &Logging,
    spec: &flux_operator_api::MiniClusterSpec,
    has_spare_ranks: bool,
) -> BrokerOptions {
    let log_level = match (logging.quiet, flux.log_level) {
        (true, _) => 0,
        (false, 0) => 6,
        (false, level) => u8::try_from(level).unwrap_or(7),
    };
    BrokerOptions {
        // One level: brokers of other clusters reach only the lead. Otherwise one level for up to
        // 256 workers: fewer hops, and one address to resolve.
        topology: non_empty_or(&flux.topology, if has_spare_ranks { "kary:0" } else { "kary:256" }),
        connect_timeout: non_empty_or(&flux.connect_timeout, "5s"),
        log_level,
        log_connections: logging.zeromq,
        socket: !flux.disable_socket,
        archive: spec
            .archive
            .as_ref()
            .map(|archive| archive.path.clone())
            .filter(|path| !path.is_empty()),
        wrap: Some(flux.wrap.clone()).filter(|wrap| !wrap.is_empty()),
    }
}

/// Access and queue settings, as in the Go operator's configuration; bootstrap,
/// certificate and resources are added where they are known.
///
/// With `fcfs` Fluxion counts only hosts that are up, and fails a larger job at once. If
/// ranks may be down on purpose, such a job has to wait for them, as it does with
/// `easy` and with Flux's simple scheduler, which does not read this setting.
fn config(flux: &Flux, has_spare_ranks: bool) -> BrokerConfig {
    use flux_operator_api::minicluster::QueuePolicy;
    let policy =
        flux.scheduler.as_ref().map(|scheduler| scheduler.queue_policy).unwrap_or_default();
    let policy = match policy {
        QueuePolicy::Unset if has_spare_ranks => "easy",
        QueuePolicy::Unset | QueuePolicy::Fcfs => "fcfs",
        QueuePolicy::Easy => "easy",
        QueuePolicy::Conservative => "conservative",
        QueuePolicy::Hybrid => "hybrid",
    };
    BrokerConfig {
        access: Some(Access {
            allow_guest_user: Some(true),
            allow_root_owner: Some(true),
            ..Access::default()
        }),
        queue_manager: Some(QueueManager {
            queue_policy: Some(policy.into()),
            ..QueueManager::default()
        }),
        ..BrokerConfig::default()
    }
}

fn resources(flux: &Flux, runner: &Container) -> Resources {
    let given = flux.resources.clone().unwrap_or_default();
    let count = |number: i32| u32::try_from(number).ok().filter(|count| *count > 0);
    Resources {
        cores: count(given.cores),
        gpus: count(given.gpus).or_else(|| gpus(runner)),
        bind_tasks: false,
    }
}

/// Where Flux and its configuration are mounted in the pods of a MiniCluster.
pub(crate) fn mount(spec: &flux_operator_api::MiniClusterSpec) -> String {
    let container = spec.flux.as_ref().and_then(|flux| flux.container.as_ref());
    let path = container.map(|container| container.mount_path.as_str());
    non_empty_or(path.unwrap_or_default(), MOUNT)
}

/// A second run of a user's command must be requested; an interactive cluster may be restarted
/// without a request.
fn restart_limit(spec: &flux_operator_api::MiniClusterSpec, mode: Mode) -> u32 {
    let requested = spec.restart.as_ref().and_then(|restart| restart.limit).or(spec.backoff_limit);
    match (requested.and_then(|limit| u32::try_from(limit).ok()), mode) {
        (Some(limit), _) => limit,
        (None, Mode::Interactive) => 3,
        (None, Mode::Submit | Mode::Batch | Mode::Launcher) => 0,
    }
}

pub(crate) fn non_empty_or(text: &str, default: &str) -> String {
    if text.is_empty() { default.to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use flux_operator_testkit::{merge, smallest_minicluster};
    use serde_json::{Value, json};

    use super::*;

    fn policy(spec: Value) -> String {
        let mut manifest = smallest_minicluster("fs");
        merge(&mut manifest, &json!({ "spec": spec }));
        let valid = Valid::check(serde_json::from_value(manifest).unwrap()).unwrap();
        // The rank table of a running cluster is the one it was started with.
        let booted = valid.clone().resized(|spec| (spec.size, spec.max_size) = (1, Some(4)));
        let policies = [valid, booted].map(|valid| {
            let config = Cluster::of(&valid).unwrap().config;
            config.queue_manager.unwrap().queue_policy.unwrap()
        });
        assert_eq!(policies[0], policies[1], "a restarted lead has the same policy");
        policies[0].clone()
    }

    #[test]
    fn the_default_policy_lets_large_jobs_wait_if_the_cluster_may_grow() {
        let scheduler = |policy: &str| json!({ "scheduler": { "queuePolicy": policy } });
        let clusters = json!({ "bursting": { "clusters": [{ "size": 2 }] } });
        let hosts = json!({ "bursting": { "hostlist": "fs-[0-3],a-[0-1]" } });
        for (spec, expected) in [
            (json!({ "size": 4 }), "fcfs"),
            (json!({ "size": 2, "maxSize": 0 }), "fcfs"),
            (json!({ "size": 1, "maxSize": 1 }), "fcfs"),
            (json!({ "size": 2, "maxSize": 4 }), "easy"),
            (json!({ "size": 4, "maxSize": 4 }), "easy"),
            (json!({ "size": 2, "flux": clusters }), "easy"),
            (json!({ "size": 4, "flux": hosts }), "easy"),
            (json!({ "size": 2, "maxSize": 4, "flux": scheduler("fcfs") }), "fcfs"),
            (json!({ "size": 2, "flux": scheduler("conservative") }), "conservative"),
        ] {
            assert_eq!(policy(spec.clone()), expected, "{spec}");
        }
    }
}
