//! Decides what to do with a Lease at a given time. Pure.
//!
//! The clocks of two machines are never compared: a Lease has expired once this replica has
//! observed it unchanged for its whole duration. Kubernetes' own leader election does the same.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

/// How long a Lease is valid after a renewal.
pub(super) const TERM: Duration = Duration::from_secs(15);

/// A leader that has not renewed the Lease for this long gives up. The process must exit before
/// another replica can acquire the Lease.
pub(super) const RENEW_WITHIN: Duration = Duration::from_secs(10);

/// How often a leader renews the Lease, and how soon a failed request is retried. These three
/// values are the defaults of Kubernetes' own components.
pub(super) const RETRY: Duration = Duration::from_secs(2);

/// A Lease, and since when it has been observed unchanged.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) spec: LeaseSpec,
    since: Instant,
}

impl Seen {
    /// Observes a Lease now; `before` is the previous observation.
    pub(super) fn look(before: Option<Seen>, spec: LeaseSpec, now: Instant) -> Seen {
        match before {
            Some(before) if before.spec == spec => before,
            _ => Seen { spec, since: now },
        }
    }

    /// The holder, if there is one.
    pub(super) fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    fn ends(&self) -> Instant {
        let seconds = self.spec.lease_duration_seconds.unwrap_or_default();
        self.since + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }
}

/// What a replica does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Acquire or renew the Lease.
    Hold,
    /// Wait until this time, unless the Lease changes first.
    Wait(Instant),
}

/// What the replica `me` does with the observed Lease, if there is one.
pub(super) fn decide(me: &str, seen: Option<&Seen>, now: Instant) -> Decision {
    let Some(seen) = seen else { return Decision::Hold };
    let time = match seen.holder() {
        None => return Decision::Hold,
        Some(holder) if holder == me => seen.since + RETRY,
        Some(_) => seen.ends(),
    };
    if now >= time { Decision::Hold } else { Decision::Wait(time) }
}

/// The spec with which `me` acquires or renews the Lease.
pub(super) fn held(me: &str, before: Option<&LeaseSpec>, now: Timestamp) -> LeaseSpec {
    let before = before.cloned().unwrap_or_default();
    let mine = before.holder_identity.as_deref() == Some(me);
    let changes = before.lease_transitions.unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(TERM.as_secs() as i32),
        acquire_time: if mine { before.acquire_time } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if mine { changes } else { changes.saturating_add(1) }),
        ..LeaseSpec::default()
    }
}

/// The spec with which a holder that stops releases the Lease.
pub(super) fn released(before: &LeaseSpec) -> LeaseSpec {
    LeaseSpec { lease_transitions: before.lease_transitions, ..LeaseSpec::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn seen(spec: LeaseSpec, since: Instant) -> Seen {
        Seen::look(None, spec, since)
    }

    #[test]
    fn nobodys_lease_is_taken_at_once() {
        let now = Instant::now();
        assert_eq!(decide("me", None, now), Decision::Hold);
        assert_eq!(decide("me", Some(&seen(LeaseSpec::default(), now)), now), Decision::Hold);
        let left = released(&held("other", None, at(0)));
        assert_eq!(decide("me", Some(&seen(left, now)), now), Decision::Hold);
    }

    #[test]
    fn anothers_lease_is_taken_only_after_its_whole_term_here() {
        let now = Instant::now();
        // The time on the writer's clock does not matter.
        let lease = seen(held("other", None, at(0)), now);
        assert_eq!(decide("me", Some(&lease), now), Decision::Wait(now + TERM));
        let almost = now + TERM - Duration::from_millis(1);
        assert_eq!(decide("me", Some(&lease), almost), Decision::Wait(now + TERM));
        assert_eq!(decide("me", Some(&lease), now + TERM), Decision::Hold);
    }

    #[test]
    fn a_renewal_begins_the_term_anew_and_another_look_does_not() {
        let now = Instant::now();
        let first = held("other", None, at(0));
        let lease = seen(first.clone(), now);
        let later = now + TERM / 2;
        let same = Seen::look(Some(lease.clone()), first.clone(), later);
        assert_eq!(decide("me", Some(&same), later), Decision::Wait(now + TERM));
        let renewed = Seen::look(Some(lease), held("other", Some(&first), at(2)), later);
        assert_eq!(decide("me", Some(&renewed), later), Decision::Wait(later + TERM));
    }

    #[test]
    fn ones_own_lease_is_renewed_well_within_its_term() {
        let now = Instant::now();
        let lease = seen(held("me", None, at(0)), now);
        assert_eq!(decide("me", Some(&lease), now), Decision::Wait(now + RETRY));
        assert_eq!(decide("me", Some(&lease), now + RETRY), Decision::Hold);
        assert!(RETRY * 2 < RENEW_WITHIN && RENEW_WITHIN < TERM);
    }

    #[test]
    fn a_lease_counts_its_holders_and_not_their_renewals() {
        let first = held("one", None, at(0));
        assert_eq!(first.lease_transitions, Some(1));
        let renewed = held("one", Some(&first), at(2));
        assert_eq!(renewed.lease_transitions, Some(1));
        assert_eq!(renewed.acquire_time, Some(MicroTime(at(0))));
        assert_eq!(renewed.renew_time, Some(MicroTime(at(2))));
        let second = held("two", Some(&released(&renewed)), at(4));
        assert_eq!(second.lease_transitions, Some(2));
        assert_eq!(second.acquire_time, Some(MicroTime(at(4))));
    }
}
