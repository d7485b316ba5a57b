//! The connections that are not trusted yet, of all ports: handshakes of brokers, and requests.
//!
//! Anyone can open them, so their number is limited, and when there are too many one of them is cut.
//! Which one, is decided in this order:
//!
//! 1. One of the port that has the most. So a port loses none while it has less than its share.
//! 2. The one that has made the least [`Progress`]. A client without the certificate does not get
//!    far, so those that are cut for its sake are of its kind. Addresses alone would not tell them
//!    apart: behind a node port all clients can have the same one.
//! 3. One of the address that has the most of these.
//! 4. The oldest: it has had the most time. A broker needs four round trips until it is proven.
//!
//! [`Progress::Proven`] can be reached without the certificate too, with the HELLO of another client.
//! So each port can have only some of these, and when there are more, one of them is cut in the order
//! of the steps 3 and 4.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::lock::lock;
use crate::places::NoPlace;

/// The maximum number of untrusted connections: as many as an invitation can have ranks, whose
/// brokers start together.
///
/// Memory, computed: each has a task of at most 4 KiB (checked by a test), at most 16 KiB for a
/// request, and two sockets in the kernel, estimated as 4 KiB each. A client that sends more than its
/// opening is refused, so its data does not collect in the kernel. Together that is 28 MiB of the
/// 1 GiB that the shipped Deployment allows.
pub(crate) const MAX_UNTRUSTED: usize = 1024;

/// How far a connection has come. What can be reached without the certificate is either left at once
/// by brokers and agents, or ended at once by the lead and the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// Accepted. Brokers and agents send their first bytes at once.
    Accepted,
    /// The first bytes are those of a broker or of an agent. It owes us the rest of its opening.
    Recognized,
    /// Its opening is complete and was forwarded: the lead or the operator has to answer.
    Opened,
    /// The lead has answered with WELCOME, which shows that it knows the certificate's public key, or
    /// has recorded the HELLO of a client that does. READY proves the rest, and ends the handshake.
    Proven,
}

/// The untrusted connections of all ports.
#[derive(Debug)]
pub(crate) struct Untrusted {
    limit: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    /// In the order in which they were accepted.
    connections: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    port: u16,
    peer: IpAddr,
    progress: Progress,
    cut: Arc<Notify>,
}

impl Untrusted {
    /// At most this number of connections.
    pub(crate) fn new(limit: usize) -> Arc<Untrusted> {
        Arc::new(Untrusted { limit, table: Mutex::default() })
    }

    /// Admits a connection to a port, and returns its id and what is notified when it has to be cut.
    /// If there are too many, another one is cut; but a port's own proven ones are not cut for its
    /// new ones.
    pub(crate) fn admit(&self, port: u16, peer: IpAddr) -> Result<(u64, Arc<Notify>), NoPlace> {
        let mut table = lock(&self.table);
        while table.connections.len() >= self.limit {
            let id = choose_excess(&table.connections, port).ok_or(NoPlace)?;
            if let Some(excess) = table.connections.remove(&id) {
                excess.cut.notify_one();
            }
        }
        let id = table.next_id;
        table.next_id += 1;
        let cut = Arc::new(Notify::new());
        let (peer, progress) = (peer.to_canonical(), Progress::Accepted);
        let connection = Connection { port, peer, progress, cut: Arc::clone(&cut) };
        table.connections.insert(id, connection);
        Ok((id, cut))
    }

    /// Records the progress of a connection.
    pub(crate) fn advance(&self, id: u64, progress: Progress) {
        if let Some(connection) = lock(&self.table).connections.get_mut(&id) {
            connection.progress = progress;
        }
    }

    /// Records that a connection is [`Proven`](Progress::Proven). If its port then has more than this
    /// number of these, one of them is cut. Together they are at most three quarters of all untrusted
    /// connections, so that clients of the port that have to prove something still get in.
    pub(crate) fn prove(&self, id: u64, limit: usize) {
        let mut table = lock(&self.table);
        let Some(connection) = table.connections.get_mut(&id) else { return };
        connection.progress = Progress::Proven;
        let port = connection.port;
        let is_proven = |it: &Connection| it.port == port && it.progress == Progress::Proven;
        let proven: Vec<_> = table.connections.iter().filter(|(_, it)| is_proven(it)).collect();
        if proven.len() > limit.min(self.limit * 3 / 4) {
            let oldest = oldest_of_busiest_peer(&proven);
            if let Some(excess) = oldest.and_then(|id| table.connections.remove(&id)) {
                excess.cut.notify_one();
            }
        }
    }

