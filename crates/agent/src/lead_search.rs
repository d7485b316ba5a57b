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

use crate::arguments::CommonArguments;
use crate::backoff::Backoff;
use crate::dns;
use crate::lead_proof::{LeadProof, ProbeResult};
use crate::operator_client::OperatorClient;
use crate::rank_plan::RankPlan;

/// The timeout of one DNS lookup.
const DNS_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout of a request to the operator, which delays its reply until it knows an address.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(60);

/// The delay between two queries of either. Both are on the critical path of a starting cluster.
const QUERY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

/// The delay between two probes of an agent that may still be starting. A probe costs the lead's
/// machine only a packet.
const PROBE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(250));

/// How long an address from the operator is probed before the operator is queried again. The lead
/// has an address while it still pulls its image, which takes minutes, and a thousand workers may
/// wait for it.
const PROBE_DURATION: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

/// An address that has not answered for this long is used anyway: where a network policy blocks
/// the agents' port, the brokers' port may still be open. This is as long as name servers
/// usually cache an address, so by then it is not an old one.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// What to do with an address from DNS whose agent does not answer. The operator's reply is
/// sealed and specific to this Job, so an address from there is always used after
/// [`SILENCE_TIMEOUT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentAddress {
    /// Use it after [`SILENCE_TIMEOUT`].
    UseAfterTimeout,
    /// Never use it.
    Ignore,
}

/// A search in progress.
#[derive(Debug)]
pub struct LeadSearch(Arc<AtomicBool>);

impl LeadSearch {
    /// Cancels the search: neither source is queried again.
    pub fn cancel(self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// A cancelled search.
    #[cfg(test)]
    pub fn cancelled() -> LeadSearch {
        LeadSearch(Arc::new(AtomicBool::new(true)))
    }
}

/// Starts to search for the lead, whose DNS name is `name`. `found` is called with its address,
/// once or twice.
pub fn start(
    name: &str,
    common: &CommonArguments,
    rank: &RankPlan,
    if_silent: SilentAddress,
    found: impl Fn(IpAddr) + Send + Sync + 'static,
) -> LeadSearch {
    let cancelled = Arc::new(AtomicBool::new(false));
    let search = SourceSearch {
        cancelled: Arc::clone(&cancelled),
        proof: LeadProof::read(common, &rank.plan, false),
        port: rank.plan.ready_port,
        if_silent,
        silent_since: HashMap::new(),
        found: Arc::new(found),
    };
    let operator = rank.plan.report.as_ref().and_then(|target| OperatorClient::new(common, target));
    if let Some(operator) = operator {
        let mut search =
            SourceSearch { if_silent: SilentAddress::UseAfterTimeout, ..search.clone() };
        thread::spawn(move || search.search_operator(operator));
    }
    let (name, mut search) = (name.to_owned(), search);
    thread::spawn(move || search.search_dns(&name));
    LeadSearch(cancelled)
}

/// The part of a search that uses one source.
#[derive(Clone)]
struct SourceSearch {
    cancelled: Arc<AtomicBool>,
    /// `None` if addresses are accepted without proof.
    proof: Option<LeadProof>,
    /// The agents' port.
    port: u16,
    if_silent: SilentAddress,
    /// Addresses that do not answer, and since when.
    silent_since: HashMap<IpAddr, Instant>,
    found: Arc<dyn Fn(IpAddr) + Send + Sync>,
}

impl SourceSearch {
    fn search_dns(&mut self, name: &str) {
        let mut delay = QUERY_BACKOFF;
        while !self.is_cancelled() {
            let addresses = dns::lookup_all(name, DNS_TIMEOUT);
            if addresses.into_iter().any(|address| self.accept(address)) {
                return;
            }
            thread::sleep(delay.next_delay());
        }
    }

    fn search_operator(&mut self, mut operator: OperatorClient) {
        let (mut delay, mut probe_duration) = (QUERY_BACKOFF, PROBE_DURATION);
        while !self.is_cancelled() {
            let start = Instant::now();
            // An unreachable operator is not an error: DNS will have the name.
            let reply =
                operator.exchange(&Report::LeadWanted, OPERATOR_TIMEOUT).unwrap_or_default();
            let lead = reply.work.iter().find_map(|work| match work {
                Work::Lead(address) => Some(*address),
                Work::Join(_) | Work::Invited(_) | Work::Drain(_) => None,
                Work::ListPending | Work::Jobs(_) => None,
            });
            let Some(address) = lead else {
                // An operator that delayed its reply has already waited, so do not back off.
                if start.elapsed() > Duration::from_secs(5) {
                    delay.reset();
                }
                thread::sleep(delay.next_delay());
                continue;
            };
            if self.accept_within(address, probe_duration.next_delay()) {
                return;
            }
        }
    }

