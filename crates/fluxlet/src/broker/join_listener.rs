//! The lead's listener: the socket to which other brokers connect to join.

use std::net::IpAddr;

use super::links::{self, JoinAcceptor};
use super::{Broker, BrokerError, host};
use crate::message::Welcome;
use crate::socket;

/// Starts to listen for other brokers, if the instance has any.
pub fn listen(broker: &mut Broker, configuration: &serde_json::Value) -> Result<(), BrokerError> {
    let Some(endpoint) = broker.boot.listen.clone() else { return Ok(()) };
    let opened = broker.boot.nested.as_mut().and_then(|nested| nested.listener.take());
    let listener = match opened {
        Some(listener) => listener,
        None => socket::listen(&endpoint).map_err(|source| BrokerError::Listen { source })?,
    };
    if let Some(address) = listener.address().and_then(|address| reachable_address(address.ip())) {
        broker.attributes.set("fluxlet.address", address.to_string());
    }
    let Some(key) = broker.boot.key.clone() else { return Ok(()) };
    let hosts = broker.boot.hosts.clone();
    let size = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let hostlist = host::hostlist(&hosts);
    let welcome = Welcome { size, hostlist, configuration: configuration.clone() };
    let (events, log) = (broker.sender.clone(), broker.log.clone());
    links::serve(listener, JoinAcceptor { key, hosts, welcome, events, log });
    Ok(())
}

/// The address at which other machines reach this listener: a lead that listens on all addresses
/// still has to publish one for nested brokers.
fn reachable_address(bound: IpAddr) -> Option<IpAddr> {
    if !bound.is_unspecified() {
        return Some(bound);
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut addresses = interfaces.iter().filter(|one| !one.is_loopback()).map(|one| one.ip());
    addresses.find(|address| address.is_ipv4() == bound.is_ipv4() || address.is_ipv4())
}
