//! The ports of the leases of invitations.

use std::collections::BTreeSet;

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{ExposeType, GATEWAY_PORTS, InvitationLease};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use super::{PortHolder, expose};
use crate::boot::BROKER_PORT;
use crate::joining::LeaseRecord;
use crate::kubernetes::exposed_name;
use crate::observed::Observed;

/// The highest port.
const MAX_PORT: i32 = 65_535;

/// Gives a port to every lease of an invitation, and notes where others reach it. A lease keeps its
/// ports, unless a number is not a valid port or an older lease has it: the gateway serves the older
/// one. Any user may choose the ports of a Service, so those of the gateway are checked here.
pub(crate) fn assign_ports(records: &mut [LeaseRecord], lender: &MiniCluster, observed: &Observed) {
    let Some(expose) = expose(lender).filter(|expose| !expose.direct) else { return };
    let uid = lender.uid().unwrap_or_default();
    let taken = &observed.gateway.taken_ports;
    let is_taken = |port: i32| u16::try_from(port).is_ok_and(|port| taken.contains_key(&port));
    let yields = |port: i32, since: Timestamp| {
        let other = u16::try_from(port).ok().and_then(|port| taken.get(&port));
        let own = PortHolder { since, uid: uid.clone() };
        other.is_some_and(|other| *other < own)
    };
    // Without a Service the gateway has the ports that others use.
    let is_forwarded = expose.kind == ExposeType::None;
    let (mut services, mut gateways): (BTreeSet<i32>, BTreeSet<i32>) = Default::default();
    for record in records.iter().filter(|record| !record.is_active()) {
        services.extend(record.invitation.as_ref().map(|it| it.service_port));
        gateways.extend(record.invitation.as_ref().map(|it| it.gateway_port));
    }
    let mut active: Vec<&mut LeaseRecord> =
        records.iter_mut().filter(|record| record.is_active()).collect();
    for record in &mut active {
        let since = record.since;
        let Some(invitation) = &mut record.invitation else { continue };
        let InvitationLease { service_port: service, gateway_port: gateway, .. } = invitation;
        let is_open = |port: i32| is_gateway_port(port) && !yields(port, since);
        // A port that only the Service had before must be free at the gateway too.
        let is_new = *service != *gateway && is_taken(*service);
        let may_forward = !is_forwarded || (is_open(*service) && !is_new);
        if !is_port(*service) || !may_forward || !services.insert(*service) {
            *service = 0;
        }
        if !is_open(*gateway) || !gateways.insert(*gateway) {
            *gateway = 0;
        }
    }
    let first = match is_forwarded && !is_gateway_port(expose.port) {
        true => i32::from(*GATEWAY_PORTS.start()),
        false => first_port(expose.port),
    };
    let last = if is_forwarded { i32::from(*GATEWAY_PORTS.end()) } else { MAX_PORT };
    for record in active {
        let Some(invitation) = &mut record.invitation else { continue };
        if invitation.service_port == 0 {
            let is_used = |port: &i32| services.contains(port) || (is_forwarded && is_taken(*port));
            let free = (first..=last).find(|port| !is_used(port));
            invitation.service_port = free.unwrap_or_default();
            services.extend(free);
        }
        if is_forwarded {
            invitation.gateway_port = invitation.service_port;
        } else if invitation.gateway_port == 0 {
            let port = choose(&format!("{uid} {}", record.holder.uid), |port| {
                gateways.contains(&i32::from(port)) || taken.contains_key(&port)
            });
            invitation.gateway_port = port.map(i32::from).unwrap_or_default();
            gateways.insert(invitation.gateway_port);
        }
        invitation.port =
            external_port(expose.kind, invitation, &record.holder.name, lender, observed);
    }
}

/// Whether a number is that of a port of the gateway. Others are its own, or those of other programs.
pub(crate) fn is_gateway_port(number: i32) -> bool {
    u16::try_from(number).is_ok_and(|port| GATEWAY_PORTS.contains(&port))
}

/// Whether a number is that of a port.
pub(crate) fn is_port(number: i32) -> bool {
    (1..=MAX_PORT).contains(&number)
}

/// The first port of a Service.
pub(crate) fn first_port(port: i32) -> i32 {
    if port == 0 { i32::from(BROKER_PORT) } else { port }
}

/// A port that is not used: the same each time, and for two leases probably not the same.
fn choose(lease: &str, is_used: impl Fn(u16) -> bool) -> Option<u16> {
    let digest = Sha256::digest(lease.as_bytes());
    let number = digest.iter().take(4).fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte));
    let count = u32::try_from(GATEWAY_PORTS.len()).unwrap_or(1).max(1);
    let start = usize::try_from(number.checked_rem(count).unwrap_or_default()).unwrap_or_default();
    let (first, second) = (GATEWAY_PORTS.skip(start), GATEWAY_PORTS.take(start));
    first.chain(second).find(|port| !is_used(*port))
}

/// Where others reach the port of a lease; 0 while it is not known.
fn external_port(
    kind: ExposeType,
    invitation: &InvitationLease,
    name: &str,
    lender: &MiniCluster,
    observed: &Observed,
) -> i32 {
    match kind {
        ExposeType::NodePort => node_port(lender, observed, name, invitation.service_port),
        ExposeType::LoadBalancer | ExposeType::ClusterIP | ExposeType::None => {
            invitation.service_port
        }
    }
}

/// The port on the nodes that Kubernetes has given to this port of the Service; 0 if there is none.
/// A port with another number and this name is that of a former invitation.
pub(super) fn node_port(lender: &MiniCluster, observed: &Observed, name: &str, port: i32) -> i32 {
    let service = exposed_name(&lender.name_any());
    let found = observed.services.iter().find(|found| found.name_any() == service);
    let ports = found.and_then(|found| found.spec.as_ref()?.ports.as_ref()).into_iter().flatten();
    let mut ports = ports.filter(|it| it.name.as_deref() == Some(name) && it.port == port);
    ports.find_map(|port| port.node_port).unwrap_or_default()
}
