//! The ports of invitations: those of the Service, of the gateway, and of the nodes.

use std::collections::BTreeSet;

use flux_operator_api::minicluster::GATEWAY_PORTS;
use flux_operator_plan::PortHolder;
use serde_json::{Value, json};

use crate::fixture::*;

fn three() -> Value {
    json!({ "invitations": [invitation("a", 1, END), invitation("b", 1, END), invitation("c", 1, END)] })
}

fn ports(lender: &Lender, name: &str) -> [i32; 3] {
    let it = lender.invited(name);
    [it.service_port, it.gateway_port, it.port]
}

#[test]
fn every_invitation_has_its_own_ports_and_keeps_them() {
    let mut lender = Lender::settled(&three());
    let before = ["a", "b", "c"].map(|name| ports(&lender, name));
    assert_eq!(before.map(|it| it[0]), [8050, 8051, 8052]);
    let of_gateway: BTreeSet<i32> = before.iter().map(|it| it[1]).collect();
    assert_eq!(of_gateway.len(), 3);
    assert!(of_gateway.iter().all(|port| (24_000..32_000).contains(port)), "{of_gateway:?}");
    lender.at(60);
    lender.settle();
    assert_eq!(["a", "b", "c"].map(|name| ports(&lender, name)), before);
    // The others keep theirs, and the next one gets what is free.
    lender.edit(&json!({ "invitations": [invitation("c", 1, END), invitation("d", 1, END)] }));
    lender.at(62);
    lender.settle();
    lender.at(64);
    lender.settle();
    assert_eq!(ports(&lender, "c"), before[2]);
    assert!(!before.iter().any(|it| it[1] == ports(&lender, "d")[1]));
}

#[test]
fn the_first_port_is_the_users() {
    let mut bursting = three();
    bursting["expose"] = json!({ "port": 9000, "nodePort": 30_100 });
    let lender = Lender::settled(&bursting);
    assert_eq!(ports(&lender, "c")[0], 9002);
    assert_eq!(ports(&lender, "c")[2], 30_102, "they are consecutive on the nodes too");
    assert_eq!(node_ports(&lender), [30_100, 30_101, 30_102]);
}

#[test]
fn an_external_port_is_that_of_the_service_except_for_nodes() {
    for (kind, expected) in [("NodePort", 30_050), ("LoadBalancer", 8050), ("ClusterIP", 8050)] {
        let mut bursting = one_invitation();
        bursting["expose"] = json!({ "type": kind });
        let mut lender = Lender::new(&bursting);
        lender.reconcile();
        let first = if kind == "NodePort" { 0 } else { expected };
        assert_eq!(lender.invited("a").port, first, "{kind}: the Service did not exist");
        lender.settle();
        assert_eq!(lender.invited("a").port, expected, "{kind}");
    }
}

/// The Service still has the port of the former invitation when the lease of the next one is written.
#[test]
fn an_invitation_is_not_published_at_the_port_of_a_former_one_with_its_name() {
    let mut lender = Lender::settled(&one_invitation());
    assert_eq!(ports(&lender, "a")[2], 30_050);
    lender.edit(&json!({ "invitations": [invitation("a", 2, "2026-01-01T02:00:00Z")] }));
    lender.online("0-1,8-9");
    lender.reconcile();
    let leases = lender.minicluster.status.as_ref().unwrap().leases.iter();
    let active = leases.filter(|it| it.ranks == "7,6").filter_map(|it| it.invitation.as_ref());
    let published: Vec<(i32, i32)> = active.map(|it| (it.service_port, it.port)).collect();
    assert_eq!(published, [(8051, 0)], "it is not known yet");
    lender.settle();
    let leases = lender.minicluster.status.as_ref().unwrap().leases.iter();
    let mut active = leases.filter(|it| it.ranks == "7,6").filter_map(|it| it.invitation.as_ref());
    assert_eq!(active.next().unwrap().port, 30_051);
}

