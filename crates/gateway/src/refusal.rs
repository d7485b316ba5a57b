//! Why connections are refused, and when that is reported.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lender::LenderId;
use crate::lock::lock;

/// The interval between two reports about one lease.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RefusalReason {
    /// The client speaks none of the protocols, or its request is not in the name of the invitation.
    Garbage,
    /// The client did not complete its first bytes, or its handshake, in time.
    Silent,
    /// The lead did not accept the client's key.
    WrongKey,
    /// As many brokers are connected as the lease has ranks, or too many of all leases, or too many
    /// handshakes or requests are under way.
    TooMany,
    /// The client's address is not in the lender's sourceRanges.
    Source,
    /// There is no lead at the moment.
    NoLead,
    /// No connection to the lead could be made, or what answers there is not a lead.
    LeadUnreachable,
    /// No connection to the operator could be made, for an agent's request.
    OperatorUnreachable,
}

impl RefusalReason {
    /// All reasons.
    pub(crate) const ALL: [RefusalReason; 8] = [
        RefusalReason::Garbage,
        RefusalReason::Silent,
        RefusalReason::WrongKey,
        RefusalReason::TooMany,
        RefusalReason::Source,
        RefusalReason::NoLead,
        RefusalReason::LeadUnreachable,
        RefusalReason::OperatorUnreachable,
    ];

    /// The reason in logs, Events and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RefusalReason::Garbage => "Garbage",
            RefusalReason::Silent => "Silent",
            RefusalReason::WrongKey => "WrongKey",
            RefusalReason::TooMany => "TooMany",
            RefusalReason::Source => "Source",
            RefusalReason::NoLead => "NoLead",
            RefusalReason::LeadUnreachable => "LeadUnreachable",
            RefusalReason::OperatorUnreachable => "OperatorUnreachable",
        }
    }
}

/// A lease, as it is named in reports and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseName {
    pub(crate) lender: LenderId,
    pub(crate) invitation: String,
}

/// The refused connections of one lease since the last report about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusalReport {
    pub(crate) lease: LeaseName,
    /// By reason, in the order of [`RefusalReason::ALL`].
    pub(crate) counts: [u64; RefusalReason::ALL.len()],
    /// The address of the last one.
    pub(crate) last: IpAddr,
}

impl RefusalReport {
    /// The number of refused connections.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The numbers by reason: `2 Garbage, 1 TooMany`.
    pub(crate) fn reasons(&self) -> String {
        let counted = RefusalReason::ALL.iter().zip(self.counts).filter(|(_, count)| *count > 0);
        let parts: Vec<String> =
            counted.map(|(reason, count)| format!("{count} {}", reason.as_str())).collect();
        parts.join(", ")
    }
}

impl fmt::Display for RefusalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let noun = if total == 1 { "connection" } else { "connections" };
        let (invitation, reasons, last) = (&self.lease.invitation, self.reasons(), self.last);
        write!(
            f,
            "refused {total} {noun} to the port of invitation {invitation:?}: {reasons}; \
             the last came from {last}"
        )
    }
}

/// Refused connections that are to be reported: the first of a lease at once, further ones once per
/// minute. Its size is bounded by the number of leases. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Refusals(Arc<Inner>);

#[derive(Default)]
struct Inner {
    pending: Mutex<HashMap<LeaseName, Pending>>,
    recorded: Notify,
}

struct Pending {
    counts: [u64; RefusalReason::ALL.len()],
    last: IpAddr,
    /// When a report is due, if there is something to report then.
    due: Instant,
}

impl Refusals {
    /// Records a refused connection.
    pub(crate) fn record(&self, lease: &LeaseName, reason: RefusalReason, peer: IpAddr) {
        let mut pending = lock(&self.0.pending);
        let empty = || Pending { counts: Default::default(), last: peer, due: Instant::now() };
        // Usually it is there, and its name need not be cloned.
        let entry = match pending.get_mut(lease) {
            Some(entry) => entry,
            None => pending.entry(lease.clone()).or_insert_with(empty),
        };
        entry.counts[reason as usize] += 1;
        entry.last = peer.to_canonical();
        drop(pending);
        self.0.recorded.notify_one();
    }