    /// Removes a connection. Returns false if it was removed before, because it has to be cut.
    pub(crate) fn remove(&self, id: u64) -> bool {
        lock(&self.table).connections.remove(&id).is_some()
    }

    /// The number of connections that have come this far.
    #[cfg(test)]
    pub(crate) fn count(&self, progress: Progress) -> usize {
        let table = lock(&self.table);
        table.connections.values().filter(|it| it.progress >= progress).count()
    }
}

/// The connection to cut for a new one of this port.
fn choose_excess(connections: &BTreeMap<u64, Connection>, new: u16) -> Option<u64> {
    let mut left: Vec<(&u64, &Connection)> = connections.iter().collect();
    // The new one counts too.
    let ports = left.iter().map(|(_, it)| it.port).chain([new]);
    let ports = counts(ports);
    let most = left.iter().map(|(_, it)| ports[&it.port]).max()?;
    let port = left.iter().map(|(_, it)| it.port).find(|port| ports[port] == most)?;
    left.retain(|(_, it)| it.port == port);

    let progress = left.iter().map(|(_, it)| it.progress).min()?;
    if progress == Progress::Proven && port == new {
        return None;
    }
    left.retain(|(_, it)| it.progress == progress);
    oldest_of_busiest_peer(&left)
}

/// The oldest connection of the address that has the most of these, which are in order of age.
fn oldest_of_busiest_peer(connections: &[(&u64, &Connection)]) -> Option<u64> {
    let peers = counts(connections.iter().map(|(_, it)| it.peer));
    let most = peers.values().max()?;
    connections.iter().find(|(_, it)| peers[&it.peer] == *most).map(|(id, _)| **id)
}

