//! Detects that the lead has moved from the address a broker was configured with.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::connection;
use crate::lead_search::LeadSearch;

/// The interval between two checks of the connections.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The delay until the next search after the lead was found at the configured address: Flux
/// reconnects by itself, and ranks further down the tree have no connection to the lead at all.
const SEARCH_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Watches the connection to `lead` while `running`. While there is none, searches for the lead
/// with `find`. Returns the lead's address if it has changed.
pub fn watch(
    lead: SocketAddr,
    running: &AtomicBool,
    find: impl Fn(Box<dyn Fn(IpAddr) + Send + Sync>) -> LeadSearch,
) -> Option<IpAddr> {
    watch_with(lead, running, &|| connection::exists(lead), POLL_INTERVAL, find)
}

fn watch_with(
    lead: SocketAddr,
    running: &AtomicBool,
    connected: &dyn Fn() -> Option<bool>,
    interval: Duration,
    find: impl Fn(Box<dyn Fn(IpAddr) + Send + Sync>) -> LeadSearch,
) -> Option<IpAddr> {
    let mut delay = SEARCH_BACKOFF;
    let mut pause = interval;
    while running.load(Ordering::Relaxed) {
        thread::sleep(pause);
        pause = interval;
        // Where this is unknown, Flux itself has to detect it.
        if connected()? {
            delay.reset();
            continue;
        }
        let (sender, receiver) = mpsc::channel();
        let search = find(Box::new(move |address| {
            // Both sources may answer; the first answer is enough.
            let _ = sender.send(address);
        }));
        // The lead may be missing for a long time, and may come back at the same address.
        let found = loop {
            match receiver.recv_timeout(interval) {
                Ok(address) => break Some(address),
                Err(_) if connected()? || !running.load(Ordering::Relaxed) => break None,
                Err(_) => {}
            }
        };
        search.cancel();
        match found {
            // In a dual-stack cluster the lead has two addresses; compare those of one family.
            Some(address) if address.is_ipv4() == lead.is_ipv4() && address != lead.ip() => {
                return Some(address);
            }
            Some(_) => pause = delay.next_delay(),
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    const FAST: Duration = Duration::from_millis(1);

    fn lead() -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 8050))
    }

    #[test]
    fn a_moved_lead_is_found_at_its_new_address() {
        let searches = Arc::new(AtomicU32::new(0));
        let running = AtomicBool::new(true);
        // The first search finds it at the configured address.
        let find = |found: Box<dyn Fn(IpAddr) + Send + Sync>| {
            let times = searches.fetch_add(1, Ordering::Relaxed);
            found(IpAddr::from([10, 0, 0, if times == 0 { 1 } else { 2 }]));
            LeadSearch::cancelled()
        };
        let moved = watch_with(lead(), &running, &|| Some(false), FAST, find);
        assert_eq!(moved, Some([10, 0, 0, 2].into()));
        assert_eq!(searches.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_lead_is_not_searched_for_while_there_is_a_connection() {
        let running = AtomicBool::new(true);
        let looks = AtomicU32::new(0);
        let connected = || {
            running.store(looks.fetch_add(1, Ordering::Relaxed) < 20, Ordering::Relaxed);
            Some(true)
        };
        let find = |_: Box<dyn Fn(IpAddr) + Send + Sync>| panic!("the lead is searched for");
        assert_eq!(watch_with(lead(), &running, &connected, FAST, find), None);
        assert_eq!(watch_with(lead(), &AtomicBool::new(true), &|| None, FAST, find), None);
    }

    #[test]
    fn a_search_is_cancelled_when_flux_has_reconnected() {
        let running = AtomicBool::new(true);
        let (looks, searches) = (AtomicU32::new(0), AtomicU32::new(0));
        let connected = || {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            running.store(look < 20, Ordering::Relaxed);
            Some(look > 3)
        };
        let find = |_: Box<dyn Fn(IpAddr) + Send + Sync>| {
            searches.fetch_add(1, Ordering::Relaxed);
            LeadSearch::cancelled()
        };
        assert_eq!(watch_with(lead(), &running, &connected, FAST, find), None);
        assert_eq!(searches.load(Ordering::Relaxed), 1);
    }
}