    /// Forgets the leases that do not exist any more.
    pub(crate) fn retain(&self, exists: impl Fn(&LeaseName) -> bool) {
        lock(&self.0.pending).retain(|lease, _| exists(lease));
    }

    /// Waits until there is something to report, and returns it.
    pub(crate) async fn wait(&self) -> Vec<RefusalReport> {
        loop {
            let (due, next) = self.take_due(Instant::now());
            if !due.is_empty() {
                return due;
            }
            let next = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.0.recorded.notified() => {}
                () = next => {}
            }
        }
    }

    /// The reports that are due, and when the next one may be.
    fn take_due(&self, now: Instant) -> (Vec<RefusalReport>, Option<Instant>) {
        let mut reports = Vec::new();
        let mut pending = lock(&self.0.pending);
        pending.retain(|lease, entry| {
            if entry.due > now {
                return true;
            }
            let counts = std::mem::take(&mut entry.counts);
            let report = RefusalReport { lease: lease.clone(), counts, last: entry.last };
            if report.total() == 0 {
                return false;
            }
            reports.push(report);
            entry.due = now + REPORT_INTERVAL;
            true
        });
        (reports, pending.values().map(|entry| entry.due).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn lease(name: &str) -> LeaseName {
        let lender =
            LenderId { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}") };
        LeaseName { lender, invitation: "x".into() }
    }

    fn peer(last: u8) -> IpAddr {
        [203, 0, 113, last].into()
    }

    #[test]
    fn every_reason_has_its_own_place() {
        for (place, reason) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place, "{}", reason.as_str());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_reported_at_once_and_others_once_per_minute() {
        let refusals = Refusals::default();
        let start = Instant::now();
        refusals.record(&lease("a"), RefusalReason::Garbage, peer(1));
        let first = refusals.wait().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(
            first[0].to_string(),
            "refused 1 connection to the port of invitation \"x\": 1 Garbage; \
             the last came from 203.0.113.1"
        );
        refusals.record(&lease("a"), RefusalReason::TooMany, peer(1));
        refusals.record(&lease("a"), RefusalReason::Garbage, peer(1));
        refusals.record(&lease("a"), RefusalReason::Garbage, "::ffff:203.0.113.7".parse().unwrap());
        let second = refusals.wait().await;
        assert_eq!(start.elapsed(), REPORT_INTERVAL);
        assert_eq!(
            second[0].to_string(),
            "refused 3 connections to the port of invitation \"x\": 2 Garbage, 1 TooMany; \
             the last came from 203.0.113.7"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_does_not_delay_the_report_of_another() {
        let refusals = Refusals::default();
        refusals.record(&lease("a"), RefusalReason::Garbage, peer(1));
        assert_eq!(refusals.wait().await.len(), 1);
        refusals.record(&lease("a"), RefusalReason::Garbage, peer(1));
        refusals.record(&lease("b"), RefusalReason::Source, peer(2));
        let start = Instant::now();
        assert_eq!(refusals.wait().await[0].lease, lease("b"));
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_and_deleted_leases_are_forgotten() {
        let refusals = Refusals::default();
        for name in ["a", "b"] {
            refusals.record(&lease(name), RefusalReason::Silent, peer(1));
        }
        assert_eq!(refusals.wait().await.len(), 2);
        refusals.retain(|name| *name == lease("a"));
        assert_eq!(lock(&refusals.0.pending).len(), 1);
        tokio::time::advance(REPORT_INTERVAL).await;
        assert_eq!(refusals.wait().now_or_never(), None);
        assert_eq!(lock(&refusals.0.pending).len(), 0);
    }
}
