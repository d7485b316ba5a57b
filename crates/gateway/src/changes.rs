//! What to do with listeners when the routes have changed.

use crate::route::{Route, Routes};

/// One step from the routes before to those after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteChange {
    /// Close the listener, and cut all of its connections.
    Close(u16, Route),
    /// The same lease has changed. Connections that it does not allow any more are cut.
    Update(u16, Route),
    /// Listen on the port.
    Open(u16, Route),
}

/// The steps from the routes before to those after. Ports are closed before others are opened, so
/// that another lease can have the port.
pub(crate) fn changes(before: &Routes, after: &Routes) -> Vec<RouteChange> {
    let mut changes = Vec::new();
    let mut opened = Vec::new();
    for (port, route) in &before.by_port {
        let still = after.by_port.get(port).is_some_and(|after| after.is_same_lease(route));
        if !still {
            changes.push(RouteChange::Close(*port, route.clone()));
        }
    }
    for (port, route) in &after.by_port {
        match before.by_port.get(port).filter(|before| before.is_same_lease(route)) {
            Some(before) if before == route => {}
            Some(_) => changes.push(RouteChange::Update(*port, route.clone())),
            None => opened.push(RouteChange::Open(*port, route.clone())),
        }
    }
    changes.extend(opened);
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::routes;
    use crate::testing::{at, lender};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn another_lease_on_the_same_port_closes_it_first() {
        let before = routes([&lender("a", &[(9001, 1, 100)])], at(0));
        let after = routes([&lender("b", &[(9001, 1, 100)])], at(0));
        let changes = changes(&before, &after);
        assert!(
            matches!(&changes[..], [RouteChange::Close(9001, _), RouteChange::Open(9001, _)]),
            "{changes:?}"
        );
    }

    #[test]
    fn a_new_lead_only_updates_the_port() {
        let mut lender = lender("a", &[(9001, 1, 100)]);
        let before = routes([&lender], at(0));
        lender.lead = None;
        let after = routes([&lender], at(0));
        let changes = changes(&before, &after);
        assert!(matches!(&changes[..], [RouteChange::Update(9001, _)]), "{changes:?}");
        assert_eq!(super::changes(&after, &after), []);
    }

    fn any_routes() -> impl Strategy<Value = Routes> {
        let leases = || proptest::collection::vec((9000_u16..9006, 0_i64..3, 1_i64..4), 0..5);
        (leases(), leases(), any::<bool>()).prop_map(|(one, two, has_lead)| {
            let (mut one, two) = (lender("one", &one), lender("two", &two));
            one.lead = one.lead.filter(|_| has_lead);
            routes([&one, &two], at(0))
        })
    }

    proptest! {
        #[test]
        fn the_changes_lead_to_the_routes_after(before in any_routes(), after in any_routes()) {
            let mut open: BTreeMap<u16, Route> = before.by_port.clone();
            for change in changes(&before, &after) {
                match change {
                    RouteChange::Close(port, route) => {
                        prop_assert_eq!(open.remove(&port), Some(route));
                    }
                    RouteChange::Update(port, route) => {
                        prop_assert!(open[&port].is_same_lease(&route));
                        open.insert(port, route);
                    }
                    RouteChange::Open(port, route) => {
                        prop_assert_eq!(open.insert(port, route), None, "it was closed");
                    }
                }
            }
            prop_assert_eq!(open, after.by_port);
        }
    }
}
