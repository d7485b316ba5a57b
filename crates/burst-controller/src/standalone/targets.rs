//! Targets of an instance outside Kubernetes: other Kubernetes clusters, by kubeconfigs of the user.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use flux_operator_api::burst::{KubeconfigTarget, TargetKind};
use flux_operator_api::{Burst, MiniCluster, Reason};
use flux_operator_flux::Certificate;
use flux_operator_plan::bursting::{
    PoolPods, RemotePool, StandaloneInstance, TargetFailure, standalone_pool,
};
use flux_operator_plan::kubernetes::Settings;
use flux_operator_service::lock::lock;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::run::StandaloneRunError;
use crate::errors::chain;
use crate::target::{
    Connected, Mock, OtherCluster, Pool, PoolSource, Target, check_file, connect_with_file,
};

/// What finds the target of a Burst.
pub(super) trait Targets: Send + Sync {
    /// The target.
    fn of<'a>(
        &'a self,
        burst: &'a Burst,
    ) -> BoxFuture<'a, Result<Box<dyn Target + 'a>, TargetFailure>>;
}

/// Targets by kubeconfigs of the user, who runs this program: they may run programs and read files.
pub(super) struct OwnTargets {
    pub(super) source: StandaloneSource,
    /// The files, by the names that stand for Secrets in targets.
    kubeconfigs: BTreeMap<String, OwnKubeconfig>,
    /// Clients by name, with the content of the file that they were made from.
    clients: Mutex<HashMap<String, (Vec<u8>, Connected)>>,
}

/// A kubeconfig of the user's.
struct OwnKubeconfig {
    path: PathBuf,
    /// The context that was the current one at first: `kubectl config use-context` changes nothing here.
    context: Option<String>,
}

impl OwnTargets {
    /// Fails if a kubeconfig cannot be used.
    pub(super) async fn new(
        source: StandaloneSource,
        files: BTreeMap<String, PathBuf>,
    ) -> Result<OwnTargets, StandaloneRunError> {
        let mut kubeconfigs = BTreeMap::new();
        for (name, path) in files {
            let context = match check_file(&path).await {
                Ok(context) => context,
                Err(problem) => {
                    return Err(StandaloneRunError::Kubeconfig { name, path, problem });
                }
            };
            kubeconfigs.insert(name, OwnKubeconfig { path, context });
        }
        Ok(OwnTargets { source, kubeconfigs, clients: Mutex::default() })
    }

    async fn connected(&self, target: &KubeconfigTarget) -> Result<Connected, TargetFailure> {
        let name = &target.secret;
        let missing = |message: String| TargetFailure::new(Reason::CredentialsMissing, message);
        let found = self.kubeconfigs.get(name);
        let OwnKubeconfig { path, context } = found.ok_or_else(|| {
            missing(format!("there is no kubeconfig {name:?}: pass --kubeconfig {name}=FILE"))
        })?;
        let text = std::fs::read(path);
        let text = text.map_err(|error| missing(format!("failed to read {path:?}: {error}")))?;
        let known = lock(&self.clients).get(name).filter(|(of, _)| *of == text).cloned();
        let mut connected = match known {
            Some((_, connected)) => connected,
            None => {
                let made = connect_with_file(path, context.clone()).await?;
                lock(&self.clients).insert(name.clone(), (text, made.clone()));
                made
            }
        };
        if !target.namespace.is_empty() {
            connected.namespace.clone_from(&target.namespace);
        }
        Ok(connected)
    }
}

impl Targets for OwnTargets {
    fn of<'a>(
        &'a self,
        burst: &'a Burst,
    ) -> BoxFuture<'a, Result<Box<dyn Target + 'a>, TargetFailure>> {
        async move {
            let target: Box<dyn Target> = match burst.spec.target.kind() {
                TargetKind::Kubeconfig(kubeconfig) => {
                    let connected = self.connected(kubeconfig).await?;
                    Box::new(OtherCluster::new(self.source.clone(), connected))
                }
                TargetKind::Mock(mock) => Box::new(Mock::new(mock.clone())),
                TargetKind::Cluster
                | TargetKind::ClusterApi(_)
                | TargetKind::Command(_)
                | TargetKind::Gke(_) => {
                    let message = "such a target needs the Kubernetes cluster of a MiniCluster";
                    return Err(TargetFailure::new(Reason::TargetRefused, message));
                }
            };
            Ok(target)
        }
        .boxed()
    }
}

/// Renders brokers that join the instance.
#[derive(Clone)]
pub(super) struct StandaloneSource {
    pub(super) instance: StandaloneInstance,
    pub(super) certificate: Arc<Certificate>,
    pub(super) template: Option<Arc<MiniCluster>>,
    pub(super) settings: Settings,
}

impl PoolSource for StandaloneSource {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn render<'a>(
        &'a self,
        pool: Pool<'a>,
        pods: PoolPods<'a>,
    ) -> BoxFuture<'a, Result<RemotePool, TargetFailure>> {
        let StandaloneSource { instance, certificate, template, settings } = self;
        let template = template.as_deref();
        let made = standalone_pool(instance, pool.burst, template, &pods, certificate, settings);
        let made = made.map_err(|error| TargetFailure::new(error.reason(), chain(&error)));
        std::future::ready(made).boxed()
    }
}
