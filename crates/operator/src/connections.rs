//! Limits the number of connections, and chooses which connection to close when there are too many.
//!
//! Any pod in the Kubernetes cluster can connect, so a connection is not trusted until an agent's
//! seal has been verified on it. Until then it is *unverified*: the limit for these is low, they
//! are closed after seconds, and when there are too many the oldest is closed. An agent sends its
//! request as soon as it is connected, and is served long before its connection is the oldest.
//!
//! A connection whose seal was verified can be kept open as a *long poll* until there is a response
//! to send. When there are too many long polls, further requests are answered at once, and their
//! agents ask again after a pause. The same is true of a client whose token was verified, with limits
//! of its own: clients never take the long polls of agents.
//!
//! Memory, measured: an unverified connection takes at most 87 KiB, of which 64 KiB are the body,
//! and a long poll at most 17 KiB. Together that is at most 60 MiB. In `reports`, the lists of jobs take
//! at most 64 MiB more, small ones 16 MiB beyond that, and jobspecs that are handed over 32 MiB: 172 of the
//! 192 MiB that the shipped Deployment allows.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::lock::lock;

/// The maximum number of unverified connections. A well-behaved one is verified in milliseconds.
const MAX_UNVERIFIED: usize = 256;

/// The maximum number of unverified connections from one address. A pod has an address of its own
/// and needs two. It is also enough if the agents of a whole network share one address: long polls
/// do not count, and an agent whose connection was closed reconnects within a second. The gateway
/// forwards fewer requests than that at the same time (`MAX_FORWARDED` there).
pub(crate) const MAX_UNVERIFIED_PER_PEER: usize = 128;

/// The maximum number of long polls: one for each lead, and one for each worker that waits for its
/// lead's address. An agent above the limit costs a request per second, not memory.
const MAX_LONG_POLLS: usize = 2048;

/// The maximum number of long polls of one MiniCluster: a quarter of all, so that others get some.
const MAX_LONG_POLLS_PER_CLUSTER: usize = 512;

/// The maximum number of long polls of clients, of which a burst controller needs one for each MiniCluster
/// that it observes. It is an eighth of those of agents, so that all connections together take at most 60 MiB.
const MAX_CLIENT_LONG_POLLS: usize = 256;

/// The maximum number of long polls of clients for one MiniCluster: one for the burst controller's list, four
/// for jobs that it hands over, and some for users.
const MAX_CLIENT_LONG_POLLS_PER_CLUSTER: usize = 8;

/// All open connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Connections {
    table: Arc<Mutex<ConnectionTable>>,
    max_long_polls: usize,
    max_client_long_polls: usize,
}

/// Whose long poll a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LongPoller {
    /// An agent's.
    Agent,
    /// A client's, with a token.
    Client,
}

#[derive(Default)]
struct ConnectionTable {
    /// In the order in which they were accepted.
    unverified: BTreeMap<u64, Unverified>,
    /// The number of long polls, by the uid of the MiniCluster.
    long_polls: HashMap<(LongPoller, String), usize>,
    next_id: u64,
}

struct Unverified {
    peer: IpAddr,
    close: Arc<Notify>,
}

/// The limit that caused a connection to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionLimit {
    /// The limit of its address.
    PerPeer,
    /// The limit of all connections.
    Total,
}

impl ConnectionLimit {
    fn limit(self) -> usize {
        match self {
            ConnectionLimit::PerPeer => MAX_UNVERIFIED_PER_PEER,
            ConnectionLimit::Total => MAX_UNVERIFIED,
        }
    }
}

impl Connections {
    /// An empty table. Half of the files that this process may open are left for other uses.
    pub(crate) fn new(max_files: usize) -> Connections {
        let max_long_polls = (max_files / 2).saturating_sub(MAX_UNVERIFIED).min(MAX_LONG_POLLS);
        let max_client_long_polls = (max_long_polls / 8).min(MAX_CLIENT_LONG_POLLS);
        Connections { table: Arc::default(), max_long_polls, max_client_long_polls }
    }

