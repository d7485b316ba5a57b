//! What to run: a MiniCluster, checked.

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::Container;
use flux_operator_plan::{Cluster, RankTableError, Refusal, Valid};

/// A MiniCluster that can run on one machine.
#[derive(Clone, Debug)]
pub struct RunRequest {
    pub(crate) cluster: Cluster,
    pub(crate) runner: Container,
    pub(crate) notes: Vec<String>,
}

/// Why a MiniCluster cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunRequestError {
    /// It is not valid.
    #[error("{0}")]
    Invalid(Refusal),
    /// Its hosts do not make a valid rank table.
    #[error(transparent)]
    Ranks(RankTableError),
}

impl RunRequest {
    /// Checks a MiniCluster.
    pub fn new(minicluster: MiniCluster) -> Result<RunRequest, RunRequestError> {
        let valid = Valid::check(minicluster).map_err(RunRequestError::Invalid)?;
        let cluster = Cluster::of(&valid).map_err(RunRequestError::Ranks)?;
        let containers = &valid.spec.containers;
        let runner = containers.iter().find(|c| c.run_flux).unwrap_or(&containers[0]).clone();
        let notes = crate::differences::differences(&valid.spec, &runner);
        Ok(RunRequest { cluster, runner, notes })
    }

    /// Suppresses everything but the command's output, as `logging.quiet` does.
    pub fn silence(&mut self) {
        self.cluster.logging.quiet = true;
        self.cluster.broker.log_level = 0;
    }

    /// Name of the cluster.
    pub fn name(&self) -> &str {
        &self.cluster.name
    }
}
