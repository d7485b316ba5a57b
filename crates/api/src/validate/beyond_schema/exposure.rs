//! Checks of how a MiniCluster is exposed to other Kubernetes clusters, and of its invitations.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::MiniCluster;
use crate::minicluster::{ExposeType, GATEWAY_PORTS};
use crate::validate::Problem;

/// The longest name of a MiniCluster that is exposed: its Service is called `<name>-external`.
const MAX_NAME: usize = 63 - "-external".len();

/// Everything that is wrong with how a MiniCluster is exposed.
pub(super) fn check(minicluster: &MiniCluster, problems: &mut Vec<Problem>) {
    let bursting = minicluster.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    let Some(bursting) = bursting else { return };
    for (index, invitation) in bursting.invitations.iter().enumerate() {
        if invitation.expires.parse::<Timestamp>().is_err() {
            let path = format!("spec.flux.bursting.invitations[{index}].expires");
            problems.push(Problem::new(path, not_a_time(&invitation.expires)));
        }
    }
    let mut names = HashSet::new();
    for (index, invitation) in bursting.invitations.iter().enumerate() {
        if !names.insert(&invitation.name) {
            let path = format!("spec.flux.bursting.invitations[{index}].name");
            problems.push(Problem::new(path, "is the name of another invitation: use another"));
        }
    }
    let Some(expose) = &bursting.expose else { return };
    let is_of_gateway = |port: i32| u16::try_from(port).is_ok_and(|it| GATEWAY_PORTS.contains(&it));
    let is_on_gateway = expose.kind == ExposeType::None && !expose.direct;
    if is_on_gateway && expose.port != 0 && !is_of_gateway(expose.port) {
        let (first, last) = (GATEWAY_PORTS.start(), GATEWAY_PORTS.end());
        let message = format!(
            "is {}: with type None the gateway listens on it, and its ports are {first} to {last}",
            expose.port
        );
        problems.push(Problem::new("spec.flux.bursting.expose.port", message));
    }
    if expose.direct && !expose.source_ranges.is_empty() && expose.kind != ExposeType::LoadBalancer
    {
        let message = "is not checked if the lead is exposed without the gateway: remove direct, or \
            use type LoadBalancer";
        problems.push(Problem::new("spec.flux.bursting.expose.sourceRanges", message));
    }
    let name = minicluster.name_any();
    if name.len() > MAX_NAME {
        let message = format!(
            "is too long: with flux.bursting.expose at most {MAX_NAME} characters are allowed, \
             because its Service is called {name}-external"
        );
        problems.push(Problem::new("metadata.name", message));
    }
    for (index, range) in expose.source_ranges.iter().enumerate() {
        if range.parse::<IpNet>().is_err() {
            let path = format!("spec.flux.bursting.expose.sourceRanges[{index}]");
            let hint = match range.parse::<IpAddr>() {
                Ok(IpAddr::V4(_)) => format!(": for one address write {range}/32"),
                Ok(IpAddr::V6(_)) => format!(": for one address write {range}/128"),
                Err(_) => String::new(),
            };
            let message = format!("{range:?} is not a network such as 203.0.113.0/24{hint}");
            problems.push(Problem::new(path, message));
        }
    }
}

/// What is wrong with the end of an invitation. The parser's own error is about ranges of seconds.
pub(super) fn not_a_time(text: &str) -> String {
    format!("is {text:?}, which is not a time: expected one such as 2026-05-04T11:00:00Z")
}

