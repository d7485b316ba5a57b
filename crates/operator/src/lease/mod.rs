//! Who leads: of several replicas one writes at a time, the holder of a Lease.
//!
//! Every replica watches, so that its caches are warm; only the leader decides and writes.
//! A replica that gains the Lease lists everything again before its first decision: the
//! leader before may have written until the end. A leader that stops
//! [winds down](crate::hand_over) before it releases the Lease, so that the next can take it
//! at once; one that cannot renew it ends before another may take it.
//!
//! ```text
//! look at the Lease ──► decide (pure) ──► take or renew it, or wait ──► again
//! ```

mod candidate;
mod decision;

use std::net::SocketAddr;
use std::time::Instant;

use tokio::sync::watch;

pub(crate) use candidate::Candidate;
pub use candidate::Lost;

/// How replicas agree on the one that leads.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// Who this replica is. No two may be the same.
    pub identity: Identity,
}

/// A replica: its name, and where agents reach it, if that is known.
///
/// Written into the Lease as `name_address`, so that every replica can send
/// agents to the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name, such as its pod's.
    pub name: String,
    /// Where agents reach it.
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

/// The address in a holder's identity.
fn address_of(holder: &str) -> Option<SocketAddr> {
    holder.rsplit_once('_')?.1.parse().ok()
}

/// How this replica stands now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Standing {
    /// Whether the Lease was looked at.
    known: bool,
    leads: bool,
    /// When the leader must have stopped, unless the Lease is renewed before.
    until: Option<Instant>,
    /// Where the leader is, if it is another replica that says so.
    leader: Option<SocketAddr>,
    term: Term,
    stops: bool,
    closed: bool,
}

/// How often this replica came to lead. What was listed in an earlier term may lack what the
/// leader before has written last, so decisions are made from lists of this term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term(u32);

impl Term {
    /// Later than all others.
    pub(crate) const LAST: Term = Term(u32::MAX);

    fn next(self) -> Term {
        Term(self.0.saturating_add(1))
    }
}

/// Whether this replica leads, and who else does. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Leadership(watch::Sender<Standing>);

impl Leadership {
    /// Without an election there is one replica, and it leads.
    pub(crate) fn always() -> Leadership {
        let standing = Standing { known: true, leads: true, ..Standing::default() };
        Leadership(watch::Sender::new(standing))
    }

    /// Before the Lease is looked at nobody knows.
    pub(crate) fn unknown() -> Leadership {
        Leadership(watch::Sender::new(Standing::default()))
    }

    /// Another replica leads.
    #[cfg(test)]
    pub(crate) fn elsewhere(leader: SocketAddr) -> Leadership {
        let leadership = Leadership::unknown();
        leadership.set(None, Some(leader));
        leadership
    }

    /// The Lease was gained, for long enough.
    #[cfg(test)]
    pub(crate) fn gain(&self) {
        self.set(Some(Instant::now() + decision::TERM), None);
    }

    /// Whether this replica may write. A leader that could not renew the Lease may not, also
    /// when it has slept since and nothing in it knows.
    pub(crate) fn leads(&self) -> bool {
        let standing = self.0.borrow();
        standing.leads && standing.until.is_none_or(|until| Instant::now() < until)
    }

    /// Whether this replica may begin something: it leads and does not stop.
    pub(crate) fn decides(&self) -> bool {
        self.leads() && !self.0.borrow().stops
    }

    /// Waits until this replica may write, and returns in which term.
    pub(crate) async fn until_it_leads(&self) -> Term {
        self.term_when(|standing| standing.leads).await
    }

    /// Waits until it is known who leads, and returns this replica's term.
    pub(crate) async fn until_it_is_known(&self) -> Term {
        self.term_when(|standing| standing.known).await
    }

    /// Waits until this replica comes to lead after `term`.
    pub(crate) async fn until_after(&self, term: Term) {
        self.term_when(|standing| standing.term > term).await;
    }

