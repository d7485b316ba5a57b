//! The MiniCluster's own Kubernetes cluster: a joiner in the same namespace, on other nodes. The
//! operator leases its ranks, drains them and waits for jobs.

use flux_operator_api::{MiniCluster, Reason};
use flux_operator_plan::bursting::{
    Presence, TargetFailure, TargetView, joiner, joiner_nodes, joiner_patch, joiner_trouble,
    object_name,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};

use super::{Pool, Target};
use crate::errors::{chain, exists_already, is_not_found};
use crate::home::Home;

/// The same Kubernetes cluster.
pub(crate) struct SameCluster {
    miniclusters: Api<MiniCluster>,
}

impl SameCluster {
    pub(crate) fn new(home: &Home, namespace: &str) -> SameCluster {
        SameCluster { miniclusters: home.api(namespace) }
    }
}

/// An error of the controller's own cluster.
fn failure(doing: &str, error: &kube::Error) -> TargetFailure {
    let message = format!("failed to {doing} in this Kubernetes cluster: {}", chain(error));
    TargetFailure::new(Reason::TargetRefused, message)
}

impl Target for SameCluster {
    fn observe<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<TargetView, TargetFailure>> {
        async move {
            let found = self.miniclusters.get_opt(&object_name(pool.burst)).await;
            let found = found.map_err(|error| failure("get the joining MiniCluster", &error))?;
            Ok(found.map_or_else(TargetView::default, |joiner| TargetView {
                presence: match joiner.metadata.deletion_timestamp {
                    None => Presence::Complete,
                    Some(_) => Presence::Leaving,
                },
                nodes: joiner_nodes(&joiner),
                // One that waits for ranks has no pods, and one that shrinks has more than it should.
                present: Some(joiner.status.as_ref().map_or(0, |status| status.size)),
                trouble: joiner_trouble(&joiner),
                ..TargetView::default()
            }))
        }
        .boxed()
    }

    fn create<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            let Some(cluster) = pool.cluster else { return Ok(()) };
            let joiner = joiner(cluster, pool.burst);
            match self.miniclusters.create(&PostParams::default(), &joiner).await {
                Ok(_) => Ok(()),
                Err(error) if exists_already(&error) => Ok(()),
                Err(error) => Err(failure("create the joining MiniCluster", &error)),
            }
        }
        .boxed()
    }

    fn scale<'a>(&'a self, pool: Pool<'a>, nodes: i32) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            let patch = Patch::Merge(joiner_patch(nodes));
            let name = object_name(pool.burst);
            match self.miniclusters.patch(&name, &PatchParams::default(), &patch).await {
                Ok(_) => Ok(()),
                Err(error) => Err(failure("resize the joining MiniCluster", &error)),
            }
        }
        .boxed()
    }

    fn delete<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            let how = DeleteParams::background();
            match self.miniclusters.delete(&object_name(pool.burst), &how).await {
                Ok(_) => Ok(()),
                Err(error) if is_not_found(&error) => Ok(()),
                Err(error) => Err(failure("delete the joining MiniCluster", &error)),
            }
        }
        .boxed()
    }
}
