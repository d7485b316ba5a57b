//! The connections of one port, and their limits.
//!
//! A connection starts as a *handshake*, and becomes a *broker* once the lead has accepted it, or a
//! *request*. Handshakes are not trusted: when there are too many, one of them is cut, the oldest of
//! the address that has the most. So neither silent clients nor clients with a wrong key keep a good
//! broker out, which needs milliseconds for its handshake.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::lock::lock;

/// Handshakes at the same time, besides one for each rank. Brokers of one MiniCluster start
/// together; the others are for clients that are not brokers.
const FURTHER_HANDSHAKES: usize = 16;

/// Requests at the same time, besides one for each rank: agents ask before they start a broker, and
/// ask again when they were not answered.
const FURTHER_REQUESTS: usize = 8;

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct Places(Mutex<Table>);

#[derive(Debug)]
struct Table {
    /// The number of ranks of the lease.
    ranks: usize,
    next_id: u64,
    /// In the order in which they were accepted.
    handshakes: BTreeMap<u64, Handshake>,
    /// In the order in which they were accepted.
    brokers: BTreeMap<u64, Arc<Notify>>,
    requests: usize,
}

#[derive(Debug)]
struct Handshake {
    peer: IpAddr,
    cut: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Broker,
    Request,
    Left,
}

/// There is no place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoPlace;

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    id: u64,
    cut: Arc<Notify>,
    phase: Mutex<Phase>,
}

impl Places {
    /// The places of a lease with this number of ranks.
    pub(crate) fn new(ranks: usize) -> Arc<Places> {
        let (handshakes, brokers) = (BTreeMap::new(), BTreeMap::new());
        let table = Table { ranks, next_id: 0, handshakes, brokers, requests: 0 };
        Arc::new(Places(Mutex::new(table)))
    }

    /// Admits a connection as handshake. If there are too many, another handshake is cut.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Place {
        let peer = peer.to_canonical();
        let cut = Arc::new(Notify::new());
        let mut table = lock(&self.0);
        while table.handshakes.len() >= table.ranks.saturating_add(FURTHER_HANDSHAKES) {
            let Some(id) = choose_excess(&table.handshakes) else { break };
            if let Some(excess) = table.handshakes.remove(&id) {
                excess.cut.notify_one();
            }
        }
        let id = table.next_id;
        table.next_id += 1;
        table.handshakes.insert(id, Handshake { peer, cut: Arc::clone(&cut) });
        let phase = Mutex::new(Phase::Handshake);
        Place { places: Arc::clone(self), id, cut, phase }
    }

    /// Sets the number of ranks, and cuts the newest brokers if there are more.
    pub(crate) fn set_ranks(&self, ranks: usize) {
        let mut table = lock(&self.0);
        table.ranks = ranks;
        while table.brokers.len() > ranks {
            if let Some((_, cut)) = table.brokers.pop_last() {
                cut.notify_one();
            }
        }
    }

    /// The number of connected brokers.
    #[cfg(test)]
    pub(crate) fn brokers(&self) -> usize {
        lock(&self.0).brokers.len()
    }

    /// The number of handshakes.
    #[cfg(test)]
    pub(crate) fn handshakes(&self) -> usize {
        lock(&self.0).handshakes.len()
    }
}

impl Place {
    /// Makes the connection that of a broker, unless there are as many as the lease has ranks.
    pub(crate) fn become_broker(&self) -> Result<(), NoPlace> {
        let mut table = lock(&self.places.0);
        if table.brokers.len() >= table.ranks {
            return Err(NoPlace);
        }
        // A connection that was cut meanwhile has no place any more.
        let Some(Handshake { cut, .. }) = table.handshakes.remove(&self.id) else {
            return Err(NoPlace);
        };
        table.brokers.insert(self.id, cut);
        *lock(&self.phase) = Phase::Broker;
        Ok(())
    }

    /// Makes the connection that of a request, unless there are too many.
    pub(crate) fn become_request(&self) -> Result<(), NoPlace> {
        let mut table = lock(&self.places.0);
        if table.requests >= table.ranks.saturating_add(FURTHER_REQUESTS)
            || table.handshakes.remove(&self.id).is_none()
        {
            return Err(NoPlace);
        }
        table.requests += 1;
        *lock(&self.phase) = Phase::Request;
        Ok(())
    }

    /// Frees the place before the connection is closed.
    pub(crate) fn leave(&self) {
        let mut table = lock(&self.places.0);
        match std::mem::replace(&mut *lock(&self.phase), Phase::Left) {
            Phase::Handshake => drop(table.handshakes.remove(&self.id)),
            Phase::Broker => drop(table.brokers.remove(&self.id)),
            Phase::Request => table.requests -= 1,
            Phase::Left => {}
        }
    }

