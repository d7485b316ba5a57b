//! What to run: a MiniCluster, checked.

use flux_operator_api::minicluster::Container;
use flux_operator_api::{MiniCluster, validate};
use flux_operator_flux::RankList;
use flux_operator_plan::{Cluster, RankTableError, Refusal, Valid};

use crate::instance::{Instance, InstanceError};

/// A MiniCluster that can run on one machine.
#[derive(Clone, Debug)]
pub struct RunRequest {
    pub(crate) minicluster: Valid,
    pub(crate) cluster: Cluster,
    pub(crate) runner: Container,
    pub(crate) notes: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// The cluster that its brokers join, if they start no instance of their own.
    pub(crate) lender: Option<Instance>,
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
        Ok(RunRequest::with_cluster(valid, cluster, None))
    }

    /// A request whose brokers are those of `cluster`.
    pub(crate) fn with_cluster(
        minicluster: Valid,
        cluster: Cluster,
        lender: Option<Instance>,
    ) -> RunRequest {
        let runner = minicluster.runner().clone();
        let notes = crate::differences::differences(&minicluster.spec, &runner);
        let warnings = validate::warnings(&minicluster);
        // The warning is about reports to the operator; a note says what happens here.
        let warnings = warnings.iter().filter(|it| it.path != "spec.flux.curveCertSecret");
        let warnings = warnings.map(ToString::to_string).collect();
        RunRequest { minicluster, cluster, runner, notes, warnings, lender }
    }

    /// What the manifest asks for that one machine cannot provide, and what is done instead.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What is valid but probably a mistake, such as a joiner's command.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Fails if the cluster cannot be started in `instance`.
    pub fn check(&self, instance: &Instance) -> Result<(), InstanceError> {
        instance.check_sockets(&self.ranks())
    }

    /// The ranks of its agents, by index.
    pub(crate) fn ranks(&self) -> RankList {
        match &self.cluster.joining {
            Some(joining) => joining.ranks.clone(),
            None => (0..self.cluster.ranks.size).collect(),
        }
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
