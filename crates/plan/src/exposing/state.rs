//! Where others reach a lender, and the condition that says so.

use std::net::SocketAddr;

use flux_operator_api::minicluster::{Expose, ExposeType, External, LentLead};
use flux_operator_api::{MiniCluster, Reason};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use kube::ResourceExt;

use super::expose;
use super::ports::{first_port, node_port};
use crate::boot::BROKER_PORT;
use crate::joining::LeaseDecision;
use crate::kubernetes::{BROKER_PORT_NAME, exposed_name};
use crate::observed::{Observed, is_lead, is_terminating, lead_address};

/// How many addresses are published: enough for a node to fail, few enough to be tried one by one.
const MAX_ADDRESSES: usize = 4;

/// How a lender is exposed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExposeState {
    /// What is published.
    pub(crate) external: External,
    /// Whether others can reach it.
    pub(crate) is_exposed: bool,
    /// The reason of the condition `Exposed`.
    pub(crate) reason: Reason,
    /// Its message.
    pub(crate) message: String,
}

/// How a lender is exposed; `None` if it is not meant to be.
pub(crate) fn expose_state(
    lender: &MiniCluster,
    observed: &Observed,
    leases: &LeaseDecision,
) -> Option<ExposeState> {
    let expose = expose(lender)?;
    let service = exposed_name(&lender.name_any());
    let service = observed.services.iter().find(|found| found.name_any() == service);
    let service = service.map(|service| &**service);
    let external = External {
        addresses: addresses(expose, service, observed),
        port: if expose.direct { direct_port(lender, expose, observed) } else { 0 },
        lead: lead(lender, observed),
        lead_address: exposed_lead_address(lender, observed),
    };
    let (is_exposed, reason, mut message) = verdict(expose, &external, observed);
    if let Some(name) = without_port(leases).filter(|_| !expose.direct) {
        message += &format!("; invitation {name:?} has no port: all of the gateway are in use");
    }
    Some(ExposeState { external, is_exposed, reason, message })
}

/// An invitation whose lease has no port of the gateway. It was looked for in this reconciliation.
fn without_port(leases: &LeaseDecision) -> Option<&str> {
    let mut active = leases.leases.iter().filter(|record| record.is_active());
    let found = active.find(|it| it.invitation.as_ref().is_some_and(|it| it.gateway_port == 0));
    found.map(|record| record.holder.name.as_str())
}

impl ExposeState {
    /// The same, after a step by which others would reach it has failed.
    pub(crate) fn with_failure(&self, reason: Reason, message: &str) -> ExposeState {
        let ExposeState { external, is_exposed: _, reason: _, message: _ } = self;
        let message = message.to_owned();
        ExposeState { external: external.clone(), is_exposed: false, reason, message }
    }
}

/// Address and port of the lead's pod; empty if there is none.
pub(crate) fn exposed_lead_address(lender: &MiniCluster, observed: &Observed) -> String {
    let lead = observed.job.as_deref().and_then(|job| lead_address(lender, job, &observed.pods));
    lead.map(|address| SocketAddr::new(address, BROKER_PORT).to_string()).unwrap_or_default()
}

/// What the lead has: as it was before, if it has not reported yet.
fn lead(lender: &MiniCluster, observed: &Observed) -> Option<LentLead> {
    let reported = observed.report.as_ref().and_then(|report| report.state.lead.as_ref());
    let before = || lender.status.as_ref()?.external.as_ref()?.lead.clone();
    let reported = reported.map(|lead| LentLead {
        version: lead.version.clone(),
        user: i64::from(lead.uid),
        cores: i32::try_from(lead.cores).unwrap_or(i32::MAX),
    });
    reported.or_else(before)
}

fn verdict(expose: &Expose, external: &External, observed: &Observed) -> (bool, Reason, String) {
    let addresses = external.addresses.join(", ");
    if !expose.direct && observed.gateway.endpoints.is_empty() {
        let message = "no gateway is running: install it with `flux-operator manifests`";
        return (false, Reason::GatewayMissing, message.into());
    }
    if external.addresses.is_empty() || (expose.direct && external.port == 0) {
        return (false, Reason::AddressPending, pending(expose, observed).into());
    }
    if expose.direct {
        let message = format!(
            "the lead is reached at {addresses}, port {}, without the gateway: who has its \
             certificate cannot be refused. To revoke it, delete the MiniCluster and create it again, \
             which makes a new certificate",
            external.port
        );
        return (true, Reason::ExposedDirectly, message);
    }
    (true, Reason::Exposed, format!("brokers with an invitation reach it at {addresses}"))
}

/// What an address is waited for.
fn pending(expose: &Expose, observed: &Observed) -> &'static str {
    match expose.kind {
        ExposeType::NodePort if observed.gateway.nodes.is_none() => {
            "the addresses of nodes are not known: set flux.bursting.expose.hostname if the operator \
             may not list nodes"
        }
        ExposeType::NodePort => "no node that accepts connections has an address",
        ExposeType::LoadBalancer => "the load balancer has no address yet",
        ExposeType::ClusterIP | ExposeType::None => "the Service has no address yet",
    }
}

/// Addresses at which others reach the Service.
fn addresses(expose: &Expose, service: Option<&Service>, observed: &Observed) -> Vec<String> {
    if !expose.hostname.is_empty() {
        return vec![expose.hostname.clone()];
    }
    let found: Vec<String> = match expose.kind {
        ExposeType::NodePort => node_addresses(expose, observed),
        ExposeType::LoadBalancer => {
            let balancer = service.and_then(|it| it.status.as_ref()?.load_balancer.as_ref());
            let ingress = balancer.and_then(|it| it.ingress.as_ref()).into_iter().flatten();
            let address = |it: &LoadBalancerIngress| it.ip.clone().or_else(|| it.hostname.clone());
            ingress.filter_map(address).collect()
        }
        ExposeType::ClusterIP => {
            let address = service.and_then(|it| it.spec.as_ref()?.cluster_ip.clone());
            address.filter(|it| it != "None" && !it.is_empty()).into_iter().collect()
        }
        ExposeType::None => Vec::new(),
    };
    found.into_iter().take(MAX_ADDRESSES).collect()
}

/// Addresses of nodes. With source ranges only nodes that have a pod behind the Service accept
/// connections: others would hide where they come from. Nodes with such a pod come first.
fn node_addresses(expose: &Expose, observed: &Observed) -> Vec<String> {
    let gateway = &observed.gateway;
    let Some(nodes) = &gateway.nodes else { return Vec::new() };
    let has_pod = |node: &str| match expose.direct {
        true => observed.job_pods().any(|pod| {
            let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            is_lead(pod) && !is_terminating(pod) && on == Some(node)
        }),
        false => gateway.endpoints.iter().any(|it| it.node.is_empty() || it.node == node),
    };
    let (first, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|(name, _)| has_pod(name));
    let others = others.into_iter().filter(|_| expose.source_ranges.is_empty());
    first.into_iter().chain(others).map(|(_, address)| address.clone()).collect()
}

/// The lead's port for others, if it is exposed itself.
fn direct_port(lender: &MiniCluster, expose: &Expose, observed: &Observed) -> i32 {
    match expose.kind {
        ExposeType::NodePort => {
            node_port(lender, observed, BROKER_PORT_NAME, first_port(expose.port))
        }
        ExposeType::LoadBalancer | ExposeType::ClusterIP | ExposeType::None => {
            first_port(expose.port)
        }
    }
}
