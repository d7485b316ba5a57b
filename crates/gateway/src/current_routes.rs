//! Keeps the routes current: when a MiniCluster changes, and when an invitation expires.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;

use crate::lender::Lender;
use crate::route::{Routes, routes};

/// The namespace and the name of a MiniCluster.
pub(crate) type Key = (String, String);

/// All lenders.
pub(crate) type Lenders = BTreeMap<Key, Lender>;

/// The longest time between two readings of the clock, which can be set while we wait.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Computes the routes until the future is dropped, or the lenders' sender is. Needs no API server:
/// invitations expire even if it is unreachable.
pub(crate) async fn keep_routes(
    mut lenders: watch::Receiver<Lenders>,
    published: watch::Sender<Arc<Routes>>,
    clock: impl Fn() -> Timestamp,
) {
    loop {
        let current = routes(lenders.borrow_and_update().values(), clock());
        let next_expiry = current.next_expiry();
        published.send_if_modified(|before| {
            let changed = **before != current;
            if changed {
                *before = Arc::new(current);
            }
            changed
        });
        let wait = async {
            match next_expiry {
                Some(expiry) => tokio::time::sleep(wait_until(expiry, clock())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wait => {}
            changed = lenders.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// How long to wait for an expiry. At least a little, so that a clock with few digits is not asked
/// again and again.
fn wait_until(expiry: Timestamp, now: Timestamp) -> Duration {
    let left = Duration::try_from(expiry.duration_since(now)).unwrap_or_default();
    left.clamp(Duration::from_millis(1), MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, lender};
    use std::sync::atomic::{AtomicI64, Ordering};

    /// The ports, once they are these.
    async fn wait_for_ports(routes: &mut watch::Receiver<Arc<Routes>>, ports: &[u16]) {
        let are = |routes: &Arc<Routes>| routes.by_port.keys().copied().eq(ports.iter().copied());
        routes.wait_for(are).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_route_is_removed_when_it_expires_although_nothing_else_happens() {
        let start = tokio::time::Instant::now();
        let clock = move || at(start.elapsed().as_secs() as i64);
        let (lenders, observed) = watch::channel(Lenders::new());
        let (published, mut routes) = watch::channel(Arc::default());
        tokio::spawn(keep_routes(observed, published, clock));
        let one = lender("a", &[(9001, 0, 100), (9002, 0, 3600)]);
        lenders.send_modify(|all| drop(all.insert(("ns".into(), "a".into()), one)));
        wait_for_ports(&mut routes, &[9001, 9002]).await;
        wait_for_ports(&mut routes, &[9002]).await;
        assert_eq!(start.elapsed().as_secs(), 100);
        wait_for_ports(&mut routes, &[]).await;
        assert_eq!(start.elapsed().as_secs(), 3600);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_forward_is_noticed_within_seconds() {
        let now = Arc::new(AtomicI64::new(0));
        let read = Arc::clone(&now);
        let (lenders, observed) = watch::channel(Lenders::new());
        let (published, mut routes) = watch::channel(Arc::default());
        tokio::spawn(keep_routes(observed, published, move || at(read.load(Ordering::SeqCst))));
        let one = lender("a", &[(9001, 0, 3600)]);
        lenders.send_modify(|all| drop(all.insert(("ns".into(), "a".into()), one)));
        wait_for_ports(&mut routes, &[9001]).await;
        let start = tokio::time::Instant::now();
        now.store(4000, Ordering::SeqCst);
        wait_for_ports(&mut routes, &[]).await;
        assert!(start.elapsed() <= MAX_WAIT);
    }
}
