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

mod ports;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::Expose;
use kube::ResourceExt;

pub(crate) use ports::{first_port, is_gateway_port, is_port, with_ports};
pub(crate) use state::{ExposeState, expose_state, exposed_lead};

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
    pub since: String,
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

/// The steps for the Service by which others reach a MiniCluster, for its endpoints, and for the note of
/// what its invitations have.
pub(crate) fn exposed_objects(
    requested: &MiniCluster,
    rendering: &Rendering<'_>,
    observed: &Observed,
    leases: &LeaseDecision,
) -> Vec<Step> {
    let apply = |object| Step::Apply { object, manager: FIELD_MANAGER.into() };
    let service = expose(requested)
        .and_then(|expose| kubernetes::exposed_service(rendering, expose, &leases.leases));
    let slice = expose(requested).and_then(|expose| {
        kubernetes::exposed_endpoints(rendering, expose, &leases.leases, &observed.gateway)
    });
    let job = observed.job.as_deref();
    let note = job.and_then(|job| {
        let patch = note_change(requested, job, &leases.leases, observed.now)?;
        Some(Step::Patch { target: Target::of(TargetKind::Job, job), patch })
    });
    let mut steps: Vec<Step> = note.into_iter().collect();
    let now = observed.now;
    let awaits = |job| awaits_grant(requested, job, &leases.leases, now);
    if expose(requested).is_some() && job.is_some_and(awaits) {
        return steps;
    }
    let name = kubernetes::exposed_name(rendering.name());
    let found = observed.services.iter().find(|it| it.name_any() == name);
    match (service, found) {
        (Some(wanted), Some(found)) => {
            let target = || Target::of(TargetKind::Service, &**found);
            let change = drift::exposed_service_change(found, &wanted);
            steps.extend(change.map(|patch| Step::Patch { target: target(), patch }));
        }
        // One of another owner is left alone.
        (Some(wanted), None) => {
            steps.push(Step::CreateOrApply(Object::Service(Box::new(wanted))));
        }
        (None, Some(found)) if kubernetes::is_owned_by(&found.metadata, requested) => {
            steps.push(Step::Delete(Target::of(TargetKind::Service, &**found)));
        }
        (None, _) => {}
    }
    // A gateway that is not known, as while it is restarted, is no reason to remove its address.
    let is_known = expose(requested).is_none() || !observed.gateway.endpoints.is_empty();
    let unwanted = observed.endpoint_slices.iter().filter(|_| is_known).filter(|it| {
        slice.as_ref().is_none_or(|wanted| wanted.name_any() != it.name_any())
            && kubernetes::is_owned_by(&it.metadata, requested)
    });
    let targets = unwanted.map(|it| Target::of(TargetKind::EndpointSlice, &**it));
    steps.extend(targets.map(Step::Delete));
    if let Some(wanted) = slice {
        let name = wanted.name_any();
        let found = observed.endpoint_slices.iter().find(|found| found.name_any() == name);
        let object = || Object::EndpointSlice(Box::new(wanted.clone()));
        match found {
            Some(found) if drift::endpoint_slice_matches(found, &wanted) => {}
            Some(_) => steps.push(apply(object())),
            None => steps.push(Step::CreateOrApply(object())),
        }
    }
    steps
}