/// Invitations that cannot be used.
pub(super) fn warnings(minicluster: &MiniCluster) -> Option<Problem> {
    let bursting = minicluster.spec.flux.as_ref()?.bursting.as_ref()?;
    let message = "get no ranks, because brokers of other Kubernetes clusters cannot reach the lead: set \
        spec.flux.bursting.expose";
    (bursting.expose.is_none() && !bursting.invitations.is_empty())
        .then(|| Problem::new("spec.flux.bursting.invitations", message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn problems(name: &str, bursting: Value) -> Vec<String> {
        let spec = json!({ "containers": [{}], "flux": { "bursting": bursting } });
        let minicluster = MiniCluster::new(name, serde_json::from_value(spec).unwrap());
        let mut problems = Vec::new();
        check(&minicluster, &mut problems);
        problems.into_iter().map(|problem| problem.to_string()).collect()
    }

    #[test]
    fn networks_are_checked() {
        let found =
            problems("fs", json!({ "expose": { "sourceRanges": ["10.0.0.0/8", "10.0.0"] } }));
        assert_eq!(
            found,
            [
                "spec.flux.bursting.expose.sourceRanges[1]: \"10.0.0\" is not a network such as 203.0.113.0/24"
            ]
        );
        assert_eq!(
            problems("fs", json!({ "expose": { "sourceRanges": ["2001:db8::/32"] } })),
            [""; 0]
        );
    }

    #[test]
    fn what_has_no_effect_or_is_ambiguous_is_refused() {
        let refused = |bursting: Value| problems("fs", bursting).join("\n");
        let invitation = json!({ "name": "a", "ranks": 1, "expires": "2099-01-01T00:00:00Z" });
        let twice = refused(json!({ "invitations": [invitation, invitation] }));
        assert!(twice.starts_with("spec.flux.bursting.invitations[1].name: "), "{twice}");
        let direct = json!({ "direct": true, "sourceRanges": ["10.0.0.0/8"] });
        let direct = refused(json!({ "expose": direct }));
        assert!(direct.starts_with("spec.flux.bursting.expose.sourceRanges: "), "{direct}");
        for (port, is_refused) in [(0, false), (8080, true), (24_000, false), (32_000, true)] {
            let none = json!({ "type": "None", "hostname": "a.example.org", "port": port });
            assert_eq!(!refused(json!({ "expose": none })).is_empty(), is_refused, "{port}");
            let mut direct = none;
            direct["direct"] = true.into();
            assert_eq!(refused(json!({ "expose": direct })), "", "{port}: not the gateway's");
        }
        for (address, network) in
            [("198.51.100.7", "198.51.100.7/32"), ("2001:db8::1", "2001:db8::1/128")]
        {
            let one = refused(json!({ "expose": { "sourceRanges": [address] } }));
            assert!(one.ends_with(&format!("for one address write {network}")), "{one}");
        }
    }

    #[test]
    fn the_service_needs_a_short_name() {
        let found = problems(&"a".repeat(55), json!({ "expose": {} }));
        assert!(found[0].starts_with("metadata.name: is too long"), "{found:?}");
        assert_eq!(problems(&"a".repeat(54), json!({ "expose": {} })), [""; 0]);
        assert_eq!(problems(&"a".repeat(55), json!({})), [""; 0]);
    }

    #[test]
    fn the_end_of_an_invitation_is_a_time() {
        let with = |expires: &str| {
            problems(
                "fs",
                json!({ "invitations": [{ "name": "a", "ranks": 1, "expires": expires }] }),
            )
        };
        assert!(with("tomorrow")[0].starts_with("spec.flux.bursting.invitations[0].expires: "));
        let problem = "is \"2026-13-01T00:00:00Z\", which is not a time: expected one such as";
        assert!(with("2026-13-01T00:00:00Z")[0].contains(problem));
        for time in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z"] {
            assert_eq!(with(time), [""; 0]);
        }
    }

    #[test]
    fn invitations_of_a_cluster_that_is_not_exposed_give_a_warning() {
        let warned = |bursting: Value| {
            let spec = json!({ "containers": [{}], "flux": { "bursting": bursting } });
            let minicluster = MiniCluster::new("fs", serde_json::from_value(spec).unwrap());
            let warned = crate::validate::warnings(&minicluster);
            warned.into_iter().map(|it| it.path).collect::<Vec<_>>()
        };
        let invitations = json!([{ "name": "a", "ranks": 1, "expires": "2099-01-01T00:00:00Z" }]);
        assert_eq!(
            warned(json!({ "invitations": invitations })),
            ["spec.flux.bursting.invitations"]
        );
        assert_eq!(warned(json!({ "invitations": invitations, "expose": {} })), [""; 0]);
        assert_eq!(warned(json!({ "spareRanks": 1 })), [""; 0]);
    }
}
