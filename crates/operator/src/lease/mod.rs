//! Leader election: of several replicas only one, the holder of a Lease, writes at a time.
//!
//! Every replica watches, so that its caches are warm; only the leader decides and writes. A
//! replica that acquires the Lease lists everything again before its first decision, because the
//! previous leader may have written until the last moment. A leader that stops [finishes its
//! work](crate::hand_over) before it releases the Lease, so that the next leader can acquire it at
//! once. A leader that cannot renew the Lease exits before another replica can acquire it.
//!
//! ```text
//! read the Lease ──► decide (pure) ──► acquire or renew it, or wait ──► repeat
//! ```

mod candidate;
mod decision;

use std::net::SocketAddr;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;

pub(crate) use candidate::Candidate;
pub use candidate::LeaseLost;

/// How replicas elect the leader.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// The identity of this replica; unique among the replicas.
    pub identity: Identity,
}

/// The identity of a replica: its name, and the address where agents reach it, if known.
///
/// It is written into the Lease as `name_address`, so that all replicas can redirect agents to the
/// leader's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name, usually that of its pod.
    pub name: String,
    /// The address where agents reach it.
    pub address: Option<SocketAddr>,
}

impl Identity {
    fn to_holder(&self) -> String {
        match self.address {
            Some(address) => format!("{}_{address}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Parses the address in a holder's identity.
fn parse_address(holder: &str) -> Option<SocketAddr> {
    holder.rsplit_once('_')?.1.parse().ok()
}

/// What this replica knows about the election.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LeadershipState {
    /// Whether the Lease has been read.
    is_known: bool,
    is_leader: bool,
    /// When this replica stops being the leader, unless it renews the Lease before.
    until: Option<Instant>,
    /// The address of the leader, if it is another replica and has published it.
    leader: Option<SocketAddr>,
    term: Term,
    /// When this replica last became leader; `None` for one that always is.
    since: Option<Timestamp>,
    is_stopping: bool,
    is_closed: bool,
}

/// How often this replica has become leader. A list from an earlier term may lack the last writes
/// of the previous leader, so decisions are only made from lists of the current term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term(u32);

impl Term {
    /// Later than all other terms.
    pub(crate) const LAST: Term = Term(u32::MAX);

    fn next(self) -> Term {
        Term(self.0.saturating_add(1))
    }
}

/// Whether this replica is the leader, and if not, the address of the leader. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Leadership(watch::Sender<LeadershipState>);

impl Leadership {
    /// For an operator without election: there is one replica, and it is the leader.
    pub(crate) fn always() -> Leadership {
        let standing =
            LeadershipState { is_known: true, is_leader: true, ..LeadershipState::default() };
        Leadership(watch::Sender::new(standing))
    }

    /// The leader is not known until the Lease has been read.
    pub(crate) fn unknown() -> Leadership {
        Leadership(watch::Sender::new(LeadershipState::default()))
    }

    /// Another replica is the leader.
    #[cfg(test)]
    pub(crate) fn elsewhere(leader: SocketAddr) -> Leadership {
        let leadership = Leadership::unknown();
        leadership.set(None, Some(leader));
        leadership
    }

    /// Acquires the Lease, for longer than a test takes.
    #[cfg(test)]
    pub(crate) fn acquire(&self) {
        self.set(Some(Instant::now() + decision::LEASE_DURATION), None);
    }

    /// Whether this replica may write. A leader whose Lease was not renewed in time may not, even
    /// if the process was suspended and nothing in it has noticed yet.
    pub(crate) fn is_leader(&self) -> bool {
        let state = self.0.borrow();
        state.is_leader && state.until.is_none_or(|until| Instant::now() < until)
    }

    /// Whether this replica may start new work: it is the leader and is not stopping.
    pub(crate) fn can_start_work(&self) -> bool {
        self.is_leader() && !self.0.borrow().is_stopping
    }

    /// Waits until this replica is the leader, and returns its term.
    pub(crate) async fn wait_until_leader(&self) -> Term {
        self.wait_for_state(|standing| standing.is_leader).await
    }

    /// Waits until the leader is known, and returns this replica's term.
    pub(crate) async fn wait_until_known(&self) -> Term {
        self.wait_for_state(|standing| standing.is_known).await
    }

    /// Waits until this replica becomes leader again, after `term`.
    pub(crate) async fn wait_for_term_after(&self, term: Term) {
        self.wait_for_state(|standing| standing.term > term).await;
    }

    /// When this replica last became leader, if there is an election.
    pub(crate) fn leader_since(&self) -> Option<Timestamp> {
        self.0.borrow().since
    }

    /// The address of the leader, if it is another replica.
    pub(crate) fn leader(&self) -> Option<SocketAddr> {
        self.0.borrow().leader
    }

    /// Starts no new work from now on.
    pub(crate) fn stop_deciding(&self) {
        self.0.send_modify(|standing| standing.is_stopping = true);
    }

    /// This replica is not the leader from now on, even if the Lease is renewed.
    pub(crate) fn close(&self) {
        self.0.send_modify(|standing| {
            (standing.is_leader, standing.is_closed) = (false, true);
        });
    }

    /// Records the state of the Lease: `held` by this replica until a time, or by the `leader`.
    fn set(&self, held: Option<Instant>, leader: Option<SocketAddr>) {
        self.0.send_if_modified(|standing| {
            let leads = held.is_some() && !standing.is_closed;
            let begins = leads && !standing.is_leader;
            let now = LeadershipState {
                is_known: true,
                is_leader: leads,
                until: held,
                leader,
                term: if begins { standing.term.next() } else { standing.term },
                since: if begins { Some(Timestamp::now()) } else { standing.since },
                ..*standing
            };
            let before = std::mem::replace(standing, now);
            // Subscribers are not notified of a mere renewal.
            before != LeadershipState { until: before.until, ..standing.clone() }
        });
    }

    async fn wait_for_state(&self, is_reached: impl FnMut(&LeadershipState) -> bool) -> Term {
        let mut standing = self.0.subscribe();
        let term = standing.wait_for(is_reached).await.map(|standing| standing.term);
        match term {
            Ok(term) => term,
            // We own the sender, so the channel is open.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decision::{LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD};
    use super::*;
    use crate::client::REQUEST_TIMEOUTS;
    use futures::FutureExt;
    use std::time::Duration;

    #[test]
    fn an_identity_contains_the_address_of_the_replica() {
        for address in ["10.0.0.1:8080", "[fd00::1]:8080"] {
            let identity =
                Identity { name: "operator_a".into(), address: Some(address.parse().unwrap()) };
            assert_eq!(parse_address(&identity.to_holder()), identity.address);
        }
        let nowhere = Identity { name: "laptop_0f".into(), address: None };
        assert_eq!(parse_address(&nowhere.to_holder()), None);
        assert_eq!(parse_address("controller-manager-7d_5c1f9a"), None);
    }

    #[tokio::test]
    async fn a_leader_that_could_not_renew_the_lease_cannot_write_even_without_notification() {
        let leadership = Leadership::unknown();
        assert!(!leadership.is_leader());
        leadership.set(Some(Instant::now() + Duration::from_secs(60)), None);
        assert!(leadership.is_leader() && leadership.can_start_work());
        leadership.set(Instant::now().checked_sub(Duration::from_millis(1)), None);
        assert!(!leadership.is_leader() && !leadership.can_start_work());
    }

    #[tokio::test]
    async fn a_stopping_leader_starts_no_work_but_may_finish_its_writes() {
        let leadership = Leadership::always();
        leadership.stop_deciding();
        assert!(leadership.is_leader() && !leadership.can_start_work());
        leadership.close();
        assert!(!leadership.is_leader());
        leadership.set(Some(Instant::now() + Duration::from_secs(60)), None);
        assert!(!leadership.is_leader(), "a renewal that was already sent cannot reopen it");
    }

    #[tokio::test]
    async fn acquiring_the_lease_starts_a_term_and_renewing_it_does_not() {
        let leadership = Leadership::unknown();
        let later = || Some(Instant::now() + Duration::from_secs(60));
        leadership.set(None, None);
        let before = leadership.wait_until_known().await;
        assert!(leadership.wait_for_term_after(before).now_or_never().is_none());
        leadership.set(later(), None);
        leadership.wait_for_term_after(before).await;
        let term = leadership.wait_until_leader().await;
        assert!(term > before);
        leadership.set(later(), None);
        assert_eq!(leadership.wait_until_leader().await, term);
    }

    #[test]
    fn writes_time_out_before_another_replica_can_lead() {
        let margin = LEASE_DURATION.checked_sub(RENEW_DEADLINE).unwrap();
        assert!(REQUEST_TIMEOUTS.object < margin);
        // An unresponsive API server costs one attempt to renew, and not the Lease.
        assert!(RETRY_PERIOD * 2 + REQUEST_TIMEOUTS.object < RENEW_DEADLINE);
    }
}
