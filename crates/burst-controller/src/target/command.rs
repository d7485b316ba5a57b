//! A program makes the cluster, as a Job with the user's account: a program of the user's, or that for
//! Google Kubernetes Engine.

use flux_operator_api::burst::{CommandTarget, KubeconfigTarget};
use flux_operator_api::{Burst, Reason};
use flux_operator_plan::bursting::{
    BURST_LABEL, CommandJobs, Deletion, Growth, Presence, TargetFailure, cluster_secret,
    command_presence, down_job, gke_job, may_exist, needs_permission, object_name,
};
use flux_operator_wire::KUBECONFIG_KEY;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::made_cluster::Maker;
use crate::errors::{chain, exists_already, is_forbidden, is_not_found};
use crate::home::Home;

/// How many Jobs of a Burst are read: one for each size that its cluster has had, and one that deletes
/// it. Users may create any number with these labels.
const MAX_JOBS: u32 = 200;

/// Whose program it is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum ProgramKind {
    /// The user's.
    OfUser,
    /// The one for Google Kubernetes Engine.
    Gke,
}

impl ProgramKind {
    /// The option with which an administrator allows it.
    fn option(self) -> &'static str {
        match self {
            ProgramKind::OfUser => "--burst-commands",
            ProgramKind::Gke => "--burst-gke",
        }
    }
}

/// A program, in the namespace of its Burst.
pub(crate) struct Command {
    home: Home,
    target: CommandTarget,
    kind: ProgramKind,
}

impl Command {
    pub(crate) fn new(home: Home, target: CommandTarget, kind: ProgramKind) -> Command {
        Command { home, target, kind }
    }

    fn jobs(&self, burst: &Burst) -> Api<Job> {
        self.home.api(&burst.namespace().unwrap_or_default())
    }

    /// An error of the controller's own Kubernetes cluster.
    fn failure(&self, doing: &str, error: &kube::Error) -> TargetFailure {
        if is_forbidden(error) {
            return self.not_allowed(&format!("{doing} for a program"));
        }
        TargetFailure::new(Reason::TargetRefused, format!("failed to {doing}: {}", chain(error)))
    }

    /// A failure that only an administrator can mend.
    fn not_allowed(&self, doing: &str) -> TargetFailure {
        let message = format!(
            "the burst controller may not {doing}: an administrator has to allow it \
             (flux-operator manifests {})",
            self.kind.option()
        );
        TargetFailure::new(Reason::ClusterNotAllowed, message)
    }

    /// Fails if an administrator has not allowed that clusters are made in this way.
    fn check_permission(&self) -> Result<(), TargetFailure> {
        match self.kind {
            ProgramKind::OfUser if !self.home.commands => {
                Err(self.not_allowed("run programs of users"))
            }
            // Without the administrator's image there is no such program.
            ProgramKind::OfUser | ProgramKind::Gke => Ok(()),
        }
    }

    async fn existing(&self, burst: &Burst) -> Result<CommandJobs, TargetFailure> {
        let name = object_name(burst);
        let of_burst =
            ListParams::default().labels(&format!("{BURST_LABEL}={name}")).limit(MAX_JOBS);
        let jobs = self.jobs(burst).list(&of_burst).await;
        let jobs = jobs.map_err(|error| self.failure("list Jobs", &error))?;
        Ok(CommandJobs::of(burst, jobs.items))
    }

    async fn create(&self, job: Job, burst: &Burst) -> Result<(), TargetFailure> {
        let job = match self.kind {
            ProgramKind::OfUser => job,
            ProgramKind::Gke => gke_job(job),
        };
        match self.jobs(burst).create(&PostParams::default(), &job).await {
            Ok(_) => Ok(()),
            Err(error) if exists_already(&error) => Ok(()),
            Err(error) => Err(self.failure("create a Job", &error)),
        }
    }

    async fn suspend(&self, job: &Job, burst: &Burst) -> Result<(), TargetFailure> {
        let patch = Patch::Merge(json!({ "spec": { "suspend": true } }));
        let patched =
            self.jobs(burst).patch(&job.name_any(), &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| self.failure("suspend a Job", &error))
    }

    async fn delete_job(&self, job: &Job, burst: &Burst) -> Result<(), TargetFailure> {
        match self.jobs(burst).delete(&job.name_any(), &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(self.failure("delete a Job", &error)),
        }
    }

    async fn delete_secret(&self, burst: &Burst) -> Result<(), TargetFailure> {
        let secrets = self.home.api::<Secret>(&burst.namespace().unwrap_or_default());
        match secrets.delete(&cluster_secret(burst), &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(self.failure("delete a Secret", &error)),
        }
    }
}

impl Maker for Command {
    fn observe<'a>(&'a self, burst: &'a Burst) -> BoxFuture<'a, Result<Presence, TargetFailure>> {
        async move {
            if needs_permission(burst) {
                self.check_permission()?;
            }
            let jobs = self.existing(burst).await?;
            let secrets = self.home.api::<Secret>(&burst.namespace().unwrap_or_default());
            let secret = secrets.get_metadata_opt(&cluster_secret(burst)).await;
            let secret = secret.map_err(|error| self.failure("read a Secret", &error))?;
            Ok(command_presence(burst, &jobs, secret.is_some()))
        }
        .boxed()
    }

    fn make<'a>(
        &'a self,
        burst: &'a Burst,
        nodes: i32,
    ) -> BoxFuture<'a, Result<bool, TargetFailure>> {
        async move {
            let jobs = self.existing(burst).await?;
            match jobs.next_growth(burst, &self.target, nodes) {
                Growth::Enough => Ok(true),
                Growth::Wait => Ok(false),
                Growth::Run(job) => {
                    // The permission may have been withdrawn since.
                    self.check_permission()?;
                    self.create(*job, burst).await.map(|()| false)
                }
                Growth::Retry(job, why) => {
                    self.delete_job(job, burst).await?;
                    let message = format!(
                        "the cluster could not be made larger, which is tried again: {why}"
                    );
                    Err(TargetFailure::new(Reason::ClusterRefused, message))
                }
            }
        }
        .boxed()
    }

    fn delete<'a>(&'a self, burst: &'a Burst) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            let jobs = self.existing(burst).await?;
            match jobs.next_deletion(may_exist(burst)) {
                Deletion::Wait => Ok(()),
                Deletion::StopUp(running) => {
                    for job in running {
                        self.suspend(job, burst).await?;
                    }
                    Ok(())
                }
                Deletion::RunDown => self.create(down_job(burst, &self.target), burst).await,
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
                    // Last: while it exists, there is something to do.
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
            key: KUBECONFIG_KEY.to_owned(),
            namespace: self.target.namespace.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
