//! What is to be run: a MiniCluster, checked.

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::Container;
use flux_operator_plan::{Cluster, RankTableError, Refusal, Valid};

/// A MiniCluster that one machine can carry out.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) cluster: Cluster,
    pub(crate) runner: Container,
    pub(crate) notes: Vec<String>,
}

/// Why a MiniCluster cannot be carried out here.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It cannot be carried out anywhere.
    #[error("{0}")]
    Refused(Refusal),
    /// Its hosts make no rank table.
    #[error(transparent)]
    Ranks(RankTableError),
}

impl Request {
    /// Checks a MiniCluster.
    pub fn of(minicluster: MiniCluster) -> Result<Request, RequestError> {
        let valid = Valid::check(minicluster).map_err(RequestError::Refused)?;
        let cluster = Cluster::of(&valid).map_err(RequestError::Ranks)?;
        let containers = &valid.spec.containers;
        let runner = containers.iter().find(|c| c.run_flux).unwrap_or(&containers[0]).clone();
        let notes = crate::differences::differences(&valid.spec, &runner);
        Ok(Request { cluster, runner, notes })
    }

    /// Leaves out everything but what the command prints, as `logging.quiet` does.
    pub fn quieten(&mut self) {
        self.cluster.logging.quiet = true;
        self.cluster.broker.log_level = 0;
    }

    /// Name of the cluster.
    pub fn name(&self) -> &str {
        &self.cluster.name
    }
}