    /// Where the leader is, if it is another replica.
    pub(crate) fn leader(&self) -> Option<SocketAddr> {
        self.0.borrow().leader
    }

    /// From now on nothing new is begun.
    pub(crate) fn stop_deciding(&self) {
        self.0.send_modify(|standing| standing.stops = true);
    }

    /// From now on this replica does not lead, whatever becomes of the Lease.
    pub(crate) fn close(&self) {
        self.0.send_modify(|standing| {
            (standing.leads, standing.closed) = (false, true);
        });
    }

    /// Notes how the Lease was found: `held` by this replica until a time, or by the `leader`.
    fn set(&self, held: Option<Instant>, leader: Option<SocketAddr>) {
        self.0.send_if_modified(|standing| {
            let leads = held.is_some() && !standing.closed;
            let begins = leads && !standing.leads;
            let now = Standing {
                known: true,
                leads,
                until: held,
                leader,
                term: if begins { standing.term.next() } else { standing.term },
                ..*standing
            };
            let before = std::mem::replace(standing, now);
            // A renewal is no news.
            before != Standing { until: before.until, ..standing.clone() }
        });
    }

    async fn term_when(&self, found: impl FnMut(&Standing) -> bool) -> Term {
        let mut standing = self.0.subscribe();
        let term = standing.wait_for(found).await.map(|standing| standing.term);
        match term {
            Ok(term) => term,
            // The sender is ours, so it cannot be gone.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decision::{RENEW_WITHIN, RETRY, TERM};
    use super::*;
    use crate::client::LIMITS;
    use futures::FutureExt;
    use std::time::Duration;

    #[test]
    fn an_identity_tells_where_the_replica_is() {
        for address in ["10.0.0.1:8080", "[fd00::1]:8080"] {
            let identity =
                Identity { name: "operator_a".into(), address: Some(address.parse().unwrap()) };
            assert_eq!(address_of(&identity.to_holder()), identity.address);
        }
        let nowhere = Identity { name: "laptop_0f".into(), address: None };
        assert_eq!(address_of(&nowhere.to_holder()), None);
        assert_eq!(address_of("controller-manager-7d_5c1f9a"), None);
    }

    #[tokio::test]
    async fn a_leader_that_could_not_renew_the_lease_writes_no_more_though_nobody_tells_it() {
        let leadership = Leadership::unknown();
        assert!(!leadership.leads());
        leadership.set(Some(Instant::now() + Duration::from_secs(60)), None);
        assert!(leadership.leads() && leadership.decides());
        leadership.set(Instant::now().checked_sub(Duration::from_millis(1)), None);
        assert!(!leadership.leads() && !leadership.decides());
    }

    #[tokio::test]
    async fn a_leader_that_stops_begins_nothing_and_may_finish_its_writes() {
        let leadership = Leadership::always();
        leadership.stop_deciding();
        assert!(leadership.leads() && !leadership.decides());
        leadership.close();
        assert!(!leadership.leads());
        leadership.set(Some(Instant::now() + Duration::from_secs(60)), None);
        assert!(!leadership.leads(), "a renewal under way cannot open it again");
    }

    #[tokio::test]
    async fn a_term_begins_with_the_lease_and_not_with_its_renewal() {
        let leadership = Leadership::unknown();
        let later = || Some(Instant::now() + Duration::from_secs(60));
        leadership.set(None, None);
        let before = leadership.until_it_is_known().await;
        assert!(leadership.until_after(before).now_or_never().is_none());
        leadership.set(later(), None);
        leadership.until_after(before).await;
        let term = leadership.until_it_leads().await;
        assert!(term > before);
        leadership.set(later(), None);
        assert_eq!(leadership.until_it_leads().await, term);
    }

    #[test]
    fn writes_end_before_another_replica_may_lead() {
        let margin = TERM.checked_sub(RENEW_WITHIN).unwrap();
        assert!(LIMITS.object < margin);
        // Silence costs one attempt to renew, and not the Lease.
        assert!(RETRY * 2 + LIMITS.object < RENEW_WITHIN);
    }
}
