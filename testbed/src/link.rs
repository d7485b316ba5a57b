//! `link`: connects the nodes of two testbeds.
//!
//! ```text
//! pods ---- node 10.213.0.2  fotb1 ------- fotb0  node 10.213.1.2 ---- pods
//! ```
//! A link is a pair of interfaces, one in each node's network namespace, and on each node a route to
//! the other node's address. It carries packets between the two node addresses only:
//! - A pod that connects to the other node's address appears there as its own node.
//! - A node drops what arrives from a link for any other address. So pods and Services of two
//!   testbeds stay apart, except for NodePorts, and a node never forwards from one link to another.
//!
//! The host has no part in a link: no route, no rule and no setting of it changes, and it still
//! forwards nothing. When either namespace is removed, for whatever reason, the kernel removes both
//! interfaces and the routes through them, so `down` has nothing to undo. Two rules stay in the
//! other namespace; they name no testbed and match only interfaces of links.

use std::process::Command;

use crate::claim::RunDirectory;
use crate::command::{self, CommandError};
use crate::files::FileError;
use crate::layout::{Layout, TestbedName};
use crate::slot::Slot;
use crate::state::Level;
use crate::testbed::Testbed;
use crate::{prerequisites, up};

/// Why two testbeds could not be linked.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Both names are the same.
    #[error("testbed {name} cannot be linked to itself: name two testbeds")]
    SameTestbed {
        /// The name.
        name: TestbedName,
    },
    /// No testbed has this name.
    #[error(
        "there is no testbed {name}: `testbed status` lists them, `testbed up --name {name}` starts it"
    )]
    Unknown {
        /// The name.
        name: TestbedName,
    },
    /// Only root can enter network namespaces.
    #[error("linking testbeds needs root: run as root")]
    NotRoot,
    /// The testbed exited.
    #[error("testbed {name} is not running: run `testbed up --name {name}`")]
    NotRunning {
        /// The name.
        name: TestbedName,
    },
    /// The testbed is starting or stopping.
    #[error("testbed {name} is not ready: run `testbed up --name {name}`, which waits for it")]
    NotReady {
        /// The name.
        name: TestbedName,
    },
    /// The testbed runs no pods.
    #[error("testbed {name} has no node: replace it with `testbed up --name {name} --level node`")]
    NoNode {
        /// The name.
        name: TestbedName,
    },
    /// The lock of the base directory could not be taken.
    #[error("failed to lock the testbeds")]
    Lock(#[source] FileError),
    /// A command failed in a node's network.
    #[error("failed to connect the nodes")]
    Network(#[source] CommandError),
}

/// Links two running testbeds of level node, in the same base directory, until either is stopped.
/// Returns whether they were linked now; if they already were, the link is left as it is, or
/// completed.
pub fn link(layout: &Layout, a: &TestbedName, b: &TestbedName) -> Result<bool, LinkError> {
    if a == b {
        return Err(LinkError::SameTestbed { name: a.clone() });
    }
    let names = layout.names();
    if let Some(name) = [a, b].into_iter().find(|name| !names.contains(name)) {
        return Err(LinkError::Unknown { name: name.clone() });
    }
    if !prerequisites::is_root() {
        return Err(LinkError::NotRoot);
    }
    // Neither testbed is replaced or stopped meanwhile.
    let _lock = up::lock(layout).map_err(LinkError::Lock)?;
    connect(find_node(layout, a)?, find_node(layout, b)?).map_err(LinkError::Network)
}

/// The testbeds that a node is linked to, from `/proc/<process>/net/dev` of a process in its
/// network.
pub(crate) fn linked_slots(process: i32) -> Vec<Slot> {
    let devices = std::fs::read_to_string(format!("/proc/{process}/net/dev")).unwrap_or_default();
    slots_in(&devices)
}

/// A node's network.
#[derive(Clone, Copy, Debug)]
struct NodeNetwork {
    slot: Slot,
    /// A process in it: the namespace's name exists only in the supervisor's mount namespace.
    process: i32,
}

impl NodeNetwork {
    fn run(self, line: &str) -> Result<(), CommandError> {
        // The mount namespace too, because there is the lock with which iptables waits for
        // kube-proxy.
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.process.to_string(), "--net", "--mount"]);
        command::run(command.args(line.split(' '))).map(drop)
    }

    fn is_linked_to(self, other: NodeNetwork) -> bool {
        linked_slots(self.process).contains(&other.slot)
    }
}

