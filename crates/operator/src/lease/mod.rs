//! Who leads: of several replicas one writes at a time, the holder of a Lease.
//!
//! Every replica watches, so that its caches are warm; only the leader passes.
//! Whoever gains the Lease looks at everything again. A leader that stops gives
//! the Lease back, so that the next takes it at once; one that cannot renew it
//! ends before anybody else may take it.
//!
//! ```text
//! look at the Lease ──► decide (pure) ──► take or renew it, or wait ──► again
//! ```

mod candidate;
mod decision;

use std::net::SocketAddr;

use futures::{Stream, StreamExt};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

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
    leads: bool,
    /// Where the leader is, if it is another replica that says so.
    leader: Option<SocketAddr>,
}

/// Whether this replica leads, and who else does. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Leadership(watch::Receiver<Standing>);

impl Leadership {
    /// Without an election there is one replica, and it leads.
    pub(crate) fn always() -> Leadership {
        Leadership(watch::channel(Standing { leads: true, leader: None }).1)
    }

    /// Another replica leads.
    #[cfg(test)]
    pub(crate) fn elsewhere(leader: SocketAddr) -> Leadership {
        Leadership(watch::channel(Standing { leads: false, leader: Some(leader) }).1)
    }

    /// Whether this replica may write.
    pub(crate) fn leads(&self) -> bool {
        self.0.borrow().leads
    }

    /// Waits until this replica may write.
    pub(crate) async fn until_it_leads(&self) {
        // Who cannot be told any more is about to end.
        if self.0.clone().wait_for(|standing| standing.leads).await.is_err() {
            std::future::pending().await
        }
    }

    /// Where the leader is, if it is another replica.
    pub(crate) fn leader(&self) -> Option<SocketAddr> {
        self.0.borrow().leader
    }

    /// An item whenever this replica comes to lead.
    pub(crate) fn gained(&self) -> impl Stream<Item = ()> + Send + 'static {
        WatchStream::new(self.0.clone())
            .filter_map(|standing| std::future::ready(standing.leads.then_some(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
