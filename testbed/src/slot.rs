//! The share of the machine that one testbed uses: ports, addresses, names.
//!
//! Several testbeds can run at the same time, from one or several clones of the project. Each has a
//! slot, a small number that is claimed machine-wide (see [`crate::claim`]). All names and numbers
//! that are unique on the machine are derived from it, so that two slots never share any.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The number of slots: a `/16` has 16 networks of size `/20`, one per slot.
pub(crate) const SLOTS: u8 = 16;

/// The first port: below the kernel's usual range for outgoing connections (32768), above the ports
/// of well-known services.
const FIRST_PORT: u16 = 20_000;
const PORTS_PER_SLOT: u16 = 100;

/// One testbed's share of the machine.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Slot(u8);

/// The control plane's ports on the host. The node's programs have their own network namespace and
/// use Kubernetes' usual ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    ApiServer,
    EtcdClient,
    EtcdPeer,
    EtcdHealth,
    ControllerManager,
    Scheduler,
}

impl Port {
    pub(crate) const ALL: [Port; 6] = [
        Port::ApiServer,
        Port::EtcdClient,
        Port::EtcdPeer,
        Port::EtcdHealth,
        Port::ControllerManager,
        Port::Scheduler,
    ];
}

impl Slot {
    /// The slot with this number, if it exists.
    pub(crate) fn new(number: u8) -> Option<Slot> {
        (number < SLOTS).then_some(Slot(number))
    }

    /// All slots, in the order in which they are claimed.
    pub(crate) fn all() -> impl Iterator<Item = Slot> {
        (0..SLOTS).map(Slot)
    }

    /// The slot's number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// A control plane port.
    pub(crate) fn port(self, port: Port) -> u16 {
        FIRST_PORT + PORTS_PER_SLOT * u16::from(self.0) + port as u16
    }

    /// A control plane port on the loopback interface.
    pub(crate) fn loopback(self, port: Port) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port(port))
    }

    /// The host's end of the link to the node. The API server listens here when there is a node.
    pub fn host_address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.0, 1)
    }

    /// The node's end of the link, its `InternalIP`.
    pub fn node_address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.0, 2)
    }

    /// The prefix length of the link between host and node: two addresses.
    pub(crate) const LINK_PREFIX: u8 = 30;

    /// Addresses of pods.
    pub(crate) fn pod_network(self) -> String {
        format!("10.214.{}.0/20", 16 * self.0)
    }

    /// Addresses of services.
    pub(crate) fn service_network(self) -> String {
        format!("10.215.{}.0/20", 16 * self.0)
    }

    /// The first address of the service network, which is always the API server's.
    pub(crate) fn api_service_address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 215, 16 * self.0, 1)
    }

    /// How the names of all links begin.
    pub(crate) const LINK_NAME_PREFIX: &str = "fotb";

    /// The name of the node's network namespace, and of every interface that leads to the node: on
    /// the host, and on nodes that are linked to it.
    pub(crate) fn link_name(self) -> String {
        format!("{}{}", Slot::LINK_NAME_PREFIX, self.0)
    }

    /// The slot whose link has this name.
    pub(crate) fn from_link_name(name: &str) -> Option<Slot> {
        Slot::new(name.strip_prefix(Slot::LINK_NAME_PREFIX)?.parse().ok()?)
    }

    /// The node's name in the cluster.
    pub fn node_name(self) -> String {
        format!("node-{}", self.0)
    }

    /// The cgroup, in every hierarchy, that contains the pods.
    pub(crate) fn cgroup(self) -> String {
        format!("flux-testbed-{}", self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_slots_share_anything() {
        let mut seen = BTreeSet::new();
        for slot in Slot::all() {
            for port in Port::ALL {
                assert!(seen.insert(slot.port(port).to_string()));
            }
            assert!(seen.insert(slot.host_address().to_string()));
            assert!(seen.insert(slot.node_address().to_string()));
            assert!(seen.insert(slot.pod_network()));
            assert!(seen.insert(slot.service_network()));
            assert!(seen.insert(slot.link_name()));
            assert!(seen.insert(slot.node_name()));
            assert!(seen.insert(slot.cgroup()));
        }
        assert_eq!(seen.len(), 16 * (6 + 7));
    }

    #[test]
    fn the_last_slot_still_fits() {
        let slot = Slot::new(15).unwrap();
        assert_eq!(slot.port(Port::ApiServer), 21_500);
        assert_eq!(slot.node_address().to_string(), "10.213.15.2");
        assert_eq!(slot.pod_network(), "10.214.240.0/20");
        assert_eq!(slot.service_network(), "10.215.240.0/20");
        assert_eq!(slot.api_service_address().to_string(), "10.215.240.1");
        assert_eq!(Slot::new(16), None);
    }

    #[test]
    fn link_names_fit_the_kernel_limit() {
        // IFNAMSIZ is 16 with the final zero byte.
        assert!(Slot::all().all(|slot| slot.link_name().len() < 16));
    }

    #[test]
    fn a_link_name_names_its_slot() {
        assert!(Slot::all().all(|slot| Slot::from_link_name(&slot.link_name()) == Some(slot)));
        for other in ["eth0", "fotb", "fotb16", "fotbx", "3"] {
            assert_eq!(Slot::from_link_name(other), None);
        }
    }
}
