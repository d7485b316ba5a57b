//! The limit of connected brokers of all ports together.
//!
//! A lender chooses how many ranks it lends, and how fast its lead reads. So without this limit one
//! lender could use up the gateway's memory, and with it end the connections of all others.
//!
//! At the limit, a lender gets another place only at the expense of the one that has the most: its
//! newest broker is cut. That happens only if the first has fewer even then. So lenders with equally
//! many do not cut each other in turn.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::lender::LenderId;
use crate::lock::lock;
use crate::places::NoPlace;

/// The maximum number of connected brokers: twice as many as an invitation can have ranks.
///
/// Memory: a broker has two sockets, and the worst is one whose client and lead both send and do not
/// read. Its task then has at most 4 KiB (checked by a test) and two buffers of 16 KiB
/// (`relay::BUFFER`). Measured on Linux, the kernel then has 128 KiB that a socket has received, which
/// is what a socket starts with (`tcp_rmem`), and at most 48 KiB that wait to be sent
/// (`socket::MAX_UNSENT`), so 352 KiB for both. That is about 400 KiB for a broker, and 800 MiB for
/// all, of the 1 GiB that the shipped Deployment allows; 28 MiB are for untrusted connections. An
/// idle broker has some KiB.
pub(crate) const MAX_BROKERS: usize = 2048;

/// The connected brokers of all ports.
#[derive(Debug)]
pub(crate) struct Brokers {
    limit: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    total: usize,
    /// The brokers of each lender, in the order in which their connections were accepted. No lender
    /// is without brokers.
    by_lender: HashMap<LenderId, BTreeMap<u64, Arc<Notify>>>,
}

impl Brokers {
    /// At most this number of brokers.
    pub(crate) fn new(limit: usize) -> Arc<Brokers> {
        Arc::new(Brokers { limit, table: Mutex::default() })
    }

    /// Adds a broker, and notifies `cut` when it has to be cut for one of another lender.
    pub(crate) fn add(&self, lender: &LenderId, id: u64, cut: &Arc<Notify>) -> Result<(), NoPlace> {
        let mut table = lock(&self.table);
        if table.total >= self.limit {
            table.cut_for(lender)?;
        }
        table.by_lender.entry(lender.clone()).or_default().insert(id, Arc::clone(cut));
        table.total += 1;
        Ok(())
    }

    /// Removes a broker. Returns false if it was removed before, because it has to be cut, or was
    /// never added.
    pub(crate) fn remove(&self, lender: &LenderId, id: u64) -> bool {
        lock(&self.table).remove(lender, id).is_some()
    }

    /// Whether it has this broker.
    pub(crate) fn contains(&self, lender: &LenderId, id: u64) -> bool {
        lock(&self.table).by_lender.get(lender).is_some_and(|all| all.contains_key(&id))
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let table = lock(&self.table);
        assert_eq!(table.total, table.by_lender.values().map(BTreeMap::len).sum::<usize>());
        table.total
    }
}

impl Table {
    /// Cuts a broker for a new one of this lender.
    fn cut_for(&mut self, lender: &LenderId) -> Result<(), NoPlace> {
        let own = self.by_lender.get(lender).map_or(0, BTreeMap::len);
        let busiest = self.by_lender.iter().max_by_key(|(_, brokers)| brokers.len());
        let (busiest, brokers) = busiest.ok_or(NoPlace)?;
        if own + 1 >= brokers.len() {
            return Err(NoPlace);
        }
        let (newest, _) = brokers.last_key_value().ok_or(NoPlace)?;
        let (busiest, newest) = (busiest.clone(), *newest);
        if let Some(cut) = self.remove(&busiest, newest) {
            cut.notify_one();
        }
        Ok(())
    }

    fn remove(&mut self, lender: &LenderId, id: u64) -> Option<Arc<Notify>> {
        let brokers = self.by_lender.get_mut(lender)?;
        let cut = brokers.remove(&id)?;
        if brokers.is_empty() {
            self.by_lender.remove(lender);
        }
        self.total -= 1;
        Some(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const LIMIT: usize = 6;

    fn lender(name: &str) -> LenderId {
        LenderId { namespace: "default".into(), name: name.into(), uid: name.into() }
    }

    /// Adds brokers of a lender, and returns what is notified when they are cut, if they are added.
    fn add(brokers: &Brokers, name: &str, ids: std::ops::Range<u64>) -> Vec<Option<Arc<Notify>>> {
        let add = |id| {
            let cut = Arc::default();
            brokers.add(&lender(name), id, &cut).ok().map(|()| cut)
        };
        ids.map(add).collect()
    }

    fn are_cut(added: &[Option<Arc<Notify>>]) -> Vec<bool> {
        let is_cut = |cut: &Arc<Notify>| cut.notified().now_or_never().is_some();
        added.iter().flatten().map(is_cut).collect()
    }

    #[test]
    fn the_newest_of_the_lender_with_the_most_are_cut_for_one_with_fewer() {
        let brokers = Brokers::new(LIMIT);
        let many = add(&brokers, "many", 0..5);
        let one = add(&brokers, "one", 5..6);
        let few = add(&brokers, "few", 6..8);
        assert!(few.iter().all(Option::is_some));
        assert_eq!(are_cut(&many), [false, false, false, true, true]);
        assert_eq!((are_cut(&one), are_cut(&few)), (vec![false], vec![false; 2]));
        assert_eq!(brokers.count(), LIMIT);
        assert!(!brokers.contains(&lender("many"), 4) && !brokers.remove(&lender("many"), 4));
    }

    #[test]
    fn at_the_limit_the_lender_with_the_most_gets_no_more() {
        let brokers = Brokers::new(LIMIT);
        let all = add(&brokers, "many", 0..8);
        assert_eq!(all.iter().flatten().count(), LIMIT);
        assert_eq!(are_cut(&all), [false; LIMIT]);
        assert!(brokers.remove(&lender("many"), 0));
        assert!(add(&brokers, "many", 8..9)[0].is_some(), "a place that was left is free");
    }

    #[test]
    fn lenders_with_equally_many_do_not_cut_each_other() {
        let brokers = Brokers::new(LIMIT);
        let (one, other) = (add(&brokers, "one", 0..3), add(&brokers, "other", 3..6));
        assert!(add(&brokers, "one", 6..7)[0].is_none());
        assert!(add(&brokers, "other", 7..8)[0].is_none());
        let brokers_of_third = add(&brokers, "third", 8..12);
        assert_eq!(brokers_of_third.iter().flatten().count(), 2, "its share");
        let cut = [are_cut(&one), are_cut(&other)].concat();
        assert_eq!(cut.into_iter().filter(|is_cut| *is_cut).count(), 2);
        assert_eq!(brokers.count(), LIMIT);
    }

    #[test]
    fn with_one_broker_each_there_is_nothing_to_share() {
        let brokers = Brokers::new(2);
        let (one, other) = (add(&brokers, "one", 0..1), add(&brokers, "other", 1..2));
        assert!(add(&brokers, "third", 2..3)[0].is_none());
        assert_eq!([are_cut(&one), are_cut(&other)].concat(), [false, false]);
    }
}
