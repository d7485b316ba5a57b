//! Targets: where brokers of a Burst run.

mod bounded_api;
mod cluster;
mod cluster_api;
mod command;
mod kubeconfig;
mod made_cluster;
mod mock;
mod other_cluster;

use flux_operator_api::burst::TargetKind;
use flux_operator_api::{Burst, MiniCluster, Reason};
use flux_operator_plan::bursting::{BurstStep, TargetFailure, TargetView, gke_command};
use flux_operator_wire::JobspecText;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::ResourceExt;

use crate::home::Home;
use crate::output::RunOutput;
use cluster::SameCluster;
use cluster_api::ClusterApi;
use command::{Command, ProgramKind};
pub use kubeconfig::connect;
pub(crate) use kubeconfig::{Clients, Connected, check_file, connect_with_file};
use made_cluster::{MadeCluster, Maker};
pub(crate) use mock::Mock;
pub(crate) use other_cluster::{OtherCluster, PoolSource};

/// A Burst, as a target gets it.
#[derive(Clone, Copy)]
pub(crate) struct Pool<'a> {
    /// The Burst.
    pub(crate) burst: &'a Burst,
    /// Its MiniCluster, if that exists.
    pub(crate) cluster: Option<&'a MiniCluster>,
    /// The jobspec of the job that it runs in an instance of its own, when that is created.
    pub(crate) jobspec: Option<&'a JobspecText>,
}

impl<'a> Pool<'a> {
    /// Its MiniCluster, which must exist.
    pub(crate) fn existing_cluster(self) -> Result<&'a MiniCluster, TargetFailure> {
        let missing = || TargetFailure::new(Reason::LenderNotReady, "there is no MiniCluster");
        self.cluster.ok_or_else(missing)
    }
}

/// Where brokers of a Burst run. Every call can be repeated: one that has been done already does
/// nothing.
pub(crate) trait Target: Send + Sync {
    /// What exists there. Fails if that is another place than the one where the Burst was started.
    fn observe<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<TargetView, TargetFailure>>;

    /// Creates what is missing, for as many nodes as the Burst should have.
    fn create<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>>;

    /// Changes the number of nodes.
    fn scale<'a>(&'a self, pool: Pool<'a>, nodes: i32) -> BoxFuture<'a, Result<(), TargetFailure>>;

    /// The output of a run, from the log of this pod. Only targets elsewhere have any.
    fn output<'a>(
        &'a self,
        _pool: Pool<'a>,
        _pod: &'a str,
    ) -> BoxFuture<'a, Result<RunOutput, TargetFailure>> {
        let message = "jobs of such a target run in the instance of the MiniCluster";
        let failure = TargetFailure::new(Reason::TargetRefused, message);
        std::future::ready(Err(failure)).boxed()
    }

    /// Begins to delete everything. It is gone when [`Target::observe`] finds nothing.
    fn delete<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>>;
}

/// The target of a Burst, with its credentials.
pub(crate) async fn target_of<'c>(
    burst: &Burst,
    home: &Home,
    clients: &'c Clients,
) -> Result<Box<dyn Target + 'c>, TargetFailure> {
    let namespace = burst.namespace().unwrap_or_default();
    let made = |maker: Box<dyn Maker>| -> Box<dyn Target + 'c> {
        Box::new(MadeCluster { home: home.clone(), clients, maker })
    };
    Ok(match burst.spec.target.kind() {
        TargetKind::Cluster => Box::new(SameCluster::new(home, &namespace)),
        TargetKind::Kubeconfig(kubeconfig) => {
            let connected = clients.of(home, burst, kubeconfig).await?;
            Box::new(OtherCluster::new(home.clone(), connected))
        }
        TargetKind::ClusterApi(target) => {
            made(Box::new(ClusterApi::new(home.clone(), target.clone())))
        }
        TargetKind::Command(target) => {
            made(Box::new(Command::new(home.clone(), target.clone(), ProgramKind::OfUser)))
        }
        TargetKind::Gke(gke) => {
            let image = gke_image(home)?;
            let command = gke_command(&burst.spec.target, gke, image);
            made(Box::new(Command::new(home.clone(), command, ProgramKind::Gke)))
        }
        TargetKind::Mock(mock) => Box::new(Mock::new(mock.clone())),
    })
}

/// The part of a step that is made at a target.
pub(crate) async fn make_at_target(
    target: Option<&dyn Target>,
    pool: Pool<'_>,
    step: &BurstStep,
) -> Result<(), TargetFailure> {
    match (step, target) {
        (BurstStep::Create, Some(target)) => target.create(pool).await,
        (BurstStep::Scale(nodes), Some(target)) => target.scale(pool, *nodes).await,
        // What observe does not show, such as a Secret without a Job, is deleted too.
        (BurstStep::DeleteObjects | BurstStep::Finish, Some(target)) => target.delete(pool).await,
        _ => Ok(()),
    }
}

/// The image of the program that makes clusters of Google Kubernetes Engine.
fn gke_image(home: &Home) -> Result<&str, TargetFailure> {
    home.gke_image.as_deref().ok_or_else(|| {
        let message = "the burst controller has no program for Google Kubernetes Engine: an \
                       administrator has to name its image (flux-operator manifests --burst-gke IMAGE)";
        TargetFailure::new(Reason::ClusterNotAllowed, message)
    })
}
