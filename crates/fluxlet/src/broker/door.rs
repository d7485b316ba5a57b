//! The lead's door: the socket at which other brokers join.

use super::links::{self, Door};
use super::{Broker, BrokerError, host};
use crate::message::Welcome;
use crate::socket;

/// Opens the door for other brokers, if there are to be any.
pub fn open(broker: &mut Broker, configuration: &serde_json::Value) -> Result<(), BrokerError> {
    let Some(endpoint) = broker.boot.listen.clone() else { return Ok(()) };
    let opened = broker.boot.nested.as_mut().and_then(|nested| nested.listener.take());
    let listener = match opened {
        Some(listener) => listener,
        None => socket::listen(&endpoint).map_err(|source| BrokerError::Listen { source })?,
    };
    if let Some(address) = listener.address().filter(|address| !address.ip().is_unspecified()) {
        broker.attributes.set("fluxlet.address", address.ip().to_string());
    }
    let Some(key) = broker.boot.key.clone() else { return Ok(()) };
    let hosts = broker.boot.hosts.clone();
    let size = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let hostlist = host::hostlist(&hosts);
    let welcome = Welcome { size, hostlist, configuration: configuration.clone() };
    let (events, log) = (broker.sender.clone(), broker.log.clone());
    links::serve(listener, Door { key, hosts, welcome, events, log });
    Ok(())
}
