//! The node's network: a namespace, and one link to the host.
//!
//! ```text
//! host  fotb3 10.213.3.1 ------- eth0 10.213.3.2  node namespace ---- pods 10.214.48.0/20
//! ```
//! The host reaches pods and Services through the node; pods reach the host's end of the link,
//! where the API server listens. There is no default route and the host does not forward packets,
//! so that a test cannot depend on external services by accident. Two nodes reach each other only
//! through a link between their namespaces (see `link.rs`).
//!
//! The namespace's name exists only in the supervisor's mount namespace. When that is removed, for
//! whatever reason, the network namespace and the link are removed too.

use std::process::Command;

use crate::command::{self, CommandError};
use crate::slot::Slot;

/// Creates the namespace and the link. Must be called in the supervisor's mount namespace.
pub(crate) fn create(slot: Slot) -> Result<(), CommandError> {
    remove_link(slot);
    for line in set_up(slot) {
        let mut words = line.iter();
        let program = words.next().expect("every line has a program");
        command::run(Command::new(program).args(words))?;
    }
    Ok(())
}

/// Removes the host's end of a link that outlived its namespace. Usually the kernel removes it,
/// after a while.
pub(crate) fn remove_link(slot: Slot) {
    let _usually_missing =
        command::run(Command::new("ip").args(["link", "delete", &slot.link_name()]));
}

/// The command prefix that runs a program in the node's network. Not `ip netns exec`, which mounts
/// a new /sys without the cgroups.
pub(crate) fn enter(slot: Slot) -> [String; 2] {
    ["nsenter".to_owned(), format!("--net=/run/netns/{}", slot.link_name())]
}

fn set_up(slot: Slot) -> Vec<Vec<String>> {
    let link = slot.link_name();
    let prefix = Slot::LINK_PREFIX;
    let (host, node) = (slot.host_address(), slot.node_address());
    let (pods, services) = (slot.pod_network(), slot.service_network());
    let ip = |words: &str| {
        std::iter::once("ip").chain(words.split(' ')).map(str::to_owned).collect::<Vec<_>>()
    };
    let forward = ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"].map(str::to_owned);
    vec![
        ip(&format!("netns add {link}")),
        ip(&format!("link add {link} type veth peer name eth0 netns {link}")),
        ip(&format!("address add {host}/{prefix} dev {link}")),
        ip(&format!("link set {link} up")),
        ip(&format!("-n {link} link set lo up")),
        ip(&format!("-n {link} address add {node}/{prefix} dev eth0")),
        ip(&format!("-n {link} link set eth0 up")),
        ip(&format!("route add {pods} via {node}")),
        ip(&format!("route add {services} via {node}")),
        // A Service's address is translated only after a route was found for it, and a program in
        // the node's own network has no other route.
        ip(&format!("-n {link} route add {services} dev eth0")),
        enter(slot).into_iter().chain(forward).collect(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_use_the_names_and_addresses_of_the_slot() {
        let lines: Vec<String> =
            set_up(Slot::new(3).unwrap()).iter().map(|line| line.join(" ")).collect();
        assert_eq!(lines[0], "ip netns add fotb3");
        assert_eq!(lines[1], "ip link add fotb3 type veth peer name eth0 netns fotb3");
        assert!(lines.contains(&"ip address add 10.213.3.1/30 dev fotb3".to_owned()));
        assert!(lines.contains(&"ip -n fotb3 address add 10.213.3.2/30 dev eth0".to_owned()));
        assert!(lines.contains(&"ip route add 10.214.48.0/20 via 10.213.3.2".to_owned()));
        assert!(lines.last().unwrap().starts_with("nsenter --net=/run/netns/fotb3 sh -c"));
    }

    #[test]
    fn there_is_no_route_out_of_the_machine() {
        let lines = set_up(Slot::new(0).unwrap());
        assert!(!lines.iter().flatten().any(|word| word == "default" || word == "0.0.0.0/0"));
    }
}
