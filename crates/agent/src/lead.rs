//! Finds the lead's address.
//!
//! Brokers need it before they start: a broker that resolves the name too early
//! gets a negative answer, which its name server caches. DNS and the operator are
//! queried concurrently. The operator knows the address from its watch; the DNS
//! name appears later, but needs no operator.
//!
//! Either may return an old address: a name server caches that of a deleted lead,
//! usually for 30 seconds. So an address is used only if the agent there proves
//! that it leads this run of this cluster, and both are queried until one does.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flux_operator_wire::{Report, Work};

use crate::arguments::Place;
use crate::delay::Delay;
use crate::dns;
use crate::lead_proof::{Answer, LeadProof};
use crate::operator::Operator;
use crate::rank::Rank;

/// The timeout of one DNS lookup.
const NAME_LIMIT: Duration = Duration::from_secs(5);

/// The timeout of a request to the operator, which delays its reply until it knows an address.
const OPERATOR_LIMIT: Duration = Duration::from_secs(60);

/// The delay between two queries of either. Both are on the critical path of a starting cluster.
const AGAIN: Delay = Delay::new(Duration::from_millis(100), Duration::from_secs(1));

/// The delay between two probes of an agent that may still be starting. A probe costs the lead's
/// machine only a packet.
const STARTING: Delay = Delay::new(Duration::from_millis(50), Duration::from_millis(250));

/// How long the operator's address is probed before the operator is queried again: a lead that
/// pulls its image has an address for minutes, and a thousand workers may wait for it.
const OPERATOR_AGAIN: Delay = Delay::new(Duration::from_secs(1), Duration::from_secs(10));

/// An address that has not answered for this long is used anyway: where a network policy blocks
/// the agents' port, the brokers' port may still be open. This is as long as name servers
/// usually cache an address, so by then it is not an old one.
const SILENCE: Duration = Duration::from_secs(30);

/// What to do with an address from DNS whose agent does not answer. The operator's reply is
/// sealed and specific to this Job, so its address is always used after [`SILENCE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfSilent {
    /// Use it after [`SILENCE`].
    UseLater,
    /// Never use it.
    Ignore,
}

/// A search in progress.
#[derive(Debug)]
pub struct Lead(Arc<AtomicBool>);

impl Lead {
    /// Cancels the search: neither source is queried again.
    pub fn end(self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// A cancelled search.
    #[cfg(test)]
    pub fn ended() -> Lead {
        Lead(Arc::new(AtomicBool::new(true)))
    }
}

/// Starts to search for the lead, whose DNS name is `name`. `found` is called with its address,
/// once or twice.
pub fn find(
    name: &str,
    place: &Place,
    rank: &Rank,
    if_silent: IfSilent,
    found: impl Fn(IpAddr) + Send + Sync + 'static,
) -> Lead {
    let ended = Arc::new(AtomicBool::new(false));
    let search = Search {
        ended: Arc::clone(&ended),
        proof: LeadProof::read(place, &rank.plan, false),
        port: rank.plan.ready_port,
        if_silent,
        silent: HashMap::new(),
        found: Arc::new(found),
    };
    let operator = rank.plan.report.as_ref().and_then(|target| Operator::new(place, target));
    if let Some(operator) = operator {
        let mut search = Search { if_silent: IfSilent::UseLater, ..search.clone() };
        thread::spawn(move || search.ask_operator(operator));
    }
    let (name, mut search) = (name.to_owned(), search);
    thread::spawn(move || search.look_up(&name));
    Lead(ended)
}

/// The part of a search that uses one source.
#[derive(Clone)]
struct Search {
    ended: Arc<AtomicBool>,
    /// `None` if addresses are accepted without proof.
    proof: Option<LeadProof>,
    /// The agents' port.
    port: u16,
    if_silent: IfSilent,
    /// Addresses that do not answer, and since when.
    silent: HashMap<IpAddr, Instant>,
    found: Arc<dyn Fn(IpAddr) + Send + Sync>,
}

impl Search {
    fn look_up(&mut self, name: &str) {
        let mut delay = AGAIN;
        while !self.is_ended() {
            let addresses = dns::lookup_all(name, NAME_LIMIT);
            if addresses.into_iter().any(|address| self.take(address)) {
                return;
            }
            thread::sleep(delay.grow());
        }
    }