#[test]
fn without_a_service_the_gateway_listens_on_the_ports_that_are_published() {
    let mut bursting = three();
    bursting["expose"] =
        json!({ "type": "None", "hostname": "lender.example.org", "port": 25_000 });
    let lender = Lender::settled(&bursting);
    assert_eq!(ports(&lender, "a"), [25_000; 3]);
    assert_eq!(ports(&lender, "c"), [25_002; 3]);
    assert!(lender.service().is_none());
    assert!(lender.observed.endpoint_slices.is_empty());
}

/// Any user may choose the port of a Service. Without one it would be a port of the gateway: its own, or
/// that of another lender.
#[test]
fn a_port_of_a_service_becomes_one_of_the_gateway_only_if_it_is_free_there() {
    for (port, holder) in [(8080, None), (25_000, Some("2099-01-01T00:00:00Z"))] {
        let mut bursting = one_invitation();
        bursting["expose"] = json!({ "port": port });
        let mut lender = Lender::settled(&bursting);
        assert_eq!(ports(&lender, "a")[0], port);
        let holder =
            holder.map(|since| PortHolder { since: since.parse().unwrap(), uid: "z".into() });
        let taken = holder.map(|holder| (u16::try_from(port).unwrap(), holder));
        lender.observed.gateway.taken_ports = taken.into_iter().collect();
        // The former port is not named any more.
        let none = json!({ "type": "None", "hostname": "a.example.org", "port": null });
        lender.edit(&json!({ "expose": none }));
        lender.settle();
        let [service, gateway, _] = ports(&lender, "a");
        assert!(service == gateway && gateway != port, "{service} {gateway}");
        assert!((24_000..32_000).contains(&gateway), "{gateway}");
    }
}

/// A lease that was there before is not driven from its port, whatever the uids are.
#[test]
fn the_older_lease_keeps_its_port() {
    for (since, keeps) in [("2025-01-01T00:00:00Z", false), ("2099-01-01T00:00:00Z", true)] {
        let mut lender = Lender::settled(&one_invitation());
        let before = ports(&lender, "a")[1];
        let holder = PortHolder { since: since.parse().unwrap(), uid: String::new() };
        lender.observed.gateway.taken_ports = [(u16::try_from(before).unwrap(), holder)].into();
        lender.settle();
        assert_eq!(ports(&lender, "a")[1] == before, keeps, "{since}");
    }
}

/// The same lender, called `name`.
fn lender_called(name: &str, expose: &Value) -> Lender {
    let mut bursting = one_invitation();
    bursting["expose"] = expose.clone();
    let spec = json!({ "size": 2, "maxSize": 4, "interactive": true,
        "flux": { "bursting": bursting } });
    let mut lender = Lender::of(minicluster(name, &json!({ "spec": spec })));
    lender.settle();
    lender
}

fn takes_port_of(lender: &mut Lender, other: &Lender) {
    let port = u16::try_from(other.invited("a").gateway_port).unwrap();
    let uid = other.minicluster.metadata.uid.clone().unwrap();
    let since = other.lease("a").since.parse().unwrap();
    lender.observed.gateway.taken_ports = [(port, PortHolder { since, uid })].into();
}

#[test]
fn a_port_that_another_lender_has_is_not_chosen() {
    let first = lender_called("lender", &json!({}));
    let chosen = first.invited("a").gateway_port;
    let mut again = Lender::new(&one_invitation());
    let holder = PortHolder { since: END.parse().unwrap(), uid: "z".into() };
    again.observed.gateway.taken_ports = [(u16::try_from(chosen).unwrap(), holder)].into();
    again.settle();
    assert_ne!(again.invited("a").gateway_port, chosen);
}

