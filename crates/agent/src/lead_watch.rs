//! Noticing that the lead is somewhere else than a broker was told.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::connection;
use crate::delay::Delay;
use crate::lead::Lead;

/// Between two looks at the connections.
const LOOK: Duration = Duration::from_secs(1);

/// How many looks without a connection are too many. A lead that is only busy
/// keeps its connections, and Flux opens a lost one again within a second.
const PATIENCE: u32 = 3;

/// Between two times that others are asked. Ranks far down the tree have no
/// connection to the lead at all; they should not ask for ever and ever.
const ASK: Delay = Delay::new(Duration::from_secs(1), Duration::from_secs(30));

/// Watches the connection to `lead` while `running`, and asks with `find` where
/// the lead is when there is none. Returns the address if it is another one.
pub fn watch(
    lead: SocketAddr,
    running: &AtomicBool,
    find: impl Fn(Box<dyn Fn(IpAddr) + Send + Sync>) -> Lead,
) -> Option<IpAddr> {
    watch_with(lead, running, &|| connection::exists(lead), LOOK, find)
}

fn watch_with(
    lead: SocketAddr,
    running: &AtomicBool,
    connected: &dyn Fn() -> Option<bool>,
    look: Duration,
    find: impl Fn(Box<dyn Fn(IpAddr) + Send + Sync>) -> Lead,
) -> Option<IpAddr> {
    let mut delay = ASK;
    let mut missed = 0;
    while running.load(Ordering::Relaxed) {
        thread::sleep(look);
        match connected() {
            Some(true) => {
                missed = 0;
                delay.reset();
            }
            Some(false) => missed += 1,
            // Where this cannot be known, Flux has to notice by itself.
            None => return None,
        }
        if missed < PATIENCE {
            continue;
        }
        let (sender, receiver) = mpsc::channel();
        let search = find(Box::new(move |address| {
            // Two may answer, and one is enough.
            let _ = sender.send(address);
        }));
        let found = receiver.recv_timeout(delay.grow());
        search.end();
        match found {
            Ok(address) if address != lead.ip() => return Some(address),
            _ => missed = 0,
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
    fn a_lead_that_moved_is_found_where_it_is() {
        let asked = Arc::new(AtomicU32::new(0));
        let running = AtomicBool::new(true);
        // The first answer is old news.
        let find = |found: Box<dyn Fn(IpAddr) + Send + Sync>| {
            let times = asked.fetch_add(1, Ordering::Relaxed);
            found(IpAddr::from([10, 0, 0, if times == 0 { 1 } else { 2 }]));
            Lead::ended()
        };
        let moved = watch_with(lead(), &running, &|| Some(false), FAST, find);
        assert_eq!(moved, Some([10, 0, 0, 2].into()));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn nobody_is_asked_while_there_is_a_connection() {
        let running = AtomicBool::new(true);
        let looks = AtomicU32::new(0);
        let connected = || {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            running.store(look < 20, Ordering::Relaxed);
            // Missing at times, but never for long.
            Some(look.is_multiple_of(PATIENCE))
        };
        let find = |_: Box<dyn Fn(IpAddr) + Send + Sync>| panic!("nobody should ask");
        assert_eq!(watch_with(lead(), &running, &connected, FAST, find), None);
        assert_eq!(watch_with(lead(), &AtomicBool::new(true), &|| None, FAST, find), None);
    }
}