    /// Accepts an address as soon as its agent proves that it leads, which it can only do once
    /// it has started.
    fn accept_within(&mut self, address: IpAddr, limit: Duration) -> bool {
        let (deadline, mut delay) = (Instant::now() + limit, PROBE_BACKOFF);
        loop {
            if self.accept(address) {
                return true;
            }
            if self.is_cancelled() || Instant::now() >= deadline {
                return false;
            }
            thread::sleep(delay.next_delay());
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Reports an address if it is the lead's; returns whether it is.
    fn accept(&mut self, address: IpAddr) -> bool {
        let is_lead = self.is_lead(address);
        if is_lead && !self.is_cancelled() {
            (self.found)(address);
        }
        is_lead
    }

    fn is_lead(&mut self, address: IpAddr) -> bool {
        let Some(proof) = &self.proof else { return true };
        match proof.probe(SocketAddr::new(address, self.port)) {
            ProbeResult::Lead => true,
            ProbeResult::NotLead => {
                self.silent_since.remove(&address);
                false
            }
            ProbeResult::NoAnswer => {
                let since = *self.silent_since.entry(address).or_insert_with(Instant::now);
                self.if_silent == SilentAddress::UseAfterTimeout
                    && since.elapsed() > SILENCE_TIMEOUT
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lead_proof::tests::{agent, proof};
    use crate::rank_plan::tests::{plan, rank};
    use std::sync::mpsc;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn search(port: u16, if_silent: SilentAddress) -> SourceSearch {
        SourceSearch {
            cancelled: Arc::new(AtomicBool::new(false)),
            proof: Some(proof("uid", false)),
            port,
            if_silent,
            silent_since: HashMap::new(),
            found: Arc::new(|_| {}),
        }
    }

    #[test]
    fn a_name_is_looked_up() {
        let (root, other) = (std::path::PathBuf::from("/"), std::path::PathBuf::from("/"));
        let place =
            CommonArguments { plan: other.clone(), secrets: other, root, index: 1, flux: None };
        let (sender, receiver) = mpsc::channel();
        let found = move |address| sender.send(address).unwrap();
        let search =
            start("localhost", &place, &rank(plan(), 1), SilentAddress::UseAfterTimeout, found);
        let address = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(address.is_loopback());
        search.cancel();
    }

    #[test]
    fn the_address_of_another_cluster_or_of_a_worker_is_not_accepted() {
        for (cluster, leads, counts) in
            [("uid", true, true), ("uid", false, false), ("older", true, false)]
        {
            let port = agent(proof(cluster, leads));
            assert_eq!(
                search(port, SilentAddress::UseAfterTimeout).is_lead(LOOPBACK),
                counts,
                "{cluster}"
            );
        }
    }

    #[test]
    fn a_silent_address_is_used_after_the_timeout_unless_it_is_to_be_ignored() {
        let port = {
            let listener = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
            listener.local_addr().unwrap().port()
        };
        for (if_silent, used) in
            [(SilentAddress::UseAfterTimeout, true), (SilentAddress::Ignore, false)]
        {
            let mut search = search(port, if_silent);
            assert!(!search.is_lead(LOOPBACK), "it has just become silent");
            let long_ago = Instant::now().checked_sub(2 * SILENCE_TIMEOUT).unwrap();
            search.silent_since.insert(LOOPBACK, long_ago);
            assert_eq!(search.is_lead(LOOPBACK), used, "{if_silent:?}");
        }
    }

    #[test]
    fn an_agent_that_answers_for_another_cluster_is_not_silent() {
        let port = agent(proof("older", true));
        let mut search = search(port, SilentAddress::UseAfterTimeout);
        search
            .silent_since
            .insert(LOOPBACK, Instant::now().checked_sub(2 * SILENCE_TIMEOUT).unwrap());
        assert!(!search.is_lead(LOOPBACK));
    }
}