    /// Waits until the connection has to be cut. Returns whether its handshake was under way.
    pub(crate) async fn wait_until_cut(&self) -> bool {
        self.cut.notified().await;
        *lock(&self.phase) == Phase::Handshake
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The handshake to cut: the oldest of the address that has the most.
fn choose_excess(handshakes: &BTreeMap<u64, Handshake>) -> Option<u64> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for handshake in handshakes.values() {
        *counts.entry(handshake.peer).or_default() += 1;
    }
    let most = counts.values().max()?;
    handshakes.iter().find(|(_, handshake)| counts[&handshake.peer] == *most).map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use proptest::prelude::*;

    fn peer(number: u8) -> IpAddr {
        [203, 0, 113, number].into()
    }

    const RANKS: usize = 2;

    fn is_cut(place: &Place) -> Option<bool> {
        place.wait_until_cut().now_or_never()
    }

    #[test]
    fn only_as_many_brokers_are_admitted_as_there_are_ranks() {
        let places = Places::new(RANKS);
        let (one, two, three) =
            (places.admit(peer(1)), places.admit(peer(1)), places.admit(peer(1)));
        assert_eq!(one.become_broker(), Ok(()));
        assert_eq!(two.become_broker(), Ok(()));
        assert_eq!(three.become_broker(), Err(NoPlace));
        one.leave();
        assert_eq!(three.become_broker(), Ok(()), "a place that was left is free");
        drop((one, two, three));
        assert_eq!((places.brokers(), places.handshakes()), (0, 0));
    }

    #[test]
    fn the_oldest_handshake_of_the_busiest_address_is_cut() {
        let places = Places::new(RANKS);
        let good = places.admit(peer(1));
        let mut silent: Vec<Place> = (0..17).map(|_| places.admit(peer(2))).collect();
        assert!(silent.iter().all(|place| is_cut(place).is_none()));
        let another = places.admit(peer(3));
        assert_eq!(is_cut(&silent[0]), Some(true));
        silent.remove(0);
        assert!(silent.iter().all(|place| is_cut(place).is_none()));
        assert_eq!((is_cut(&good), is_cut(&another)), (None, None));
        assert_eq!(good.become_broker(), Ok(()));
    }

    #[test]
    fn a_handshake_that_was_cut_does_not_become_a_broker() {
        let places = Places::new(RANKS);
        let first = places.admit(peer(1));
        let _others: Vec<Place> = (0..18).map(|_| places.admit(peer(1))).collect();
        assert_eq!(first.become_broker(), Err(NoPlace));
    }

    #[test]
    fn requests_have_a_limit_of_their_own() {
        let places = Places::new(RANKS);
        let request = || {
            let place = places.admit(peer(1));
            place.become_request().map(|()| place)
        };
        let held: Vec<Place> = std::iter::from_fn(|| request().ok()).collect();
        assert_eq!(held.len(), RANKS + FURTHER_REQUESTS);
        let broker = places.admit(peer(1));
        assert_eq!(broker.become_broker(), Ok(()));
        drop(held);
        assert!(request().is_ok());
    }

    #[test]
    fn the_newest_brokers_are_cut_when_the_limit_is_lowered() {
        let places = Places::new(RANKS);
        places.set_ranks(3);
        let brokers: Vec<Place> = (0..3).map(|_| places.admit(peer(1))).collect();
        for broker in &brokers {
            broker.become_broker().unwrap();
        }
        places.set_ranks(1);
        let cut: Vec<_> = brokers.iter().map(is_cut).collect();
        assert_eq!(cut, [None, Some(false), Some(false)]);
        assert_eq!(places.brokers(), 1);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Admit(u8),
        Broker(usize),
        Request(usize),
        Leave(usize),
        Drop(usize),
        Limit(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u8..4).prop_map(Step::Admit),
            2 => any::<usize>().prop_map(Step::Broker),
            1 => any::<usize>().prop_map(Step::Request),
            1 => any::<usize>().prop_map(Step::Leave),
            2 => any::<usize>().prop_map(Step::Drop),
            1 => (0_usize..4).prop_map(Step::Limit),
        ]
    }

    proptest! {
        #[test]
        fn no_limit_is_ever_exceeded(steps in proptest::collection::vec(any_step(), 0..200)) {
            let places = Places::new(RANKS);
            let mut ranks = RANKS;
            let mut held: Vec<Place> = Vec::new();
            for step in steps {
                let nth = |index: usize| (!held.is_empty()).then(|| &held[index % held.len()]);
                match step {
                    Step::Admit(number) => {
                        let place = places.admit(peer(number));
                        held.push(place);
                        prop_assert!(places.handshakes() <= ranks + FURTHER_HANDSHAKES);
                    }
                    Step::Broker(index) => drop(nth(index).map(|place| place.become_broker())),
                    Step::Request(index) => drop(nth(index).map(|it| it.become_request())),
                    Step::Leave(index) => drop(nth(index).map(Place::leave)),
                    Step::Drop(index) if !held.is_empty() => {
                        held.swap_remove(index % held.len());
                    }
                    Step::Drop(_) => {}
                    Step::Limit(limit) => {
                        ranks = limit;
                        places.set_ranks(ranks);
                    }
                }
                prop_assert!(places.brokers() <= ranks);
            }
            held.clear();
            prop_assert_eq!((places.brokers(), places.handshakes()), (0, 0));
            prop_assert_eq!(lock(&places.0).requests, 0);
        }
    }
}
