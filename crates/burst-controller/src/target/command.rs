//! A program of the user's makes the cluster, as a Job with the user's image and account.

use flux_operator_api::burst::{CommandTarget, KubeconfigTarget};
use flux_operator_api::{Burst, Reason};
use flux_operator_plan::bursting::{
    BURST_LABEL, CommandJobs, Deletion, Presence, TargetFailure, cluster_secret, command_presence,
    down_job, object_name,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::made_cluster::Maker;
use crate::errors::{chain, is_conflict, is_forbidden, is_not_found};
use crate::home::Home;

/// The key of the kubeconfig that the program writes.
const SECRET_KEY: &str = "kubeconfig";

/// A program, in the namespace of its Burst.
pub(crate) struct Command {
    home: Home,
    target: CommandTarget,
}

impl Command {
    pub(crate) fn new(home: Home, target: CommandTarget) -> Command {
        Command { home, target }
    }

    fn jobs(&self, burst: &Burst) -> Api<Job> {
        self.home.api(&burst.namespace().unwrap_or_default())
    }

    async fn existing(&self, burst: &Burst) -> Result<CommandJobs, TargetFailure> {
        let name = object_name(burst);
        let of_burst = ListParams::default().labels(&format!("{BURST_LABEL}={name}"));
        let jobs = self.jobs(burst).list(&of_burst).await;
        let jobs = jobs.map_err(|error| failure("list Jobs", &error))?;
        Ok(CommandJobs::of(burst, jobs.items))
    }

    async fn create(&self, job: &Job, burst: &Burst) -> Result<(), TargetFailure> {
        match self.jobs(burst).create(&PostParams::default(), job).await {
            Ok(_) => Ok(()),
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(failure("create a Job", &error)),
        }
    }

    async fn suspend(&self, job: &Job, burst: &Burst) -> Result<(), TargetFailure> {
        let patch = Patch::Merge(json!({ "spec": { "suspend": true } }));
        let patched =
            self.jobs(burst).patch(&job.name_any(), &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| failure("suspend a Job", &error))
    }

    async fn delete_job(&self, job: &Job, burst: &Burst) -> Result<(), TargetFailure> {
        match self.jobs(burst).delete(&job.name_any(), &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(failure("delete a Job", &error)),
        }
    }

    async fn delete_secret(&self, burst: &Burst) -> Result<(), TargetFailure> {
        let secrets = self.home.api::<Secret>(&burst.namespace().unwrap_or_default());
        match secrets.delete(&cluster_secret(burst), &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(failure("delete a Secret", &error)),
        }
    }
}

/// An error of the controller's own Kubernetes cluster.
fn failure(doing: &str, error: &kube::Error) -> TargetFailure {
    if is_forbidden(error) {
        let message = format!(
            "the burst controller may not {doing} for a command: an administrator has to allow it \
             (flux-operator manifests --burst-commands)"
        );
        return TargetFailure::new(Reason::ClusterNotAllowed, message);
    }
    TargetFailure::new(Reason::TargetRefused, format!("failed to {doing}: {}", chain(error)))
}

impl Maker for Command {
    fn observe<'a>(
        &'a self,
        burst: &'a Burst,
    ) -> BoxFuture<'a, Result<(Presence, Option<String>), TargetFailure>> {
        async move {
            let jobs = self.existing(burst).await?;
            let secrets = self.home.api::<Secret>(&burst.namespace().unwrap_or_default());
            let secret = secrets.get_metadata_opt(&cluster_secret(burst)).await;
            let secret = secret.map_err(|error| failure("read a Secret", &error))?;
            Ok(command_presence(burst, &jobs, secret.is_some()))
        }
        .boxed()
    }

    fn make<'a>(
        &'a self,
        burst: &'a Burst,
        nodes: i32,
    ) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            match self.existing(burst).await?.next_up(burst, &self.target, nodes) {
                Some(job) => self.create(&job, burst).await,
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn delete<'a>(&'a self, burst: &'a Burst) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            let jobs = self.existing(burst).await?;
            match jobs.next_deletion() {
                Deletion::Wait => Ok(()),
                Deletion::StopUp(running) => {
                    for job in running {
                        self.suspend(job, burst).await?;
                    }
                    Ok(())
                }
                Deletion::RunDown => self.create(&down_job(burst, &self.target), burst).await,
                Deletion::RetryDown(down, why) => {
                    self.delete_job(down, burst).await?;
                    let message =
                        format!("the cluster could not be deleted, which is tried again: {why}");
                    Err(TargetFailure::new(Reason::TargetRefused, message))
                }
                Deletion::RemoveRecords => {
                    for job in &jobs.up {
                        self.delete_job(job, burst).await?;
                    }
                    self.delete_secret(burst).await?;
                    match &jobs.down {
                        Some(down) => self.delete_job(down, burst).await,
                        None => Ok(()),
                    }
                }
            }
        }
        .boxed()
    }

    fn kubeconfig(&self, burst: &Burst) -> KubeconfigTarget {
        KubeconfigTarget {
            secret: cluster_secret(burst),
            key: SECRET_KEY.to_owned(),
            namespace: self.target.namespace.clone(),
        }
    }
}
