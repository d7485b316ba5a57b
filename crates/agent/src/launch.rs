//! Starts brokers: with which `flux`, arguments and variables.

use std::io;
use std::path::PathBuf;

use flux_operator_wire::EndingReason;

use crate::attributes;
use crate::broker_process::{BrokerEnd, BrokerProcess};
use crate::flux_version::{Asked, Unsupported};
use crate::layout::Layout;
use crate::rank::Rank;

/// Starts the brokers of an agent.
#[derive(Debug)]
pub struct Launch {
    /// The program `flux`.
    pub flux: PathBuf,
    version: Asked,
    program: Vec<String>,
}

/// Why a broker was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// This Flux is not supported.
    #[error(transparent)]
    Unsupported(Unsupported),
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
    pub fn reason(&self) -> EndingReason {
        match self {
            LaunchError::Unsupported(_) => EndingReason::FluxTooOld,
            LaunchError::Spawn { .. } => EndingReason::BrokerFailed,
        }
    }
}

impl Launch {
    /// Creates a launcher for this `flux` and this initial program.
    pub fn new(flux: PathBuf, program: Vec<String>) -> Launch {
        Launch { version: Asked::begin(&flux), flux, program }
    }

    /// Starts a broker; `ended` is called when it has exited.
    pub fn start(
        &self,
        rank: &Rank,
        layout: &Layout,
        ended: impl FnOnce(BrokerEnd) + Send + 'static,
    ) -> Result<BrokerProcess, LaunchError> {
        let version = self.version.supported().map_err(LaunchError::Unsupported)?;
        let found = attributes::look(rank, &self.flux, version);
        let words = attributes::words(rank, layout, &found, &self.program);
        let variable = attributes::host_name_variable(rank, &found);
        BrokerProcess::start(&self.flux, &words, variable, ended)
            .map_err(|source| LaunchError::Spawn { flux: self.flux.clone(), source })
    }
}