    fn ask_operator(&mut self, mut operator: Operator) {
        let (mut delay, mut patience) = (AGAIN, OPERATOR_AGAIN);
        while !self.is_ended() {
            let start = Instant::now();
            // An unreachable operator is not an error: DNS will have the name.
            let reply = operator.exchange(&Report::LeadWanted, OPERATOR_LIMIT).unwrap_or_default();
            let lead = reply.work.iter().find_map(|work| match work {
                Work::Lead(address) => Some(*address),
                Work::Drain(_) | Work::ListPending => None,
            });
            let Some(address) = lead else {
                // An operator that delayed its reply has already waited, so do not back off.
                if start.elapsed() > Duration::from_secs(5) {
                    delay.reset();
                }
                thread::sleep(delay.grow());
                continue;
            };
            if self.take_within(address, patience.grow()) {
                return;
            }
        }
    }

    /// Accepts an address as soon as its agent proves that it leads, which it can only do once
    /// it has started.
    fn take_within(&mut self, address: IpAddr, limit: Duration) -> bool {
        let (deadline, mut delay) = (Instant::now() + limit, STARTING);
        loop {
            if self.take(address) {
                return true;
            }
            if self.is_ended() || Instant::now() >= deadline {
                return false;
            }
            thread::sleep(delay.grow());
        }
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Reports an address if it is the lead's; returns whether it is.
    fn take(&mut self, address: IpAddr) -> bool {
        let counts = self.counts(address);
        if counts && !self.is_ended() {
            (self.found)(address);
        }
        counts
    }

    fn counts(&mut self, address: IpAddr) -> bool {
        let Some(proof) = &self.proof else { return true };
        match proof.ask(SocketAddr::new(address, self.port)) {
            Answer::Lead => true,
            Answer::Another => {
                self.silent.remove(&address);
                false
            }
            Answer::Silent => {
                let since = *self.silent.entry(address).or_insert_with(Instant::now);
                self.if_silent == IfSilent::UseLater && since.elapsed() > SILENCE
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lead_proof::tests::{agent, proof};
    use crate::rank::tests::{plan, rank};
    use std::sync::mpsc;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn search(port: u16, if_silent: IfSilent) -> Search {
        Search {
            ended: Arc::new(AtomicBool::new(false)),
            proof: Some(proof("uid", false)),
            port,
            if_silent,
            silent: HashMap::new(),
            found: Arc::new(|_| {}),
        }
    }

    #[test]
    fn a_name_is_looked_up() {
        let (root, other) = (std::path::PathBuf::from("/"), std::path::PathBuf::from("/"));
        let place = Place { plan: other.clone(), secrets: other, root, index: 1, flux: None };
        let (sender, receiver) = mpsc::channel();
        let found = move |address| sender.send(address).unwrap();
        let search = find("localhost", &place, &rank(plan(), 1), IfSilent::UseLater, found);
        let address = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(address.is_loopback());
        search.end();
    }

    #[test]
    fn the_address_of_another_cluster_or_of_a_worker_does_not_count() {
        for (cluster, leads, counts) in
            [("uid", true, true), ("uid", false, false), ("older", true, false)]
        {
            let port = agent(proof(cluster, leads));
            assert_eq!(search(port, IfSilent::UseLater).counts(LOOPBACK), counts, "{cluster}");
        }
    }

    #[test]
    fn a_silent_address_is_used_after_a_while_and_never_by_a_broker_that_runs() {
        let port = {
            let listener = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
            listener.local_addr().unwrap().port()
        };
        for (if_silent, used) in [(IfSilent::UseLater, true), (IfSilent::Ignore, false)] {
            let mut search = search(port, if_silent);
            assert!(!search.counts(LOOPBACK), "it has just become silent");
            let long_ago = Instant::now().checked_sub(2 * SILENCE).unwrap();
            search.silent.insert(LOOPBACK, long_ago);
            assert_eq!(search.counts(LOOPBACK), used, "{if_silent:?}");
        }
    }

    #[test]
    fn an_agent_that_answers_for_another_cluster_is_not_silent() {
        let port = agent(proof("older", true));
        let mut search = search(port, IfSilent::UseLater);
        search.silent.insert(LOOPBACK, Instant::now().checked_sub(2 * SILENCE).unwrap());
        assert!(!search.counts(LOOPBACK));
    }
}
