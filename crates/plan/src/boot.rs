//! The boot plan of a cluster, for pods or for one machine.

use flux_operator_wire::{BootPlan, FluxHome, JoinPlan, ReportTarget};

use crate::cluster::Cluster;

/// The port of the brokers, as users of the Go operator know it.
pub(crate) const BROKER_PORT: u16 = 8050;

/// The port of the agents. Next to the brokers' port, so that a firewall needs
/// only one range.
pub(crate) const AGENT_PORT: u16 = 8051;

/// Where a cluster runs.
#[derive(Clone, Debug)]
pub enum RunLocation {
    /// In pods that find each other by name.
    Pods {
        /// Uid of the MiniCluster; empty offline.
        uid: String,
        /// Domain of the pods' names: `<headless>.<namespace>.svc.<cluster domain>`.
        domain: String,
        /// Where Flux is.
        flux: FluxHome,
        /// Where agents send their reports.
        report: Option<ReportTarget>,
    },
    /// In processes on one machine, with the lead at this socket.
    Machine {
        /// Path of the socket.
        socket: String,
        /// Where jobs write their output.
        output_directory: String,
    },
}

/// The boot plan of a cluster's agents. It is the same for every rank.
pub fn boot_plan(cluster: &Cluster, location: &RunLocation) -> BootPlan {
    let Cluster {
        name,
        ranks,
        mode: _,
        program,
        hooks,
        sidecars,
        broker,
        config,
        verbatim_config,
        resources,
        logging,
        restart_limit,
        grace_seconds,
        complete_workers,
        python_path,
        simple_scheduler,
        environment,
        output_directory,
        mount: _,
        joining,
    } = cluster;
    let lead = ranks.hosts.nth(0).unwrap_or_default();
    let addresses = match location {
        RunLocation::Pods { domain, .. } => Addresses {
            lead: format!("tcp://{lead}.{domain}:{BROKER_PORT}"),
            bind: "tcp://*:%p".into(),
            connect: format!("tcp://%h.{domain}:%p"),
        },
        // One machine has one level: every broker connects to the lead.
        RunLocation::Machine { socket, .. } => Addresses {
            lead: format!("ipc://{socket}"),
            bind: format!("ipc://{socket}"),
            connect: format!("ipc://{socket}"),
        },
    };
    let (uid, flux, report, ready_port, output_directory) = match location {
        RunLocation::Pods { uid, flux, report, .. } => {
            (uid.clone(), flux.clone(), report.clone(), AGENT_PORT, output_directory.clone())
        }
        RunLocation::Machine { output_directory, .. } => {
            (String::new(), FluxHome::Path, None, 0, output_directory.clone())
        }
    };
    let join = joining.as_ref().map(|it| JoinPlan {
        lender: it.lender.clone(),
        cluster: it.cluster.clone(),
        job: it.job.clone(),
        ranks: it.ranks.clone(),
        table: it.table.clone(),
        remote: it.remote.clone(),
    });
    BootPlan {
        cluster: name.clone(),
        uid,
        hosts: ranks.hosts.clone(),
        first_rank: ranks.first_rank(),
        join,
        quorum: ranks.quorum,
        lead: joining.as_ref().map_or(addresses.lead, |it| it.lead.clone()),
        bind: addresses.bind,
        connect: addresses.connect,
        port: BROKER_PORT,
        broker: broker.clone(),
        config: config.clone(),
        verbatim_config: verbatim_config.clone(),
        resources: *resources,
        host_groups: ranks.host_groups(),
        flux,
        program: program.clone(),
        hooks: hooks.clone(),
        sidecars: sidecars.clone(),
        logging: *logging,
        restart_limit: *restart_limit,
        grace_seconds: *grace_seconds,
        complete_workers: *complete_workers,
        python_path: python_path.clone(),
        simple_scheduler: *simple_scheduler,
        environment: environment.clone(),
        output_directory,
        ready_port,
        report,
    }
}

struct Addresses {
    lead: String,
    bind: String,
    connect: String,
}
