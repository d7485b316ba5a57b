//! Which ports the gateway serves, for whom, and until when. No clock and no sockets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::jiff::Timestamp;

use crate::lender::{Lender, LenderId, LentLease, Sources};

/// One port: the lease of an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The MiniCluster that lends the ranks.
    pub(crate) lender: LenderId,
    /// The name of the invitation.
    pub(crate) invitation: String,
    /// The holder of the lease, as the status has it.
    pub(crate) holder: String,
    /// The number of brokers that may be connected at the same time.
    pub(crate) limit: usize,
    /// The networks from which connections are accepted.
    pub(crate) sources: Sources,
    /// The address of the lead, if there is a lead.
    pub(crate) lead: Option<SocketAddr>,
    /// When the invitation expires.
    pub(crate) expires: Timestamp,
}

impl Route {
    /// Whether both are routes of the same lease. Connections of another lease must be cut, even if
    /// it has the same port.
    pub(crate) fn is_same_lease(&self, other: &Route) -> bool {
        (&self.lender, &self.invitation, &self.holder, self.expires)
            == (&other.lender, &other.invitation, &other.holder, other.expires)
    }

    /// Whether a connection from this address may use it.
    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        self.sources.contain(address)
    }
}

/// All ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Routes {
    /// The routes, by port.
    pub(crate) by_port: BTreeMap<u16, Route>,
    /// Leases that are not served, because an older one has their port.
    pub(crate) conflicts: Vec<PortConflict>,
}

/// A lease that is not served, because an older one has its port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortConflict {
    /// The port.
    pub(crate) port: u16,
    /// The MiniCluster whose lease is not served.
    pub(crate) lender: LenderId,
    /// The name of the invitation.
    pub(crate) invitation: String,
}

impl Routes {
    /// When the next of these routes expires.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.by_port.values().map(|route| route.expires).min()
    }
}

