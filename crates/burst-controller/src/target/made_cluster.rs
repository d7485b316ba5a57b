//! A Kubernetes cluster that is made for a Burst and deleted with it. As soon as there is a kubeconfig,
//! it is a cluster like any other.

use flux_operator_api::Burst;
use flux_operator_api::burst::KubeconfigTarget;
use flux_operator_plan::bursting::{
    Presence, TargetFailure, TargetView, asks_inside, creates_inside, keeps_cluster,
};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::other_cluster::OtherCluster;
use super::{Clients, Pool, Target};
use crate::home::Home;
use crate::output::RunOutput;

/// What makes a cluster. Every call can be repeated.
pub(crate) trait Maker: Send + Sync {
    /// How far the cluster is.
    fn observe<'a>(&'a self, burst: &'a Burst) -> BoxFuture<'a, Result<Presence, TargetFailure>>;

    /// Has a cluster made, or changed, so that it has at least this many nodes, and returns whether pods
    /// for them can be created. It never gets fewer: jobs may run on those that would be chosen.
    fn make<'a>(
        &'a self,
        burst: &'a Burst,
        nodes: i32,
    ) -> BoxFuture<'a, Result<bool, TargetFailure>>;

    /// Has it deleted, with everything that was needed to make it.
    fn delete<'a>(&'a self, burst: &'a Burst) -> BoxFuture<'a, Result<(), TargetFailure>>;

    /// Where its kubeconfig is.
    fn kubeconfig(&self, burst: &Burst) -> KubeconfigTarget;
}

/// A cluster that is made for a Burst.
pub(crate) struct MadeCluster<'c> {
    pub(crate) home: Home,
    pub(crate) clients: &'c Clients,
    pub(crate) maker: Box<dyn Maker>,
}

impl MadeCluster<'_> {
    /// The cluster, as one of which there is a kubeconfig.
    async fn inside(&self, burst: &Burst) -> Result<OtherCluster<Home>, TargetFailure> {
        let kubeconfig = self.maker.kubeconfig(burst);
        let connected = self.clients.of(&self.home, burst, &kubeconfig).await?;
        Ok(OtherCluster::new(self.home.clone(), connected))
    }

    async fn is_ready(&self, burst: &Burst) -> Result<bool, TargetFailure> {
        Ok(self.maker.observe(burst).await? == Presence::ClusterReady)
    }
}

impl Target for MadeCluster<'_> {
    fn observe<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<TargetView, TargetFailure>> {
        async move {
            let presence = self.maker.observe(pool.burst).await?;
            let outside = TargetView { presence, ..TargetView::default() };
            if outside.presence != Presence::ClusterReady || !asks_inside(pool.burst) {
                return Ok(outside);
            }
            let is_deleting = pool.burst.metadata.deletion_timestamp.is_some();
            let inside = async { self.inside(pool.burst).await?.observe(pool).await };
            let mut view = match inside.await {
                Err(_) if is_deleting => return Ok(outside),
                seen => seen?,
            };
            if view.presence == Presence::Nothing {
                view.presence = Presence::ClusterReady;
            }
            // The cluster is found by its name, wherever its server is.
            view.place = String::new();
            Ok(view)
        }
        .boxed()
    }

    fn create<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            // The Burst may have grown while its cluster was made.
            let may_create = self.maker.make(pool.burst, pool.burst.spec.nodes).await?
                && creates_inside(pool.burst)
                && self.is_ready(pool.burst).await?;
            match may_create {
                true => self.inside(pool.burst).await?.create(pool).await,
                false => Ok(()),
            }
        }
        .boxed()
    }

    fn scale<'a>(&'a self, pool: Pool<'a>, nodes: i32) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            match self.maker.make(pool.burst, nodes).await? {
                true => self.inside(pool.burst).await?.scale(pool, nodes).await,
                // It is asked again.
                false => Ok(()),
            }
        }
        .boxed()
    }

    fn output<'a>(
        &'a self,
        pool: Pool<'a>,
        pod: &'a str,
    ) -> BoxFuture<'a, Result<RunOutput, TargetFailure>> {
        async move { self.inside(pool.burst).await?.output(pool, pod).await }.boxed()
    }

    fn delete<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            if keeps_cluster(pool.burst) {
                return self.inside(pool.burst).await?.delete(pool).await;
            }
            // Brokers that are stopped leave the instance at once; the lead notices those of a deleted
            // machine only after a while. Failures are ignored: the cluster is deleted anyway.
            if self.is_ready(pool.burst).await?
                && let Ok(inside) = self.inside(pool.burst).await
                && let Err(failure) = inside.delete(pool).await
            {
                tracing::debug!(%failure, "a cluster that is deleted does not delete its brokers");
            }
            self.maker.delete(pool.burst).await
        }
        .boxed()
    }
}
