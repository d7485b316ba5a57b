//! Detects that a broker has lost its connection to a lead in another Kubernetes cluster.
//!
//! Flux's broker connects again by itself, for as long as it runs, and stays part of the instance in
//! its own opinion. If its rank was taken back, or the address does not answer any more, that helps
//! nothing: the agent has to ask for permission again, and to try the other addresses.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::connection;

/// How long a connection may be missing.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Before the first one: a broker on a busy node takes a while to start.
    first: Duration,
    /// After it: a broker that connects again needs a few attempts.
    later: Duration,
    /// How often it is checked.
    interval: Duration,
}

const PATIENCE: Patience = Patience {
    first: Duration::from_secs(60),
    later: Duration::from_secs(10),
    interval: Duration::from_secs(1),
};

/// Returns when no connection to `peer` has existed for a while; `false` if the broker has exited
/// before that.
pub fn wait_until_lost(peer: SocketAddr, running: &AtomicBool) -> bool {
    // Without the kernel's list nothing is known.
    wait_with(PATIENCE, running, || connection::exists(peer) != Some(false))
}

fn wait_with(patience: Patience, running: &AtomicBool, is_connected: impl Fn() -> bool) -> bool {
    let (mut last_connected, mut limit) = (Instant::now(), patience.first);
    while running.load(Ordering::Relaxed) {
        if is_connected() {
            (last_connected, limit) = (Instant::now(), patience.later);
        }
        if last_connected.elapsed() > limit {
            return true;
        }
        thread::sleep(patience.interval);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_connection_that_stays_away_is_lost_and_a_broker_that_exits_ends_the_watch() {
        let running = AtomicBool::new(true);
        let interval = Duration::from_millis(1);
        let never = Duration::from_secs(3600);
        let checks = Cell::new(0);
        let connects_twice = || checks.replace(checks.get() + 1) < 2;
        let patience = Patience { first: never, later: Duration::ZERO, interval };
        assert!(wait_with(patience, &running, connects_twice), "it has connected before");
        let patience = Patience { first: Duration::ZERO, later: never, interval };
        assert!(wait_with(patience, &running, || false), "it never connected");
        running.store(false, Ordering::Relaxed);
        assert!(!wait_with(patience, &running, || false), "the broker has exited");
    }
}
