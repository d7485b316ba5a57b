//! Cluster API makes the cluster.

use flux_operator_api::burst::{ClusterApiTarget, KubeconfigTarget};
use flux_operator_api::{Burst, Reason};
use flux_operator_plan::bursting::{
    ApiCluster, Presence, TargetFailure, cluster_api_cluster, cluster_api_kind,
    cluster_api_presence, cluster_nodes, cluster_secret, field_manager, object_name,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};

use super::made_cluster::Maker;
use crate::errors::{chain, is_forbidden, is_not_found};
use crate::home::Home;

/// The key of a kubeconfig in the Secret that Cluster API writes.
const SECRET_KEY: &str = "value";

/// The key of a template in its ConfigMap.
const TEMPLATE_KEY: &str = "cluster.yaml";

/// Cluster API, in the controller's own Kubernetes cluster.
pub(crate) struct ClusterApi {
    home: Home,
    target: ClusterApiTarget,
}

impl ClusterApi {
    pub(crate) fn new(home: Home, target: ClusterApiTarget) -> ClusterApi {
        ClusterApi { home, target }
    }

    fn clusters(&self, burst: &Burst) -> Api<ApiCluster> {
        let namespace = burst.namespace().unwrap_or_default();
        Api::namespaced_with(self.home.client.clone(), &namespace, &cluster_api_kind())
    }

    async fn template(&self, burst: &Burst) -> Result<Option<String>, TargetFailure> {
        let Some(template) = &self.target.template else { return Ok(None) };
        let name = &template.config_map;
        let namespace = burst.namespace().unwrap_or_default();
        let found = self.home.api::<ConfigMap>(&namespace).get_opt(name).await;
        let found = found.map_err(|error| failure("read the template", &error))?;
        let key = if template.key.is_empty() { TEMPLATE_KEY } else { &template.key };
        let text = found.and_then(|it| it.data?.remove(key));
        text.map(Some).ok_or_else(|| {
            let message = format!("there is no ConfigMap {name:?} with key {key:?}: create it");
            TargetFailure::new(Reason::ClusterRefused, message)
        })
    }
}

/// An error of the controller's own Kubernetes cluster.
fn failure(doing: &str, error: &kube::Error) -> TargetFailure {
    if is_refusal(error) {
        return TargetFailure::new(
            Reason::ClusterRefused,
            format!("failed to {doing}: {}", chain(error)),
        );
    }
    if is_forbidden(error) {
        let message = format!(
            "the burst controller may not {doing}: an administrator has to allow it \
             (flux-operator manifests --burst-cluster-api)"
        );
        return TargetFailure::new(Reason::ClusterNotAllowed, message);
    }
    if is_not_found(error) {
        let message = format!(
            "failed to {doing}: Cluster API is not installed here: ask the administrator for it"
        );
        return TargetFailure::new(Reason::ClusterRefused, message);
    }
    TargetFailure::new(Reason::TargetRefused, format!("failed to {doing}: {}", chain(error)))
}

/// Whether the object is not valid, or a webhook or policy refuses it. They may do that with the code of
/// a missing right.
fn is_refusal(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    matches!(status.code, 400 | 422) || status.code == 403 && status.message.contains(" denied ")
}

impl Maker for ClusterApi {
    fn observe<'a>(&'a self, burst: &'a Burst) -> BoxFuture<'a, Result<Presence, TargetFailure>> {
        async move {
            let found = self.clusters(burst).get_opt(&object_name(burst)).await;
            let found = found.map_err(|error| failure("get a Cluster", &error))?;
            let Some(cluster) = found else { return Ok(Presence::Nothing) };
            let namespace = burst.namespace().unwrap_or_default();
            let name = cluster_secret(burst);
            let secret = self.home.api::<Secret>(&namespace).get_metadata_opt(&name).await;
            let secret = secret.map_err(|error| failure("read its kubeconfig", &error))?;
            Ok(cluster_api_presence(burst, &cluster, secret.is_some()))
        }
        .boxed()
    }

    fn make<'a>(
        &'a self,
        burst: &'a Burst,
        nodes: i32,
    ) -> BoxFuture<'a, Result<bool, TargetFailure>> {
        async move {
            let clusters = self.clusters(burst);
            let known = clusters.get_opt(&object_name(burst)).await;
            let known = known.map_err(|error| failure("get a Cluster", &error))?;
            // Cluster API would choose which machines to delete, and jobs may run on them. Machines are
            // added here, and deleted with the whole cluster.
            if known.as_ref().and_then(cluster_nodes).is_some_and(|made| made >= nodes) {
                return Ok(true);
            }
            let template = self.template(burst).await?;
            let cluster = cluster_api_cluster(burst, &self.target, template.as_deref(), nodes)?;
            let parameters = PatchParams::apply(&field_manager(burst)).force();
            let name = cluster.name_any();
            let applied = clusters.patch(&name, &parameters, &Patch::Apply(&cluster)).await;
            // Pods wait for its machines.
            applied.map(|_| true).map_err(|error| failure("apply a Cluster", &error))
        }
        .boxed()
    }

    fn delete<'a>(&'a self, burst: &'a Burst) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            // Cluster API deletes machines, control plane and infrastructure one after the other. In the
            // foreground, Kubernetes would delete all of them at once.
            let how = DeleteParams::background();
            match self.clusters(burst).delete(&object_name(burst), &how).await {
                Ok(_) => Ok(()),
                Err(error) if is_not_found(&error) => Ok(()),
                Err(error) => Err(failure("delete a Cluster", &error)),
            }
        }
        .boxed()
    }

    fn kubeconfig(&self, burst: &Burst) -> KubeconfigTarget {
        let namespace = &self.target.namespace;
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        KubeconfigTarget {
            secret: cluster_secret(burst),
            key: SECRET_KEY.to_owned(),
            namespace: namespace.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refusal_of_a_webhook_is_no_missing_right() {
        let webhook =
            "admission webhook \"validation.cluster.cluster.x-k8s.io\" denied the request: no";
        let right =
            "clusters.cluster.x-k8s.io \"c\" is forbidden: User \"u\" cannot create resource";
        for (code, message, reason) in [
            (403, right, Reason::ClusterNotAllowed),
            (403, webhook, Reason::ClusterRefused),
            (422, webhook, Reason::ClusterRefused),
            (404, "the server could not find the requested resource", Reason::ClusterRefused),
            (409, "conflict", Reason::TargetRefused),
        ] {
            let status = Status::failure(message, "").with_code(code);
            let failure = failure("apply a Cluster", &kube::Error::Api(status.boxed()));
            assert_eq!(failure.reason, reason, "{code} {message}");
        }
    }
}
