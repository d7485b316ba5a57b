//! A MiniCluster that invites, for unit tests.

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{Bursting, Invitation};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::json;

/// Half an hour before the end of the invitation.
pub(super) fn now() -> Timestamp {
    "2026-01-01T00:30:00Z".parse().unwrap()
}

pub(super) fn invitation(name: &str, ranks: i32, expires: &str) -> Invitation {
    Invitation { name: name.into(), ranks, expires: expires.into(), ..Invitation::default() }
}

/// `spec.flux.bursting` of [`lender`], to change it.
pub(super) fn bursting_mut(lender: &mut MiniCluster) -> &mut Bursting {
    lender.spec.flux.as_mut().unwrap().bursting.as_mut().unwrap()
}

/// Two brokers, four spare ranks, and the invitation `a` for two of them, which is in use.
pub(super) fn lender() -> MiniCluster {
    let expires = "2026-01-01T01:00:00Z";
    let user = json!({ "uid": "u", "name": "far/b", "since": "2026-01-01T00:10:00Z" });
    let lease = json!({ "ranks": "2-3", "holder": format!("invitation:a:{expires}"),
        "namespace": "near", "name": "a", "table": "t", "since": "2026-01-01T00:00:00Z",
        "state": "Active", "invitation": { "expires": expires, "port": 31000, "user": user } });
    serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": "fs", "namespace": "near", "uid": "fs-uid", "generation": 1,
            "resourceVersion": "7" },
        "spec": {
            "size": 2,
            "containers": [{ "image": "busybox" }],
            "flux": { "bursting": { "spareRanks": 4, "expose": {},
                "invitations": [{ "name": "a", "ranks": 2, "expires": expires }] } },
        },
        "status": {
            "observedGeneration": 1,
            "leases": [lease],
            "external": { "addresses": ["192.0.2.1", "2001:db8::1"],
                "lead": { "version": "0.80.0", "user": 1000, "cores": 4 } },
        },
    }))
    .unwrap()
}

/// The Job of [`lender`].
pub(super) fn job() -> Job {
    let owner = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "name": "fs", "uid": "fs-uid" });
    let annotations = json!({ "flux-framework.org/ranks": "2",
        "flux-framework.org/table": "{\"spareRanks\":4}" });
    serde_json::from_value(json!({
        "metadata": { "name": "fs", "ownerReferences": [owner], "annotations": annotations },
        "spec": { "completions": 2, "template": {} },
    }))
    .unwrap()
}