    /// Adds a connection from this address, whose request must arrive within `limit`. If another
    /// connection was closed for it, also returns which limit was reached.
    pub(crate) fn admit(
        &self,
        address: IpAddr,
        timeout: Duration,
    ) -> (ConnectionGuard, Option<ConnectionLimit>) {
        let (peer, close) = (address.to_canonical(), Arc::new(Notify::new()));
        let mut table = self.lock();
        let reached_limit = table.find_excess(peer).map(|(id, surplus)| {
            if let Some(closed) = table.unverified.remove(&id) {
                closed.close.notify_one();
            }
            surplus
        });
        let id = table.next_id;
        table.next_id += 1;
        table.unverified.insert(id, Unverified { peer, close: Arc::clone(&close) });
        let until = watch::Sender::new(Instant::now() + timeout);
        (
            ConnectionGuard {
                id,
                connections: self.clone(),
                close,
                deadline: until,
                long_poll_of: Mutex::default(),
            },
            reached_limit,
        )
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        lock(&self.table)
    }
}

impl ConnectionTable {
    /// The connection to close so that one more from this peer can be accepted, if one has to be.
    fn find_excess(&self, peer: IpAddr) -> Option<(u64, ConnectionLimit)> {
        let of_peer = || self.unverified.iter().filter(|(_, connection)| connection.peer == peer);
        if of_peer().count() >= ConnectionLimit::PerPeer.limit() {
            return of_peer().next().map(|(id, _)| (*id, ConnectionLimit::PerPeer));
        }
        let is_full = self.unverified.len() >= ConnectionLimit::Total.limit();
        let oldest = self.unverified.first_key_value().filter(|_| is_full);
        oldest.map(|(id, _)| (*id, ConnectionLimit::Total))
    }
}

/// One connection in the table. Dropping it removes the connection.
pub(crate) struct ConnectionGuard {
    id: u64,
    connections: Connections,
    close: Arc<Notify>,
    deadline: watch::Sender<Instant>,
    /// The MiniCluster whose long poll this is.
    long_poll_of: Mutex<Option<(LongPoller, String)>>,
}

/// Why a connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// Another connection took its place.
    LimitReached,
    /// Its deadline has passed.
    TimedOut,
}

impl ConnectionGuard {
    /// Resets the deadline of the connection to `limit` from now.
    pub(crate) fn reset_deadline(&self, limit: Duration) {
        self.deadline.send_replace(Instant::now() + limit);
    }

    /// Makes the connection, whose request was sealed with the key of this MiniCluster, a long poll
    /// until it is closed. Returns false if there are already too many long polls, or `most` of
    /// this MiniCluster.
    pub(crate) fn start_long_poll(&self, cluster_uid: &str, max_of_cluster: usize) -> bool {
        let max_of_cluster = max_of_cluster.min(MAX_LONG_POLLS_PER_CLUSTER);
        let max = self.connections.max_long_polls;
        self.start(LongPoller::Agent, cluster_uid, max_of_cluster, max)
    }

    /// Makes the connection, whose client may get this MiniCluster, a long poll until it is closed.
    /// Returns false if there are already too many of clients.
    pub(crate) fn start_client_long_poll(&self, cluster_uid: &str) -> bool {
        let max = self.connections.max_client_long_polls;
        self.start(LongPoller::Client, cluster_uid, MAX_CLIENT_LONG_POLLS_PER_CLUSTER, max)
    }

    fn start(
        &self,
        poller: LongPoller,
        cluster_uid: &str,
        max_of_cluster: usize,
        max: usize,
    ) -> bool {
        let mut long_poll_of = lock(&self.long_poll_of);
        if long_poll_of.is_some() {
            return true;
        }
        let mut table = self.connections.lock();
        let key = (poller, cluster_uid.to_owned());
        let of_cluster = table.long_polls.get(&key).copied().unwrap_or_default();
        let of_poller = table.long_polls.iter().filter(|((each, _), _)| *each == poller);
        let total: usize = of_poller.map(|(_, count)| count).sum();
        if of_cluster >= max_of_cluster || total >= max {
            return false;
        }
        table.unverified.remove(&self.id);
        table.long_polls.insert(key.clone(), of_cluster + 1);
        *long_poll_of = Some(key);
        true
    }

