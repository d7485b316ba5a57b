//! What the other Kubernetes cluster applies to use an invitation: a Secret and a MiniCluster.

use std::collections::BTreeMap;

use flux_operator_api::minicluster::{
    Bursting, Commands, Container, External, Flux, LeadBroker, LentHosts, LentInstance,
    host_and_port,
};
use flux_operator_api::{MiniCluster, MiniClusterSpec};
use flux_operator_wire::names::file;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::invitation::{holder, invitations};
use super::lease::recorded;
use super::permission::booted_cluster;
use crate::cluster::Cluster;
use crate::exposing::expose;
use crate::valid::runner;

/// The file in which munge's key is in a Secret.
pub(super) const MUNGE_KEY: &str = "munge.key";

/// The secrets of an invitation. `Debug` is not derived: it has the certificate.
pub struct InvitationSecrets {
    /// The lender's certificate.
    pub certificate: ByteString,
    /// The lender's key of reports, from which the invitation's is derived.
    pub report_key: SealKey,
    /// The munge key, if the lender has one.
    pub munge: Option<ByteString>,
}

/// The objects of an invitation.
pub struct InvitationFile {
    /// The certificate, the invitation's key and the munge key.
    pub secret: Secret,
    /// The brokers.
    pub minicluster: MiniCluster,
    /// Fields of the lender that are not in the file, because they name objects of its Kubernetes
    /// cluster.
    pub left_out: Vec<String>,
}

/// Why there is no file for an invitation yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvitationFileError {
    /// The lender has no such invitation.
    #[error("there is no invitation {0:?}")]
    Unknown(String),
    /// No ranks are leased to it.
    #[error("no ranks are leased to invitation {0:?} yet")]
    NotLeased(String),
    /// It is not known where others reach the lender.
    #[error("it is not known yet where others reach the MiniCluster")]
    NotExposed,
    /// The lead has not reported its version.
    #[error("the lead has not reported its version and user yet")]
    NoReport,
    /// The instance does not exist.
    #[error("the MiniCluster has no Flux instance")]
    NoInstance,
}

/// The objects for the brokers of an invitation, in a MiniCluster with this name and its Secret.
pub fn invitation_file(
    lender: &MiniCluster,
    job: Option<&Job>,
    invitation: &str,
    name: &str,
    secrets: InvitationSecrets,
) -> Result<InvitationFile, InvitationFileError> {
    let unknown = || InvitationFileError::Unknown(invitation.to_owned());
    let invited =
        invitations(lender).iter().find(|it| it.name == invitation).ok_or_else(unknown)?;
    let not_leased = || InvitationFileError::NotLeased(invitation.to_owned());
    let job = job.ok_or(InvitationFileError::NoInstance)?;
    let cluster = booted_cluster(lender, Some(job)).ok_or(InvitationFileError::NoInstance)?;
    let uid = holder(lender, invited).uid;
    let leases = recorded(lender);
    let lease = leases.iter().find(|it| it.holder.uid == uid && it.is_active());
    let lease = lease.filter(|it| it.table == cluster.ranks.hash()).ok_or_else(not_leased)?;
    let is_direct = expose(lender).is_some_and(|expose| expose.direct);
    let external = lender.status.as_ref().and_then(|status| status.external.as_ref());
    let external = external.ok_or(InvitationFileError::NotExposed)?;
    let port = match is_direct {
        true => external.port,
        false => lease.invitation.as_ref().map(|it| it.port).unwrap_or_default(),
    };
    let mut lead_broker =
        lead_broker(lender, external, port).ok_or(InvitationFileError::NotExposed)?;
    let lead = external.lead.clone().ok_or(InvitationFileError::NoReport)?;
    let cluster_uid = lender.uid().unwrap_or_default();
    lead_broker.instance = Some(LentInstance {
        invitation: invited.name.clone(),
        cluster: cluster_uid.clone(),
        expires: invited.expires.clone(),
        ranks: lease.ranks.to_string(),
        table: lease.table.clone(),
        hosts: hosts(&cluster),
        topology: cluster.broker.topology.clone(),
        config: cluster.config.to_toml().unwrap_or_default(),
        simple_scheduler: cluster.simple_scheduler,
        lead,
        direct: is_direct,
    });
    let key = secrets.report_key.for_invitation(&cluster_uid, &invited.name, &invited.expires);
    let secret_name = format!("{name}-invitation");
    let (mut spec, left_out) = broker_spec(lender, invited.ranks);
    let flux = spec.flux.get_or_insert_default();
    flux.curve_cert_secret.clone_from(&secret_name);
    if secrets.munge.is_some() {
        flux.munge_secret.clone_from(&secret_name);
    }
    flux.bursting = Some(Bursting { lead_broker: Some(lead_broker), ..Bursting::default() });
    let metadata = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let mut data = BTreeMap::from([
        (file::CERTIFICATE.to_owned(), secrets.certificate),
        (file::INVITATION_KEY.to_owned(), ByteString(key.to_secret_text().as_bytes().to_vec())),
    ]);
    data.extend(secrets.munge.map(|munge| (MUNGE_KEY.to_owned(), munge)));
    let secret = Secret {
        metadata: metadata(&secret_name),
        data: Some(data),
        type_: Some("Opaque".into()),
        ..Secret::default()
    };
    let mut minicluster = MiniCluster::new(name, spec);
    minicluster.metadata = metadata(name);
    Ok(InvitationFile { secret, minicluster, left_out })
}