/// The routes at a time. The same arguments, in any order, give the same routes.
pub(crate) fn routes<'a>(lenders: impl IntoIterator<Item = &'a Lender>, now: Timestamp) -> Routes {
    let mut claims: Vec<(&Lender, &LentLease)> = (lenders.into_iter())
        .flat_map(|lender| lender.leases.iter().map(move |lease| (lender, lease)))
        .filter(|(_, lease)| lease.expires > now)
        .collect();
    // The last two only make the order total, should a status have two leases of one holder.
    claims.sort_by(|(lender, lease), (other_lender, other)| {
        let key = |lender: &'a Lender, lease: &'a LentLease| {
            (lease.since, &lender.id.uid, &lease.holder, &lender.id, lease.expires)
        };
        key(lender, lease).cmp(&key(other_lender, other)).then(lease.ranks.cmp(&other.ranks))
    });
    let mut routes = Routes::default();
    for (lender, lease) in claims {
        let route = Route {
            lender: lender.id.clone(),
            invitation: lease.invitation.clone(),
            holder: lease.holder.clone(),
            limit: lease.ranks,
            sources: lender.sources.clone(),
            lead: lender.lead,
            expires: lease.expires,
        };
        match routes.by_port.entry(lease.port) {
            Entry::Vacant(port) => drop(port.insert(route)),
            Entry::Occupied(_) => {
                let Route { lender, invitation, .. } = route;
                routes.conflicts.push(PortConflict { port: lease.port, lender, invitation });
            }
        }
    }
    routes.conflicts.sort();
    routes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, lender};
    use proptest::prelude::*;

    #[test]
    fn a_lease_is_served_until_it_expires() {
        let lender = lender("a", &[(9001, 0, 100), (9002, 0, 50)]);
        let served = |now| {
            let routes = routes([&lender], at(now));
            (routes.by_port.keys().copied().collect::<Vec<_>>(), routes.next_expiry())
        };
        assert_eq!(served(0), (vec![9001, 9002], Some(at(50))));
        assert_eq!(served(49), (vec![9001, 9002], Some(at(50))));
        assert_eq!(served(50), (vec![9001], Some(at(100))));
        assert_eq!(served(100), (vec![], None));
    }

    #[test]
    fn a_route_has_what_the_lender_says() {
        let lender = lender("a", &[(9001, 0, 100)]);
        let routes = routes([&lender], at(0));
        let route = &routes.by_port[&9001];
        assert_eq!((&route.lender, &route.lead), (&lender.id, &lender.lead));
        assert_eq!((route.limit, route.expires), (2, at(100)));
    }

    #[test]
    fn of_two_leases_with_one_port_the_older_one_keeps_it() {
        let (older, newer) = (lender("z", &[(9001, 1, 100)]), lender("a", &[(9001, 2, 200)]));
        for lenders in [[&older, &newer], [&newer, &older]] {
            let shown = routes(lenders, at(10));
            assert_eq!(shown.by_port[&9001].lender, older.id);
            assert_eq!(shown.conflicts.len(), 1);
            assert_eq!(shown.conflicts[0].lender, newer.id);
        }
        let later = routes([&older, &newer], at(100));
        assert_eq!(later.by_port[&9001].lender, newer.id, "the port is free once it expires");
        assert_eq!(later.conflicts, []);
    }

    #[test]
    fn of_two_leases_of_the_same_age_the_lower_uid_keeps_the_port() {
        let (one, two) = (lender("a", &[(9001, 1, 100)]), lender("b", &[(9001, 1, 100)]));
        assert_eq!(routes([&two, &one], at(0)).by_port[&9001].lender, one.id);
    }

    fn any_lender(uid: String) -> impl Strategy<Value = Lender> {
        proptest::collection::vec((9000_u16..9005, 0_i64..4, 1_i64..50), 0..4)
            .prop_map(move |leases| lender(&uid, &leases))
    }

    fn any_lenders() -> impl Strategy<Value = Vec<Lender>> {
        let each: Vec<_> = (0..5).map(|number| any_lender(format!("uid-{number}"))).collect();
        each.prop_shuffle()
    }

    proptest! {
        #[test]
        fn every_lease_is_served_or_in_conflict_or_expired(
            lenders in any_lenders(),
            now in 0_i64..60,
        ) {
            let now = at(now);
            let routes = routes(&lenders, now);
            let leases: Vec<&LentLease> = lenders.iter().flat_map(|it| &it.leases).collect();
            let expired = leases.iter().filter(|lease| lease.expires <= now).count();
            prop_assert_eq!(routes.by_port.len() + routes.conflicts.len() + expired, leases.len());
            for (port, route) in &routes.by_port {
                prop_assert!(route.expires > now);
                let claims = leases.iter().filter(|it| it.port == *port && it.expires > now);
                let oldest = claims.map(|lease| lease.since).min();
                let own = lenders.iter().find(|lender| lender.id == route.lender).unwrap();
                let is_oldest = |it: &LentLease| it.port == *port && Some(it.since) == oldest;
                prop_assert!(own.leases.iter().any(is_oldest));
            }
        }

        #[test]
        fn the_order_of_the_miniclusters_does_not_matter(
            mut lenders in any_lenders(),
            now in 0_i64..60,
        ) {
            let expected = routes(&lenders, at(now));
            lenders.reverse();
            prop_assert_eq!(routes(&lenders, at(now)), expected);
        }

        #[test]
        fn nothing_changes_before_the_next_expiry(lenders in any_lenders(), now in 0_i64..60) {
            let before = routes(&lenders, at(now));
            if let Some(expiry) = before.next_expiry() {
                let just_before = at(expiry.as_second() - 1).max(at(now));
                let then = routes(&lenders, just_before);
                prop_assert_eq!(&then.by_port, &before.by_port);
                prop_assert_ne!(routes(&lenders, expiry).by_port, before.by_port);
            }
        }
    }
}