fn find_node(layout: &Layout, name: &TestbedName) -> Result<NodeNetwork, LinkError> {
    let not_ready = || LinkError::NotReady { name: name.clone() };
    if RunDirectory::of_this_user().find(&layout.home(name)).is_none() {
        return Err(LinkError::NotRunning { name: name.clone() });
    }
    let testbed = Testbed::find_in(layout, name).ok_or_else(not_ready)?;
    if testbed.state().wanted.level < Level::Node {
        return Err(LinkError::NoNode { name: name.clone() });
    }
    let process = testbed.process_on_node().ok_or_else(not_ready)?;
    Ok(NodeNetwork { slot: testbed.slot(), process })
}

/// Links two nodes, unless they are linked. Every command can be repeated, so that a link that was
/// interrupted is completed.
fn connect(a: NodeNetwork, b: NodeNetwork) -> Result<bool, CommandError> {
    // Rules come first: without them, a link would also carry other packets.
    for node in [a, b] {
        for rule in rules(node.slot) {
            if node.run(&rule.check()).is_err() {
                node.run(&rule.append())?;
            }
        }
    }
    let is_new = !(a.is_linked_to(b) && b.is_linked_to(a));
    if is_new {
        // One interface alone belonged to an earlier testbed in the other slot. The kernel removes
        // it at some time, perhaps now.
        for (node, other) in [(a, b), (b, a)] {
            let _usually_missing = node.run(&format!("ip link delete {}", other.slot.link_name()));
        }
        a.run(&add_interfaces(a.slot, b))?;
    }
    for (node, other) in [(a, b), (b, a)] {
        for line in use_interface(node.slot, other.slot) {
            node.run(&line)?;
        }
    }
    Ok(is_new)
}

/// Adds both interfaces. The command runs on node `a`: on the host, interfaces with these names
/// exist.
fn add_interfaces(a: Slot, b: NodeNetwork) -> String {
    let (to_a, to_b) = (a.link_name(), b.slot.link_name());
    format!("ip link add {to_b} type veth peer name {to_a} netns {}", b.process)
}

/// Sends packets for the other node through the link.
fn use_interface(node: Slot, other: Slot) -> [String; 2] {
    let link = other.link_name();
    let (source, destination) = (node.node_address(), other.node_address());
    [
        format!("ip link set {link} up"),
        // The interface has no address of its own.
        format!("ip route replace {destination} dev {link} src {source}"),
    ]
}

/// A rule of iptables.
struct Rule {
    table: &'static str,
    chain: &'static str,
    rest: String,
}

impl Rule {
    fn check(&self) -> String {
        self.line("--check")
    }

    fn append(&self) -> String {
        self.line("--append")
    }

    fn line(&self, action: &str) -> String {
        let Rule { table, chain, rest } = self;
        format!("iptables --wait --table {table} {action} {chain} {rest}")
    }
}

/// The rules for all links of a node.
fn rules(slot: Slot) -> [Rule; 2] {
    let every_link = format!("{}+", Slot::LINK_NAME_PREFIX);
    let (node, pods) = (slot.node_address(), slot.pod_network());
    [
        // Not MASQUERADE, which needs an address on the interface.
        Rule {
            table: "nat",
            chain: "POSTROUTING",
            rest: format!(
                "--out-interface {every_link} --source {pods} --jump SNAT --to-source {node}"
            ),
        },
        // Before any address is translated, therefore replies to pods have the node's address too.
        // Not in the table `filter`, where kube-proxy accepts packets for Services first.
        Rule {
            table: "mangle",
            chain: "PREROUTING",
            rest: format!("--in-interface {every_link} ! --destination {node} --jump DROP"),
        },
    ]
}

