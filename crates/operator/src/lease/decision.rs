//! Decides what to do with a Lease at a given time. Pure.
//!
//! The clocks of two machines are never compared: a Lease has expired once this replica has
//! observed it unchanged for its whole duration. Kubernetes' own leader election does the same.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

/// How long a Lease is valid after a renewal.
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(15);

/// A leader that has not renewed the Lease for this long gives up. The process must exit before
/// another replica can acquire the Lease.
pub(super) const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// How often a leader renews the Lease, and how soon a failed request is retried. These three
/// values are the defaults of Kubernetes' own components.
pub(super) const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// A Lease, and since when it has been observed unchanged.
#[derive(Clone, Debug)]
pub(super) struct ObservedLease {
    pub(super) spec: LeaseSpec,
    since: Instant,
}

impl ObservedLease {
    /// Observes a Lease now; `before` is the previous observation.
    pub(super) fn observe(
        before: Option<ObservedLease>,
        spec: LeaseSpec,
        now: Instant,
    ) -> ObservedLease {
        match before {
            Some(before) if before.spec == spec => before,
            _ => ObservedLease { spec, since: now },
        }
    }

    /// The holder, if there is one.
    pub(super) fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    fn expires_at(&self) -> Instant {
        let seconds = self.spec.lease_duration_seconds.unwrap_or_default();
        self.since + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }
}

/// What a replica does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseAction {
    /// Acquire or renew the Lease.
    Acquire,
    /// Wait until this time, unless the Lease changes first.
    Wait(Instant),
}

/// What the replica `me` does with the observed Lease, if there is one.
pub(super) fn decide(me: &str, observed: Option<&ObservedLease>, now: Instant) -> LeaseAction {
    let Some(observed) = observed else { return LeaseAction::Acquire };
    let time = match observed.holder() {
        None => return LeaseAction::Acquire,
        Some(holder) if holder == me => observed.since + RETRY_PERIOD,
        Some(_) => observed.expires_at(),
    };
    if now >= time { LeaseAction::Acquire } else { LeaseAction::Wait(time) }
}

/// The spec with which `me` acquires or renews the Lease.
pub(super) fn acquired_spec(me: &str, before: Option<&LeaseSpec>, now: Timestamp) -> LeaseSpec {
    let before = before.cloned().unwrap_or_default();
    let mine = before.holder_identity.as_deref() == Some(me);
    let changes = before.lease_transitions.unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(LEASE_DURATION.as_secs() as i32),
        acquire_time: if mine { before.acquire_time } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if mine { changes } else { changes.saturating_add(1) }),
        ..LeaseSpec::default()
    }
}

/// The spec with which a holder that stops releases the Lease.
pub(super) fn released_spec(before: &LeaseSpec) -> LeaseSpec {
    LeaseSpec { lease_transitions: before.lease_transitions, ..LeaseSpec::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn observed(spec: LeaseSpec, since: Instant) -> ObservedLease {
        ObservedLease::observe(None, spec, since)
    }

    #[test]
    fn a_lease_without_a_holder_is_acquired_at_once() {
        let now = Instant::now();
        assert_eq!(decide("me", None, now), LeaseAction::Acquire);
        assert_eq!(
            decide("me", Some(&observed(LeaseSpec::default(), now)), now),
            LeaseAction::Acquire
        );
        let left = released_spec(&acquired_spec("other", None, at(0)));
        assert_eq!(decide("me", Some(&observed(left, now)), now), LeaseAction::Acquire);
    }

    #[test]
    fn anothers_lease_is_acquired_only_after_its_whole_duration_on_our_clock() {
        let now = Instant::now();
        // The time on the writer's clock does not matter.
        let lease = observed(acquired_spec("other", None, at(0)), now);
        assert_eq!(decide("me", Some(&lease), now), LeaseAction::Wait(now + LEASE_DURATION));
        let almost = now + LEASE_DURATION - Duration::from_millis(1);
        assert_eq!(decide("me", Some(&lease), almost), LeaseAction::Wait(now + LEASE_DURATION));
        assert_eq!(decide("me", Some(&lease), now + LEASE_DURATION), LeaseAction::Acquire);
    }

    #[test]
    fn a_renewal_restarts_the_duration_and_another_read_does_not() {
        let now = Instant::now();
        let first = acquired_spec("other", None, at(0));
        let lease = observed(first.clone(), now);
        let later = now + LEASE_DURATION / 2;
        let same = ObservedLease::observe(Some(lease.clone()), first.clone(), later);
        assert_eq!(decide("me", Some(&same), later), LeaseAction::Wait(now + LEASE_DURATION));
        let renewed =
            ObservedLease::observe(Some(lease), acquired_spec("other", Some(&first), at(2)), later);
        assert_eq!(decide("me", Some(&renewed), later), LeaseAction::Wait(later + LEASE_DURATION));
    }

    #[test]
    fn our_own_lease_is_renewed_well_before_it_expires() {
        let now = Instant::now();
        let lease = observed(acquired_spec("me", None, at(0)), now);
        assert_eq!(decide("me", Some(&lease), now), LeaseAction::Wait(now + RETRY_PERIOD));
        assert_eq!(decide("me", Some(&lease), now + RETRY_PERIOD), LeaseAction::Acquire);
        assert!(RETRY_PERIOD * 2 < RENEW_DEADLINE && RENEW_DEADLINE < LEASE_DURATION);
    }

    #[test]
    fn lease_transitions_count_holders_and_not_renewals() {
        let first = acquired_spec("one", None, at(0));
        assert_eq!(first.lease_transitions, Some(1));
        let renewed = acquired_spec("one", Some(&first), at(2));
        assert_eq!(renewed.lease_transitions, Some(1));
        assert_eq!(renewed.acquire_time, Some(MicroTime(at(0))));
        assert_eq!(renewed.renew_time, Some(MicroTime(at(2))));
        let second = acquired_spec("two", Some(&released_spec(&renewed)), at(4));
        assert_eq!(second.lease_transitions, Some(2));
        assert_eq!(second.acquire_time, Some(MicroTime(at(4))));
    }
}