/// Two lenders that chose at the same time. Each is shown the other's choice.
#[test]
fn of_two_lenders_with_the_same_port_one_yields() {
    let of_gateway = json!({});
    let forwarded = json!({ "type": "None", "hostname": "a.example.org", "port": 25_000 });
    for (one, two) in [
        (&of_gateway, &of_gateway),
        (&of_gateway, &forwarded),
        (&forwarded, &of_gateway),
        (&forwarded, &forwarded),
    ] {
        let mut lenders = [lender_called("one", one), lender_called("two", two)];
        for lender in &mut lenders {
            let lease = lender.lease("a").clone();
            let mut lease = json!(lease);
            lease["invitation"]["gatewayPort"] = json!(25_000);
            lender.change_status(&json!({ "leases": [lease] }));
        }
        let [before_one, before_two] = lenders.clone();
        let [one, two] = &mut lenders;
        takes_port_of(one, &before_two);
        takes_port_of(two, &before_one);
        lenders.iter_mut().for_each(Lender::settle);
        let kept = lenders.iter().filter(|it| it.invited("a").gateway_port == 25_000).count();
        assert_eq!(kept, 1, "{:?}", lenders.map(|it| it.invited("a").clone()));
    }
}

/// A status may have been restored from a backup, or written by hand.
#[test]
fn ports_in_a_status_that_cannot_be_are_chosen_again() {
    for wrong in [-1, 0, 65_536, i32::MAX, i32::MIN] {
        let mut lender = Lender::settled(&three());
        let mut leases = json!(lender.minicluster.status.as_ref().unwrap().leases);
        for field in ["port", "servicePort", "gatewayPort"] {
            leases[0]["invitation"][field] = json!(wrong);
        }
        lender.change_status(&json!({ "leases": leases }));
        lender.settle();
        assert_eq!(ports(&lender, "a")[0], 8050, "{wrong}");
        assert!((24_000..32_000).contains(&ports(&lender, "a")[1]), "{wrong}");
    }
    let mut lender = Lender::settled(&three());
    let mut leases = json!(lender.minicluster.status.as_ref().unwrap().leases);
    leases[0]["invitation"] = leases[1]["invitation"].clone();
    lender.change_status(&json!({ "leases": leases }));
    lender.settle();
    let [a, b] = ["a", "b"].map(|name| ports(&lender, name));
    assert!((0..3).all(|index| a[index] != b[index]), "{a:?} {b:?}");
}

fn node_ports(lender: &Lender) -> Vec<i32> {
    let ports = lender.service().unwrap().spec.as_ref().unwrap().ports.iter().flatten();
    ports.filter_map(|port| port.node_port).collect()
}

/// Leases keep the ports of the Service when its first port is changed. Those on the nodes are counted
/// from it, and cannot be counted down, or beyond the last port.
#[test]
fn a_port_on_the_nodes_that_cannot_be_is_left_to_kubernetes() {
    let expose = |port: i32, on_nodes: i32| json!({ "type": "LoadBalancer", "port": port, "nodePort": on_nodes });
    let mut bursting = three();
    bursting["expose"] = expose(8050, 30_100);
    let mut lender = Lender::settled(&bursting);
    assert_eq!(node_ports(&lender), [30_100, 30_101, 30_102]);
    lender.edit(&json!({ "expose": expose(9000, 30_100) }));
    lender.settle();
    assert_eq!(node_ports(&lender), [30_100, 30_101, 30_102], "those that it has");
    lender.edit(&json!({ "expose": expose(1, 65_000) }));
    lender.settle();
    assert_eq!(node_ports(&lender), [30_100, 30_101, 30_102], "those that it has");
}

/// Otherwise the invitation would wait forever, and nothing would say why.
#[test]
fn an_invitation_without_a_port_is_reported() {
    let mut lender = Lender::new(&one_invitation());
    let holder = PortHolder { since: after(0), uid: "other".into() };
    lender.observed.gateway.taken_ports = GATEWAY_PORTS.map(|it| (it, holder.clone())).collect();
    lender.settle();
    assert_eq!(lender.invited("a").gateway_port, 0);
    let message = lender.condition("Exposed").message.clone();
    assert!(message.ends_with("; invitation \"a\" has no port: all of the gateway are in use"));
    lender.observed.gateway.taken_ports.clear();
    lender.settle();
    assert!(!lender.condition("Exposed").message.contains("no port"));
}
