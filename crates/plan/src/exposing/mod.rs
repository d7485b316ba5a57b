//! How brokers of other Kubernetes clusters reach a lender.
//!
//! ```text
//!  another cluster            this cluster
//!  broker ──► node:30123 ──► Service NAME-external ──► gateway:24817 ──► lead:8050
//!             one port per lease of an invitation       counts, cuts
//! ```
//!
//! The Service belongs to the MiniCluster and is in its namespace. The gateway is in another one, so
//! the Service has no selector: its endpoints are written here. With `direct` there is no gateway,
//! and the Service selects the lead's pod.

mod offline;
mod ports;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::Expose;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

pub use offline::new_exposed_service;
pub(crate) use ports::{assign_ports, first_port, is_gateway_port, is_port};
pub(crate) use state::{ExposeState, expose_state, exposed_lead_address};

use crate::drift;
use crate::joining::{LeaseDecision, awaits_grant, bursting, note_change};
use crate::kubernetes::{self, Rendering};
use crate::observed::Observed;
use crate::step::{FIELD_MANAGER, Object, Step, Target, TargetKind};

/// What is known about the gateway, and about addresses of this Kubernetes cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayView {
    /// The gateway's pods that accept connections.
    pub endpoints: BTreeSet<GatewayEndpoint>,
    /// The ports that other MiniClusters use on it.
    pub taken_ports: BTreeMap<u16, PortHolder>,
    /// The addresses of nodes, by name, each with the one to publish. `None` if they are not known.
    pub nodes: Option<BTreeMap<String, String>>,
}

/// The lease of another MiniCluster that has a port of the gateway. The first in this order keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortHolder {
    /// Since when it has the lease.
    pub since: Timestamp,
    /// Uid of the MiniCluster.
    pub uid: String,
}

/// A pod of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatewayEndpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its node; empty if it is not in a pod.
    pub node: String,
}

/// How a MiniCluster is exposed.
pub(crate) fn expose(minicluster: &MiniCluster) -> Option<&Expose> {
    bursting(minicluster)?.expose.as_ref()
}

/// The step that notes on the Job what the invitations of a MiniCluster have, if that is not there yet.
pub(crate) fn note_step(
    requested: &MiniCluster,
    job: &Job,
    leases: &LeaseDecision,
    now: Timestamp,
) -> Option<Step> {
    let patch = note_change(requested, job, leases, now)?;
    Some(Step::Patch { target: Target::of(TargetKind::Job, job), patch })
}

/// The steps by which others reach a MiniCluster: the endpoints, and the Service last. The API server
/// refuses a Service whose node port is taken, and endpoints of invitations that are in use have to follow
/// the gateway all the same.
pub(crate) fn expose_steps(
    requested: &MiniCluster,
    rendering: &Rendering<'_>,
    observed: &Observed,
    leases: &LeaseDecision,
) -> Vec<Step> {
    let awaits = |job| awaits_grant(requested, job, leases, observed.now);
    if expose(requested).is_some() && observed.job.as_deref().is_some_and(awaits) {
        return Vec::new();
    }
    let mut steps = endpoint_steps(requested, rendering, observed, leases);
    steps.extend(service_step(requested, rendering, observed, leases));
    steps
}

/// Whether a step is for the Service by which others reach a MiniCluster, or for its endpoints. The
/// cluster itself needs neither.
pub(crate) fn is_expose_step(step: &Step, minicluster: &MiniCluster) -> bool {
    let name = kubernetes::exposed_name(&minicluster.name_any());
    match step {
        Step::Create(object) | Step::CreateOrApply(object) | Step::Apply { object, .. } => {
            match object {
                Object::EndpointSlice(_) => true,
                Object::Service(service) => service.name_any() == name,
                Object::ConfigMap(_) | Object::Pod(_) | Object::Job(_) | Object::MiniCluster(_) => {
                    false
                }
            }
        }
        Step::Patch { target, .. } | Step::Delete(target) => match target.kind {
            TargetKind::EndpointSlice => true,
            TargetKind::Service => target.name == name,
            TargetKind::Job | TargetKind::Pod | TargetKind::MiniCluster => false,
        },
        Step::CreateKeys(_) | Step::CopyCertificate(_) | Step::PatchSelf(_) | Step::DeleteSelf => {
            false
        }
    }
}

fn service_step(
    requested: &MiniCluster,
    rendering: &Rendering<'_>,
    observed: &Observed,
    leases: &LeaseDecision,
) -> Option<Step> {
    let wanted = expose(requested)
        .and_then(|expose| kubernetes::exposed_service(rendering, expose, &leases.leases));
    let name = kubernetes::exposed_name(rendering.name());
    let found = observed.services.iter().find(|it| it.name_any() == name);
    match (wanted, found) {
        (Some(wanted), Some(found)) => {
            let patch = drift::exposed_service_change(found, &wanted)?;
            Some(Step::Patch { target: Target::of(TargetKind::Service, &**found), patch })
        }
        (Some(wanted), None) => Some(Step::CreateOrApply(Object::Service(Box::new(wanted)))),
        // One of another owner is left alone.
        (None, Some(found)) if kubernetes::is_owned_by(&found.metadata, requested) => {
            Some(Step::Delete(Target::of(TargetKind::Service, &**found)))
        }
        (None, _) => None,
    }
}

fn endpoint_steps(
    requested: &MiniCluster,
    rendering: &Rendering<'_>,
    observed: &Observed,
    leases: &LeaseDecision,
) -> Vec<Step> {
    let wanted = expose(requested).and_then(|expose| {
        kubernetes::exposed_endpoints(rendering, expose, &leases.leases, &observed.gateway)
    });
    let is_wanted = |it: &EndpointSlice| {
        wanted.as_ref().is_some_and(|wanted| wanted.name_any() == it.name_any())
    };
    // A gateway that is not known, as while it is restarted, is no reason to remove its address.
    let is_known = expose(requested).is_none() || !observed.gateway.endpoints.is_empty();
    let unwanted = observed.endpoint_slices.iter().filter(|it| {
        is_known && !is_wanted(it) && kubernetes::is_owned_by(&it.metadata, requested)
    });
    let targets = unwanted.map(|it| Target::of(TargetKind::EndpointSlice, &**it));
    let mut steps: Vec<Step> = targets.map(Step::Delete).collect();
    if let Some(wanted) = &wanted {
        let object = Object::EndpointSlice(Box::new(wanted.clone()));
        match observed.endpoint_slices.iter().find(|it| is_wanted(it)) {
            Some(found) if drift::endpoint_slice_matches(found, wanted) => {}
            Some(_) => steps.push(Step::Apply { object, manager: FIELD_MANAGER.into() }),
            None => steps.push(Step::CreateOrApply(object)),
        }
    }
    steps
}
