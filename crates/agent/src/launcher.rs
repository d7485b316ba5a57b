//! Starts brokers, with their `flux`, arguments and variables.

use std::io;
use std::path::PathBuf;

use flux_operator_wire::names::variable;
use flux_operator_wire::{BrokerFacts, TerminationReason};

use crate::broker_arguments;
use crate::broker_process::{BrokerExit, BrokerProcess};
use crate::cores;
use crate::flux_version::{UnsupportedFlux, VersionQuery};
use crate::layout::Layout;
use crate::rank_plan::RankPlan;

/// Starts the brokers of an agent.
#[derive(Debug)]
pub struct BrokerLauncher {
    /// The program `flux`.
    pub flux: PathBuf,
    version: VersionQuery,
    program: Vec<String>,
}

/// Why a broker was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// This Flux is not supported.
    #[error(transparent)]
    Unsupported(UnsupportedFlux),
    /// The program could not be started.
    #[error("failed to start {flux:?}")]
    Spawn {
        /// The program.
        flux: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl LaunchError {
    /// The reason in the agent's termination message.
    pub fn reason(&self) -> TerminationReason {
        match self {
            LaunchError::Unsupported(_) => TerminationReason::FluxTooOld,
            LaunchError::Spawn { .. } => TerminationReason::BrokerFailed,
        }
    }
}

impl BrokerLauncher {
    /// Creates a launcher for this `flux` and this initial program.
    pub fn new(flux: PathBuf, program: Vec<String>) -> BrokerLauncher {
        BrokerLauncher { version: VersionQuery::start(&flux), flux, program }
    }

    /// What the brokers of an instance must agree on, as found on this machine.
    pub fn facts(&self) -> BrokerFacts {
        let version = self.version.wait();
        let limit = std::env::var(variable::CPU_LIMIT).ok();
        BrokerFacts {
            version: version.map(|version| version.to_string()).unwrap_or_default(),
            uid: rustix::process::geteuid().as_raw(),
            cores: cores::count(limit.as_deref()).get(),
        }
    }

    /// Starts a broker; `on_exit` is called when it has exited.
    pub fn start(
        &self,
        rank: &RankPlan,
        layout: &Layout,
        on_exit: impl FnOnce(BrokerExit) + Send + 'static,
    ) -> Result<BrokerProcess, LaunchError> {
        let version = self.version.supported().map_err(LaunchError::Unsupported)?;
        let found = broker_arguments::inspect_machine(rank, &self.flux, version);
        let words = broker_arguments::build(rank, layout, &found, &self.program);
        let variable = broker_arguments::host_name_variable(rank, &found);
        BrokerProcess::start(&self.flux, &words, variable, on_exit)
            .map_err(|source| LaunchError::Spawn { flux: self.flux.clone(), source })
    }
}
