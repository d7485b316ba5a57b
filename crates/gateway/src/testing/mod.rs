//! Fixtures: MiniClusters, leads and clients.

pub(crate) mod api_server;
pub(crate) mod broker;
pub(crate) mod gateway;
pub(crate) mod lead;
pub(crate) mod zmtp;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::lender::{Lender, LenderId, LentLease, ObservedMiniCluster, Sources};

/// A MiniCluster that lends three ranks by the invitation `cloud`.
pub(crate) fn minicluster() -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "namespace": "default", "name": "lender", "uid": "uid-1" },
        "spec": { "flux": { "bursting": {
            "expose": {},
            "invitations": [
                { "name": "cloud", "ranks": 3, "expires": "2026-08-02T00:00:00Z" }
            ]
        } } },
        "status": {
            "external": { "addresses": ["198.51.100.1"], "leadAddress": "10.0.0.7:8050" },
            "leases": [{
                "ranks": "4-5,2",
                "holder": "invitation:cloud:2026-08-02T00:00:00Z",
                "namespace": "default",
                "name": "cloud",
                "table": "hash",
                "since": "2026-08-01T00:00:00Z",
                "state": "Active",
                "invitation": { "expires": "2026-08-02T00:00:00Z", "gatewayPort": 9001 }
            }]
        }
    })
}

/// A request of an agent of the invitation `cloud`.
pub(crate) const REQUEST: &[u8] =
    b"POST /v1/report HTTP/1.1\r\nX-Flux-Invitation: cloud\r\nContent-Length: 4\r\n\r\nbody";

/// Decodes a MiniCluster.
pub(crate) fn observed(object: Value) -> ObservedMiniCluster {
    serde_json::from_value(object).unwrap()
}

/// A time, in seconds.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// A lender with leases of two ranks each, as (port, since, expires).
pub(crate) fn lender(uid: &str, leases: &[(u16, i64, i64)]) -> Lender {
    let lease = |(number, (port, since, expires)): (usize, &(u16, i64, i64))| LentLease {
        invitation: format!("invitation-{number}"),
        holder: format!("invitation:invitation-{number}:{}", at(*expires)),
        since: at(*since),
        port: *port,
        ranks: 2,
        expires: at(*expires),
    };
    Lender {
        id: LenderId { namespace: "default".into(), name: format!("of-{uid}"), uid: uid.into() },
        sources: Sources::Any,
        lead: Some("127.0.0.1:1".parse().unwrap()),
        leases: leases.iter().enumerate().map(lease).collect(),
        malformed: Vec::new(),
    }
}

/// Generous: the machine may be busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Waits for something that has to happen.
pub(crate) async fn soon<T>(happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, happens).await.expect("it happens in time")
}

/// Waits until a condition is true that nothing notifies of.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