/// The lead, as it is reached from elsewhere.
fn lead_broker(lender: &MiniCluster, external: &External, port: i32) -> Option<LeadBroker> {
    let mut addresses = external.addresses.iter();
    let first = addresses.next().filter(|_| port > 0)?;
    let size = lender.spec.max_size.unwrap_or_default().max(lender.spec.size);
    Some(LeadBroker {
        address: first.clone(),
        name: lender.name_any(),
        size,
        port,
        addresses: addresses.map(|address| host_and_port(address, port)).collect(),
        instance: None,
    })
}

fn hosts(cluster: &Cluster) -> Vec<LentHosts> {
    let number =
        |number: Option<u32>| number.and_then(|it| i32::try_from(it).ok()).unwrap_or_default();
    let groups = cluster.ranks.host_groups().into_iter();
    groups
        .map(|group| LentHosts {
            hosts: group.hosts.to_string(),
            property: group.property,
            cores: number(group.cores),
            gpus: number(group.gpus),
        })
        .collect()
}

/// The spec of the brokers: image, resources and hooks as the lender's, and nothing that names an
/// object of its Kubernetes cluster; and the names of fields that are left out for that.
pub(crate) fn broker_spec(lender: &MiniCluster, size: i32) -> (MiniClusterSpec, Vec<String>) {
    let theirs = lender.spec.flux.clone().unwrap_or_default();
    let runner = runner(&lender.spec.containers).cloned().unwrap_or_default();
    let commands = runner.commands.clone().unwrap_or_default();
    let commands = Commands {
        init: commands.init,
        pre: commands.pre,
        worker_pre: commands.worker_pre,
        post: commands.post,
        ..Commands::default()
    };
    let view = theirs.container.clone().map(|mut view| {
        view.image_pull_secret = String::new();
        view
    });
    let left_out = [
        ("volumes", !runner.volumes.is_empty() || !runner.existing_volumes.is_empty()),
        ("secrets", !runner.secrets.is_empty()),
        ("imagePullSecret", !runner.image_pull_secret.is_empty()),
        (
            "flux.container.imagePullSecret",
            theirs.container.as_ref().is_some_and(|view| !view.image_pull_secret.is_empty()),
        ),
        ("sidecars", lender.spec.containers.len() > 1),
        ("pod", lender.spec.pod.is_some()),
    ];
    let left_out = left_out.into_iter().filter(|(_, is_set)| *is_set);
    let left_out = left_out.map(|(field, _)| field.to_owned()).collect();
    let container = Container {
        image: runner.image,
        working_dir: runner.working_dir,
        image_pull_policy: runner.image_pull_policy,
        pull_always: runner.pull_always,
        environment: runner.environment,
        resources: runner.resources,
        security_context: runner.security_context,
        commands: Some(commands).filter(|commands| *commands != Commands::default()),
        ..Container::default()
    };
    let flux = Flux {
        container: view,
        connect_timeout: theirs.connect_timeout,
        log_level: theirs.log_level,
        environment: theirs.environment,
        ..Flux::default()
    };
    let spec = MiniClusterSpec {
        size,
        containers: vec![container],
        flux: Some(flux),
        pod_security: lender.spec.pod_security,
        ..MiniClusterSpec::default()
    };
    (spec, left_out)
}