    /// Waits until the connection has to be closed.
    pub(crate) async fn wait_until_closed(&self) -> CloseReason {
        let mut until = self.deadline.subscribe();
        loop {
            let limit = *until.borrow_and_update();
            tokio::select! {
                () = self.close.notified() => return CloseReason::LimitReached,
                () = tokio::time::sleep_until(limit) => return CloseReason::TimedOut,
                // We own the sender, so the channel is open.
                _ = until.changed() => {}
            }
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let held = self.long_poll_of.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let mut table = self.connections.lock();
        table.unverified.remove(&self.id);
        let Some(key) = held else { return };
        if let Some(count) = table.long_polls.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                table.long_polls.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::net::Ipv6Addr;

    const LIMIT: Duration = Duration::from_secs(5);

    fn connections() -> Connections {
        Connections::new(1_000_000)
    }

    fn address(number: usize) -> IpAddr {
        Ipv6Addr::from_bits((number as u128) << 64 | 1).into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_unverified_connection_is_closed_and_a_long_poll_is_not() {
        let connections = connections();
        let (held, _) = connections.admit(address(0), LIMIT);
        assert!(held.start_long_poll("uid", 9));
        let (oldest, _) = connections.admit(address(0), LIMIT);
        let mut others: Vec<ConnectionGuard> =
            (1..MAX_UNVERIFIED).map(|number| connections.admit(address(number), LIMIT).0).collect();
        assert_eq!(oldest.wait_until_closed().now_or_never(), None);
        let (_new, surplus) = connections.admit(address(MAX_UNVERIFIED), LIMIT);
        assert_eq!(surplus, Some(ConnectionLimit::Total));
        assert_eq!(oldest.wait_until_closed().now_or_never(), Some(CloseReason::LimitReached));
        assert_eq!(held.wait_until_closed().now_or_never(), None);
        others.pop();
        let (_new, surplus) = connections.admit(address(MAX_UNVERIFIED), LIMIT);
        assert_eq!(surplus, None, "a dropped connection is removed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_times_out_at_its_last_deadline() {
        let (connection, _) = connections().admit(address(1), LIMIT);
        let start = Instant::now();
        let steps = async {
            tokio::time::sleep(LIMIT / 2).await;
            connection.reset_deadline(10 * LIMIT);
            tokio::time::sleep(2 * LIMIT).await;
            connection.reset_deadline(LIMIT);
        };
        let (closed, ()) = tokio::join!(connection.wait_until_closed(), steps);
        assert_eq!((closed, start.elapsed()), (CloseReason::TimedOut, LIMIT / 2 + 3 * LIMIT));
    }

    #[test]
    fn one_cluster_cannot_take_all_long_polls() {
        let connections = connections();
        let held = |cluster: &str| {
            let (slot, _) = connections.admit(address(1), LIMIT);
            slot.start_long_poll(cluster, usize::MAX).then_some(slot)
        };
        let mut slots: Vec<ConnectionGuard> = std::iter::from_fn(|| held("hostile")).collect();
        assert_eq!(slots.len(), MAX_LONG_POLLS_PER_CLUSTER);
        slots.extend((0..).map_while(|number| held(&number.to_string())));
        assert_eq!(slots.len(), MAX_LONG_POLLS);
        slots.pop();
        assert!(held("another").is_some());
        drop(slots);
        assert!(
            connections.lock().long_polls.is_empty() && connections.lock().unverified.is_empty()
        );
    }

    #[test]
    fn clients_cannot_take_the_long_polls_of_agents() {
        let connections = connections();
        let held = |cluster: &str| {
            let (slot, _) = connections.admit(address(1), LIMIT);
            slot.start_client_long_poll(cluster).then_some(slot)
        };
        let mut slots: Vec<ConnectionGuard> = std::iter::from_fn(|| held("uid")).collect();
        assert_eq!(slots.len(), MAX_CLIENT_LONG_POLLS_PER_CLUSTER);
        for number in 0..1000 {
            slots.extend(held(&number.to_string()));
        }
        assert_eq!(slots.len(), MAX_CLIENT_LONG_POLLS);
        let agents = (0..MAX_LONG_POLLS).map_while(|number| {
            let (slot, _) = connections.admit(address(1), LIMIT);
            slot.start_long_poll(&(number % 100).to_string(), usize::MAX).then_some(slot)
        });
        assert_eq!(agents.collect::<Vec<_>>().len(), MAX_LONG_POLLS);
        slots.pop();
        assert!(held("another").is_some());
    }

    #[test]
    fn a_small_cluster_gets_few_long_polls() {
        let connections = connections();
        let slots: Vec<ConnectionGuard> =
            (0..10).map(|_| connections.admit(address(1), LIMIT).0).collect();
        assert_eq!(slots.iter().filter(|slot| slot.start_long_poll("uid", 4)).count(), 4);
    }

    #[test]
    fn a_low_file_limit_allows_few_long_polls() {
        let slot = |files| Connections::new(files).admit(address(1), LIMIT).0;
        assert!(!slot(2 * MAX_UNVERIFIED).start_long_poll("uid", 9));
        assert!(slot(2 * MAX_UNVERIFIED + 2).start_long_poll("uid", 9));
    }
}