fn slots_in(devices: &str) -> Vec<Slot> {
    let mut slots: Vec<Slot> = devices
        .lines()
        .filter_map(|line| Slot::from_link_name(line.split_once(':')?.0.trim()))
        .collect();
    slots.sort();
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::{Child, Stdio};
    use std::time::{Duration, Instant};

    fn slot(number: u8) -> Slot {
        Slot::new(number).unwrap()
    }

    #[test]
    fn an_interface_has_the_name_of_the_slot_it_leads_to() {
        let other = NodeNetwork { slot: slot(3), process: 4711 };
        assert_eq!(
            add_interfaces(slot(2), other),
            "ip link add fotb3 type veth peer name fotb2 netns 4711"
        );
        assert_eq!(
            use_interface(slot(2), slot(3)),
            ["ip link set fotb3 up", "ip route replace 10.213.3.2 dev fotb3 src 10.213.2.2"]
        );
    }

    #[test]
    fn the_rules_admit_only_node_addresses() {
        assert_eq!(
            rules(slot(3)).map(|rule| rule.append()),
            [
                "iptables --wait --table nat --append POSTROUTING --out-interface fotb+ \
                 --source 10.214.48.0/20 --jump SNAT --to-source 10.213.3.2",
                "iptables --wait --table mangle --append PREROUTING --in-interface fotb+ \
                 ! --destination 10.213.3.2 --jump DROP"
            ]
        );
        assert_eq!(
            rules(slot(3))[1].check().replace("--check", "--append"),
            rules(slot(3))[1].append()
        );
    }

    #[test]
    fn links_are_found_by_their_interfaces() {
        let devices =
            "Inter-|   Receive\n face |bytes\n    lo:  1 2\n fotb12: 3 4\nfotb0: 5 6\n  eth0: 7\n";
        assert_eq!(slots_in(devices), [slot(0), slot(12)]);
        assert!(slots_in("").is_empty());
    }

    #[test]
    fn a_link_needs_two_known_testbeds() {
        let layout = Layout::at(Path::new("/nonexistent"));
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        let message = |a, b| link(&layout, a, b).unwrap_err().to_string();
        assert_eq!(message(&a, &a), "testbed a cannot be linked to itself: name two testbeds");
        assert!(message(&a, &b).starts_with("there is no testbed a: "));
    }

    /// A network namespace like that of a node, with the addresses of a pod and of the node on its
    /// loopback interface. Removed after the test.
    struct Namespace {
        child: Child,
        network: NodeNetwork,
    }

    impl Namespace {
        fn new(slot: Slot) -> Namespace {
            let child = Command::new("unshare")
                .args(["--net", "sh", "-c", "echo; exec sleep 60"])
                .stdout(Stdio::piped())
                .spawn();
            let mut child = child.unwrap();
            // It has its own namespace when it writes.
            let output = child.stdout.as_mut().unwrap();
            std::io::Read::read_exact(output, &mut [0]).unwrap();
            let network = NodeNetwork { slot, process: child.id().try_into().unwrap() };
            network.run("ip link set lo up").unwrap();
            for address in [slot.node_address().to_string(), pod(slot)] {
                network.run(&format!("ip address add {address}/32 dev lo")).unwrap();
            }
            Namespace { child, network }
        }

        fn reaches(&self, source: &str, destination: &str) -> bool {
            let ping = format!("busybox ping -c 1 -W 2 -I {source} {destination}");
            self.network.run(&ping).is_ok()
        }

        fn remove(&mut self) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }

    impl Drop for Namespace {
        fn drop(&mut self) {
            self.remove();
        }
    }

    fn pod(slot: Slot) -> String {
        slot.pod_network().replace(".0/20", ".9")
    }

    #[test]
    fn a_link_carries_packets_between_node_addresses_only() {
        let programs = ["unshare", "nsenter", "ip", "iptables", "busybox"];
        if !prerequisites::is_root() || programs.iter().any(|each| command::find(each).is_none()) {
            eprintln!("not tested: this needs root and the packages of a node");
            return;
        }
        let (a, b) = (slot(14), slot(15));
        let (node_a, node_b) = (a.node_address().to_string(), b.node_address().to_string());
        let (mut first, second) = (Namespace::new(a), Namespace::new(b));
        assert!(!first.reaches(&node_a, &node_b), "before they are linked");

        assert!(connect(first.network, second.network).unwrap());
        assert!(!connect(second.network, first.network).unwrap(), "they are already linked");
        assert_eq!(linked_slots(first.network.process), [b]);
        assert!(first.reaches(&node_a, &node_b) && second.reaches(&node_b, &node_a));
        // The other node has no route to a pod: a reply shows that it saw the node's address.
        assert!(first.reaches(&pod(a), &node_b) && second.reaches(&pod(b), &node_a));
        assert!(!first.reaches(&node_a, &pod(b)), "there is no route to pods");
        let route = format!("ip route add {} via {node_b} dev {}", b.pod_network(), b.link_name());
        first.network.run(&route).unwrap();
        assert!(!first.reaches(&node_a, &pod(b)), "a node drops packets for its pods");

        // A testbed that is stopped and started again can be linked again.
        first.remove();
        let started = Instant::now();
        while !linked_slots(second.network.process).is_empty() {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "the kernel removes the interface"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        first = Namespace::new(a);
        assert!(connect(first.network, second.network).unwrap());
        assert!(first.reaches(&pod(a), &node_b));
        // An interrupted link is completed.
        second.network.run(&format!("ip link set {} down", a.link_name())).unwrap();
        assert!(!connect(first.network, second.network).unwrap());
        assert!(first.reaches(&node_a, &node_b));
    }
}
