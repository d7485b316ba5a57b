//! The objects of a run: a MiniCluster of its own at the target, rendered at home.
//!
//! Its lead's program is the agent itself, which submits the jobspec as it is. Nothing there needs
//! to reach home, so that there is no invitation and no report.

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{Logging, Restart, Scheduler};
use flux_operator_flux::{Certificate, JobRun};
use flux_operator_wire::JobspecText;
use flux_operator_wire::names::{command, file, option};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::bursting::remote_pool::{PoolPods, RemotePoolError, move_to_target, with_pods};
use crate::cluster::{Cluster, mount};
use crate::joining::broker_spec;
use crate::kubernetes::{self, Keys, NewKeys, Rendering, Settings, agent_path, keys_path};
use crate::valid::{Valid, runner_mut};

/// The objects of a run. None has an owner. `Debug` is not derived: the Secret has the jobspec.
pub struct IsolatedObjects {
    /// The certificate of its brokers, and the jobspec.
    pub secret: Secret,
    /// The boot plan.
    pub config_map: ConfigMap,
    /// The names of its pods.
    pub service: Service,
    /// The pods.
    pub job: Job,
}

/// Name of the Secret of a run.
pub fn isolated_secret_name(object_name: &str, burst_uid: &str) -> String {
    let mut named = MiniCluster::new(object_name, Default::default());
    named.metadata.uid = Some(burst_uid.to_owned());
    kubernetes::secret_name(&named, None)
}

/// The objects of the run of a job of `home`, whose jobspec is as it was submitted there. They are named
/// after `name`.
pub fn isolated_objects(
    home: &MiniCluster,
    name: &str,
    pods: &PoolPods<'_>,
    certificate: Certificate,
    jobspec: &JobspecText,
    settings: &Settings,
) -> Result<IsolatedObjects, RemotePoolError> {
    let minicluster = with_pods(minicluster(home, name, pods), pods);
    let valid = Valid::check(minicluster).map_err(RemotePoolError::Refused)?;
    let cluster = Cluster::of(&valid).map_err(|source| RemotePoolError::Hosts { source })?;
    let settings = Settings { report_url: None, ..settings.clone() };
    let rendering = Rendering { minicluster: &valid, cluster: &cluster, settings: &settings };
    let keys = Keys { certificate: Some(certificate), report: None };
    let mut secret = NewKeys::of(&rendering).secret(&keys);
    let run = JobRun::parse(jobspec.as_secret_str());
    let run = run.map_err(|source| RemotePoolError::NotPortable { source })?;
    let jobspec = JobspecText::new(run.to_jobspec());
    let jobspec = ByteString(jobspec.as_secret_str().as_bytes().to_vec());
    secret.data.get_or_insert_default().insert(file::JOBSPEC.to_owned(), jobspec);
    let mut config_map = kubernetes::config_map(&rendering);
    let mut service = kubernetes::cluster_service(&rendering);
    let mut job = kubernetes::job(&rendering);
    if let Some(spec) = &mut job.spec {
        spec.active_deadline_seconds = pods.deadline_seconds;
    }
    let all: [&mut ObjectMeta; 4] =
        [&mut secret.metadata, &mut config_map.metadata, &mut service.metadata, &mut job.metadata];
    for metadata in all {
        move_to_target(metadata, pods.labels);
    }
    Ok(IsolatedObjects { secret, config_map, service, job })
}

/// The MiniCluster of a run: image, resources and hooks as at home, and nothing that names an object
/// of home's Kubernetes cluster.
fn minicluster(home: &MiniCluster, name: &str, pods: &PoolPods<'_>) -> MiniCluster {
    let (mut spec, _) = broker_spec(home, pods.nodes);
    let theirs = home.spec.flux.clone().unwrap_or_default();
    let flux = spec.flux.get_or_insert_default();
    let mut resources = theirs.resources.unwrap_or_default();
    if pods.target.cores > 0 {
        resources.cores = pods.target.cores;
    }
    resources.gpus = pods.target.gpus.unwrap_or(resources.gpus);
    flux.resources = Some(resources);
    flux.scheduler = theirs
        .scheduler
        .map(|scheduler| Scheduler { simple: scheduler.simple, ..Scheduler::default() });
    // The job is never run a second time.
    spec.restart = Some(Restart { limit: Some(0) });
    // The log has the output of the job, and as little else as possible.
    spec.logging = Some(Logging { quiet: true, ..Logging::default() });
    let mount = mount(&spec);
    if let Some(runner) = runner_mut(&mut spec.containers) {
        runner.launcher = true;
        let jobspec = format!("{}/{}", keys_path(), file::JOBSPEC);
        let words = [command::RUN_JOB, &jobspec, option::ROOT, &mount].map(str::to_owned);
        runner.args = [agent_path()].into_iter().chain(words).collect();
    }
    let mut minicluster = MiniCluster::new(name, spec);
    minicluster.metadata.name = Some(name.to_owned());
    minicluster
}