fn counts<T: Eq + Hash>(values: impl Iterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use proptest::prelude::*;

    const LIMIT: usize = 8;

    fn peer(number: u8) -> IpAddr {
        [203, 0, 113, number].into()
    }

    struct Admitted {
        id: u64,
        cut: Arc<Notify>,
    }

    impl Admitted {
        fn is_cut(&self) -> bool {
            self.cut.notified().now_or_never().is_some()
        }
    }

    /// Admits connections, as (port, address, progress).
    fn admit(untrusted: &Untrusted, all: &[(u16, u8, Progress)]) -> Vec<Admitted> {
        let admit = |(port, from, progress): &(u16, u8, Progress)| {
            let (id, cut) = untrusted.admit(*port, peer(*from)).unwrap();
            untrusted.advance(id, *progress);
            Admitted { id, cut }
        };
        all.iter().map(admit).collect()
    }

    /// Which of these is cut for a new connection of port 1 from address 1.
    fn cut_for_another(all: [(u16, u8, Progress); LIMIT]) -> Option<usize> {
        let untrusted = Untrusted::new(LIMIT);
        let admitted = admit(&untrusted, &all);
        assert!(admitted.iter().all(|it| !it.is_cut()));
        let another = untrusted.admit(1, peer(1));
        let cut: Vec<usize> = (0..LIMIT).filter(|number| admitted[*number].is_cut()).collect();
        assert_eq!(cut.len(), usize::from(another.is_ok()));
        cut.first().copied()
    }

    use Progress::{Accepted, Opened, Proven, Recognized};

    #[test]
    fn the_one_that_has_proved_least_is_cut_and_of_equal_ones_the_oldest() {
        let mut all = [(1, 1, Proven); LIMIT];
        assert_eq!(cut_for_another(all), None, "a client that has proved nothing replaces none");
        all[3].2 = Opened;
        all[5].2 = Opened;
        assert_eq!(cut_for_another(all), Some(3));
        all[4].2 = Recognized;
        all[7].2 = Recognized;
        assert_eq!(cut_for_another(all), Some(4));
        all[6].2 = Accepted;
        assert_eq!(cut_for_another(all), Some(6));
        assert_eq!(cut_for_another([(1, 1, Recognized); LIMIT]), Some(0));
    }

    #[test]
    fn of_equal_ones_the_busiest_address_loses_one() {
        let mut all = [(1, 2, Recognized); LIMIT];
        all[0].1 = 3;
        all[1].1 = 4;
        assert_eq!(cut_for_another(all), Some(2));
        // Those that have come further do not count.
        all[2..6].fill((1, 2, Proven));
        all[1].1 = 3;
        all[7].1 = 3;
        assert_eq!(cut_for_another(all), Some(0));
    }

    #[test]
    fn the_busiest_port_loses_one_whatever_it_has_proved() {
        let mut all = [(2, 2, Proven); LIMIT];
        all[..3].fill((1, 1, Accepted));
        assert_eq!(cut_for_another(all), Some(3));
        // Port 1 would have five of nine.
        all[3] = (1, 1, Recognized);
        assert_eq!(cut_for_another(all), Some(0));
    }

    /// Which of these, all proven, is cut when the last one is, of at most `limit`.
    fn cut_by_the_last(all: &[(u16, u8)], limit: usize) -> Vec<usize> {
        let untrusted = Untrusted::new(LIMIT);
        let all: Vec<_> = all.iter().map(|(port, from)| (*port, *from, Opened)).collect();
        let admitted = admit(&untrusted, &all);
        for connection in &admitted {
            untrusted.prove(connection.id, limit);
        }
        (0..all.len()).filter(|number| admitted[*number].is_cut()).collect()
    }

    #[test]
    fn a_port_has_only_some_proven_ones_and_the_oldest_is_cut() {
        assert_eq!(cut_by_the_last(&[(1, 1); 4], 4), [0; 0]);
        assert_eq!(cut_by_the_last(&[(1, 1); 5], 4), [0]);
        assert_eq!(cut_by_the_last(&[(2, 1), (1, 1), (1, 1), (2, 1)], 2), [0; 0], "of two ports");
        assert_eq!(cut_by_the_last(&[(1, 2), (1, 1), (1, 1)], 2), [1], "of the busiest address");
        // Of eight, whatever the port's own limit is, two are left for others.
        assert_eq!(cut_by_the_last(&[(1, 1); LIMIT], 100), [0, 1]);
    }

    #[test]
    fn a_connection_is_proven_once() {
        let untrusted = Untrusted::new(LIMIT);
        let admitted = admit(&untrusted, &[(1, 1, Opened), (1, 1, Opened)]);
        for connection in [&admitted[0], &admitted[1], &admitted[1], &admitted[0]] {
            untrusted.prove(connection.id, 2);
        }
        assert!(admitted.iter().all(|it| !it.is_cut()));
    }

    #[test]
    fn one_that_has_left_or_was_cut_is_not_counted() {
        let untrusted = Untrusted::new(2);
        let admitted = admit(&untrusted, &[(1, 1, Accepted), (1, 1, Recognized)]);
        assert!(untrusted.remove(admitted[1].id));
        admit(&untrusted, &[(1, 1, Accepted), (1, 1, Accepted)]);
        assert!(!untrusted.remove(admitted[0].id), "it was cut");
        assert_eq!(untrusted.count(Accepted), 2);
    }

    proptest! {
        #[test]
        fn a_port_below_its_share_loses_nothing(
            steps in proptest::collection::vec((1_u16..4, 0_u8..3, 0_u8..4), 0..60),
        ) {
            let untrusted = Untrusted::new(LIMIT);
            for (port, from, progress) in steps {
                let of_ports = || {
                    let table = lock(&untrusted.table);
                    counts(table.connections.values().map(|it| it.port))
                };
                let before = of_ports();
                let progress = [Accepted, Recognized, Opened, Proven][usize::from(progress)];
                if let Ok((id, _)) = untrusted.admit(port, peer(from)) {
                    untrusted.advance(id, progress);
                }
                prop_assert!(untrusted.count(Accepted) <= LIMIT);
                let after = of_ports();
                let share = LIMIT / 3;
                for (other, count) in before.into_iter().filter(|(_, count)| *count <= share) {
                    prop_assert!(after.get(&other).copied().unwrap_or_default() >= count);
                }
            }
        }
    }
}
