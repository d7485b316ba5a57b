//! Finding the lead's address.
//!
//! Brokers need it before they start: one that asks for a name too early waits
//! long for a "no" that its name server keeps. DNS and the operator are asked at
//! the same time, and whichever answers first is believed. The operator knows
//! from its watch; the name appears later, but needs no operator.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flux_operator_wire::{Report, Work};

use crate::arguments::Place;
use crate::delay::Delay;
use crate::dns;
use crate::operator::Operator;
use crate::rank::Rank;

/// How long one round of questions to name servers may take.
const NAME_LIMIT: Duration = Duration::from_secs(5);

/// How long the operator may hold an answer back until it knows one.
const OPERATOR_LIMIT: Duration = Duration::from_secs(60);

/// Between two rounds of either. Both are on the way of a starting cluster.
const AGAIN: Delay = Delay::new(Duration::from_millis(100), Duration::from_secs(1));

/// A search that has been begun.
#[derive(Debug)]
pub struct Lead(Arc<AtomicBool>);

impl Lead {
    /// Ends it: nobody is asked again.
    pub fn end(self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// A search that is over.
    #[cfg(test)]
    pub fn ended() -> Lead {
        Lead(Arc::new(AtomicBool::new(true)))
    }
}

/// Begins to look for the lead, whose name is `name`. `found` gets what is found,
/// once or twice.
pub fn find(
    name: &str,
    place: &Place,
    rank: &Rank,
    found: impl Fn(IpAddr) + Send + Sync + 'static,
) -> Lead {
    let ended = Arc::new(AtomicBool::new(false));
    let found = Arc::new(found);
    let by_name = {
        let (name, found) = (name.to_owned(), Arc::clone(&found));
        move |ended: &AtomicBool| look_up(&name, ended, &*found)
    };
    spawn(&ended, by_name);
    let operator = rank.plan.report.as_ref().and_then(|target| Operator::new(place, target));
    if let Some(operator) = operator {
        let report = Report { rank: rank.number, wants_lead: true, ..Report::default() };
        spawn(&ended, move |ended| ask(operator, &report, ended, &*found));
    }
    Lead(ended)
}

fn spawn(ended: &Arc<AtomicBool>, search: impl FnOnce(&AtomicBool) + Send + 'static) {
    let ended = Arc::clone(ended);
    thread::spawn(move || search(&ended));
}

fn look_up(name: &str, ended: &AtomicBool, found: &dyn Fn(IpAddr)) {
    let mut delay = AGAIN;
    while !ended.load(Ordering::Relaxed) {
        if let Some(address) = dns::lookup(name, NAME_LIMIT) {
            return found(address);
        }
        thread::sleep(delay.grow());
    }
}

fn ask(mut operator: Operator, report: &Report, ended: &AtomicBool, found: &dyn Fn(IpAddr)) {
    let mut delay = AGAIN;
    while !ended.load(Ordering::Relaxed) {
        let start = Instant::now();
        // An operator that is away is no error: the name will be there.
        let reply = operator.exchange(report, OPERATOR_LIMIT).unwrap_or_default();
        let lead = reply.work.iter().find_map(|work| match work {
            Work::Lead(address) => Some(*address),
            Work::Drain(_) | Work::Stop => None,
        });
        if let Some(address) = lead {
            return found(address);
        }
        // One that held the answer back has already waited for us.
        if start.elapsed() > Duration::from_secs(5) {
            delay.reset();
        }
        thread::sleep(delay.grow());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::tests::{plan, rank};
    use std::sync::mpsc;

    #[test]
    fn a_name_is_looked_up() {
        let (root, other) = (std::path::PathBuf::from("/"), std::path::PathBuf::from("/"));
        let place = Place { plan: other.clone(), secrets: other, root, index: 1, flux: None };
        let (sender, receiver) = mpsc::channel();
        let found = move |address| sender.send(address).unwrap();
        let search = find("localhost", &place, &rank(plan(), 1), found);
        let address = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(address.is_loopback());
        search.end();
    }
}
