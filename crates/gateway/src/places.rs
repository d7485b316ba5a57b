//! The connections of one port, and the limits of its brokers.
//!
//! A connection starts as [`untrusted`](crate::untrusted), and becomes that of a *broker* once the
//! lead has accepted it. A request stays untrusted until its end.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::brokers::Brokers;
use crate::lender::LenderId;
use crate::lock::lock;
use crate::untrusted::{Progress, Untrusted};

/// How many handshakes can be [`Progress::Proven`] in addition to two for each rank: a broker that was
/// restarted can begin another one before the end of the first.
const SPARE_PROVEN: usize = 4;

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct Places {
    port: u16,
    lender: LenderId,
    /// Those of all ports.
    untrusted: Arc<Untrusted>,
    /// Those of all ports.
    all_brokers: Arc<Brokers>,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    /// The number of ranks of the lease.
    ranks: usize,
    /// In the order in which they were accepted.
    brokers: BTreeMap<u64, Arc<Notify>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Untrusted,
    Broker,
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
    /// The places of a port whose lease has this number of ranks.
    pub(crate) fn new(
        port: u16,
        lender: LenderId,
        ranks: usize,
        untrusted: Arc<Untrusted>,
        all_brokers: Arc<Brokers>,
    ) -> Arc<Places> {
        let table = Mutex::new(Table { ranks, brokers: BTreeMap::new() });
        Arc::new(Places { port, lender, untrusted, all_brokers, table })
    }

    /// Admits an untrusted connection. If there are too many, another one is cut.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Place, NoPlace> {
        let (id, cut) = self.untrusted.admit(self.port, peer)?;
        let phase = Mutex::new(Phase::Untrusted);
        Ok(Place { places: Arc::clone(self), id, cut, phase })
    }

    /// Sets the number of ranks, and cuts the newest brokers if there are more.
    pub(crate) fn set_ranks(&self, ranks: usize) {
        let mut table = lock(&self.table);
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
        lock(&self.table).brokers.len()
    }
}

impl Place {
    /// Records how far the connection has come.
    pub(crate) fn advance(&self, progress: Progress) {
        self.places.untrusted.advance(self.id, progress);
    }

    /// Records that the lead has answered the client's first message. If more handshakes of the port
    /// have come this far than its brokers need, one of them is cut.
    pub(crate) fn prove(&self) {
        let ranks = lock(&self.places.table).ranks;
        self.places.untrusted.prove(self.id, 2 * ranks + SPARE_PROVEN);
    }

    /// Makes the connection that of a broker, unless there are as many as the lease has ranks, or too
    /// many of all leases.
    pub(crate) fn become_broker(&self) -> Result<(), NoPlace> {
        let Places { lender, untrusted, all_brokers, .. } = &*self.places;
        let mut table = lock(&self.places.table);
        // A connection that was cut meanwhile has no place any more.
        if table.brokers.len() >= table.ranks || !untrusted.remove(self.id) {
            return Err(NoPlace);
        }
        all_brokers.add(lender, self.id, &self.cut)?;
        table.brokers.insert(self.id, Arc::clone(&self.cut));
        *lock(&self.phase) = Phase::Broker;
        Ok(())
    }

    /// Frees the place before the connection is closed, for another one of the port.
    pub(crate) fn leave(&self) {
        let mut table = lock(&self.places.table);
        match std::mem::replace(&mut *lock(&self.phase), Phase::Left) {
            Phase::Untrusted => drop(self.places.untrusted.remove(self.id)),
            Phase::Broker => drop(table.brokers.remove(&self.id)),
            Phase::Left => {}
        }
    }

