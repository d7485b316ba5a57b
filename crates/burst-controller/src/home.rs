//! The controller's own Kubernetes cluster.

use std::collections::BTreeSet;

use flux_operator_api::{MiniCluster, Reason};
use flux_operator_plan::bursting::TargetFailure;
use flux_operator_plan::kubernetes::Settings;
use flux_operator_plan::{InvitationSecrets, SecretData, SecretNames};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};

use crate::errors::chain;

/// The MiniClusters' Kubernetes cluster, which is the controller's own too.
#[derive(Clone)]
pub(crate) struct Home {
    /// The client, with the controller's own identity.
    pub(crate) client: Client,
    /// How brokers elsewhere are rendered.
    pub(crate) settings: Settings,
    /// The namespaces that an administrator has listed. Others are not served.
    pub(crate) served: BTreeSet<String>,
    /// Whether programs of users may make clusters. The right to create Jobs does not say it: the program
    /// for Google Kubernetes Engine needs the same.
    pub(crate) commands: bool,
    /// The image of the program that makes clusters of Google Kubernetes Engine, if there may be any.
    pub(crate) gke_image: Option<String>,
}

impl Home {
    /// The API of a kind in a namespace.
    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Whether the controller serves a namespace.
    pub(crate) fn serves(&self, namespace: &str) -> bool {
        serves(&self.served, namespace)
    }

    /// The Job of a MiniCluster, and its keys for brokers elsewhere.
    pub(crate) async fn keys_of(
        &self,
        cluster: &MiniCluster,
    ) -> Result<(Option<Job>, InvitationSecrets), TargetFailure> {
        let namespace = cluster.namespace().unwrap_or_default();
        let failed = |what: &str, error: &kube::Error| {
            let message = format!("failed to read {what} of the MiniCluster: {}", chain(error));
            TargetFailure::new(Reason::LenderNotReady, message)
        };
        let job = self.api::<Job>(&namespace).get_opt(&cluster.name_any()).await;
        let job = job.map_err(|error| failed("the Job", &error))?;
        let names = SecretNames::of(cluster, job.as_ref());
        let mut secrets = SecretData::new();
        for name in names.all() {
            let secret = self.api::<Secret>(&namespace).get_opt(name).await;
            let secret = secret.map_err(|error| failed("the keys", &error))?;
            secrets.extend(secret.map(|it| (name.clone(), it.data.unwrap_or_default())));
        }
        let keys = names.keys(&secrets);
        let keys =
            keys.map_err(|error| TargetFailure::new(Reason::LenderNotReady, error.to_string()))?;
        Ok((job, keys))
    }
}

/// Whether a namespace is one of those that are served.
pub(crate) fn serves(served: &BTreeSet<String>, namespace: &str) -> bool {
    served.contains(namespace) || served.contains("*")
}