    /// Waits until the connection has to be cut. Returns whether it is one too many; otherwise its
    /// lease has fewer ranks than before.
    pub(crate) async fn wait_until_cut(&self) -> bool {
        self.cut.notified().await;
        let Places { lender, all_brokers, .. } = &*self.places;
        *lock(&self.phase) == Phase::Untrusted || !all_brokers.contains(lender, self.id)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
        // Not before: until now the connection needed memory.
        self.places.all_brokers.remove(&self.places.lender, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use proptest::prelude::*;

    const RANKS: usize = 2;

    fn places() -> (Arc<Places>, Arc<Untrusted>) {
        let untrusted = Untrusted::new(10);
        (places_of("a", &untrusted, &Brokers::new(100)), untrusted)
    }

    fn places_of(lender: &str, untrusted: &Arc<Untrusted>, brokers: &Arc<Brokers>) -> Arc<Places> {
        let lender = crate::testing::lender(lender, &[]).id;
        Places::new(9001, lender, RANKS, Arc::clone(untrusted), Arc::clone(brokers))
    }

    fn admit(places: &Arc<Places>) -> Place {
        places.admit([203, 0, 113, 1].into()).unwrap()
    }

    fn is_cut(place: &Place) -> Option<bool> {
        place.wait_until_cut().now_or_never()
    }

    #[test]
    fn only_as_many_brokers_are_admitted_as_there_are_ranks() {
        let (places, untrusted) = places();
        let (one, two, three) = (admit(&places), admit(&places), admit(&places));
        assert_eq!(one.become_broker(), Ok(()));
        assert_eq!(two.become_broker(), Ok(()));
        assert_eq!(three.become_broker(), Err(NoPlace));
        one.leave();
        assert_eq!(three.become_broker(), Ok(()), "a place that was left is free");
        drop((one, two, three));
        assert_eq!((places.brokers(), untrusted.count(Progress::Accepted)), (0, 0));
    }

    #[test]
    fn a_handshake_that_was_cut_does_not_become_a_broker() {
        let (places, _) = places();
        let first = admit(&places);
        let _others: Vec<Place> = (0..10).map(|_| admit(&places)).collect();
        assert_eq!(is_cut(&first), Some(true));
        assert_eq!(first.become_broker(), Err(NoPlace));
    }

    #[test]
    fn brokers_are_not_cut_for_others() {
        let (places, _) = places();
        let broker = admit(&places);
        broker.become_broker().unwrap();
        let others: Vec<Place> = (0..100).map(|_| admit(&places)).collect();
        assert_eq!(is_cut(&broker), None);
        assert_eq!(others.iter().filter(|it| is_cut(it).is_none()).count(), 10);
    }

    #[test]
    fn the_newest_brokers_are_cut_when_the_limit_is_lowered() {
        let (places, _) = places();
        places.set_ranks(3);
        let brokers: Vec<Place> = (0..3).map(|_| admit(&places)).collect();
        for broker in &brokers {
            broker.become_broker().unwrap();
        }
        places.set_ranks(1);
        let cut: Vec<_> = brokers.iter().map(is_cut).collect();
        assert_eq!(cut, [None, Some(false), Some(false)]);
        assert_eq!(places.brokers(), 1);
    }

    #[test]
    fn the_brokers_of_all_ports_are_limited_too() {
        let (untrusted, brokers) = (Untrusted::new(10), Brokers::new(3));
        let of = |lender| places_of(lender, &untrusted, &brokers);
        let (first, second, another) = (of("a"), of("a"), of("b"));
        let admitted = [&first, &first, &second, &second].map(admit);
        let became: Vec<_> = admitted.iter().map(Place::become_broker).collect();
        assert_eq!(became, [Ok(()), Ok(()), Ok(()), Err(NoPlace)]);
        let other = admit(&another);
        assert_eq!(other.become_broker(), Ok(()));
        let cut: Vec<_> = admitted.iter().map(is_cut).collect();
        assert_eq!(cut, [None, None, Some(true), None], "of the lender with the most");
        assert_eq!(untrusted.count(Progress::Accepted), 0);
    }

    #[test]
    fn a_broker_that_has_left_counts_until_its_connection_is_closed() {
        let (untrusted, brokers) = (Untrusted::new(10), Brokers::new(1));
        let places = places_of("a", &untrusted, &brokers);
        let (first, second, third) = (admit(&places), admit(&places), admit(&places));
        first.become_broker().unwrap();
        first.leave();
        assert_eq!((places.brokers(), brokers.count()), (0, 1));
        assert_eq!(second.become_broker(), Err(NoPlace));
        drop(first);
        assert_eq!(third.become_broker(), Ok(()));
    }

    #[test]
    fn a_port_has_two_handshakes_for_each_rank_and_a_few_more() {
        let untrusted = Untrusted::new(100);
        let places = places_of("a", &untrusted, &Brokers::new(100));
        let admitted: Vec<Place> = (0..=2 * RANKS + SPARE_PROVEN).map(|_| admit(&places)).collect();
        admitted.iter().for_each(Place::prove);
        assert_eq!(is_cut(&admitted[0]), Some(true));
        assert!(admitted[1..].iter().all(|it| is_cut(it).is_none()));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Admit,
        Broker(usize),
        Leave(usize),
        Drop(usize),
        Limit(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Admit),
            2 => any::<usize>().prop_map(Step::Broker),
            1 => any::<usize>().prop_map(Step::Leave),
            2 => any::<usize>().prop_map(Step::Drop),
            1 => (0_usize..4).prop_map(Step::Limit),
        ]
    }

    proptest! {
        #[test]
        fn no_limit_is_ever_exceeded(steps in proptest::collection::vec(any_step(), 0..200)) {
            let (places, untrusted) = places();
            let mut ranks = RANKS;
            let mut held: Vec<Place> = Vec::new();
            for step in steps {
                let nth = |index: usize| (!held.is_empty()).then(|| &held[index % held.len()]);
                match step {
                    Step::Admit => held.push(admit(&places)),
                    Step::Broker(index) => drop(nth(index).map(|place| place.become_broker())),
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
                prop_assert!(untrusted.count(Progress::Accepted) <= 10);
            }
            held.clear();
            prop_assert_eq!((places.brokers(), untrusted.count(Progress::Accepted)), (0, 0));
        }
    }
}
