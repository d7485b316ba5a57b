//! The objects that another Kubernetes cluster applies to use an invitation.

use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_plan::{
    InvitationFile, InvitationFileError, InvitationSecrets, Valid, invitation_file,
};
use flux_operator_wire::seal::SealKey;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::fixture::*;

const MUNGE: [u8; 5] = [0, 255, 10, 13, 128];
const REPORT_KEY: [u8; 32] = [7; 32];

pub fn certificate() -> String {
    let key = SecretKey::from_bytes([7; 32]);
    Certificate::new(key, Metadata::new("test").unwrap()).to_secret_text().to_string()
}

pub fn secrets() -> InvitationSecrets {
    InvitationSecrets {
        certificate: ByteString(certificate().into_bytes()),
        report_key: SealKey::from_bytes(REPORT_KEY),
        munge: None,
    }
}

/// The file of invitation `a`, for a MiniCluster called `joiner`.
pub fn file(lender: &Lender) -> Result<InvitationFile, InvitationFileError> {
    invitation_file(&lender.minicluster, lender.observed.job.as_deref(), "a", "joiner", secrets())
}

/// The MiniCluster of the file, as the other cluster stores it.
pub fn joiner(lender: &Lender) -> flux_operator_api::MiniCluster {
    let metadata = json!({ "namespace": "theirs", "uid": "joiner-uid", "generation": 1,
        "resourceVersion": "1", "creationTimestamp": START });
    merged(&file(lender).unwrap().minicluster, &json!({ "metadata": metadata }))
}

#[test]
fn b2_the_file_is_accepted_and_its_brokers_have_the_lenders_table() {
    let lender = Lender::settled(&one_invitation());
    let joiner = joiner(&lender);
    Valid::check(joiner.clone()).unwrap();
    let (home, away) = (boot_plan(&fresh(&lender)), boot_plan(&joiner));
    assert_eq!(away.hosts.to_string(), home.hosts.to_string());
    assert_eq!(away.config, home.config);
    assert_eq!(away.broker.topology, home.broker.topology);
    assert_eq!(away.host_groups, home.host_groups);
    let join = away.join.unwrap();
    assert_eq!(join.ranks.to_string(), "9,8", "in the order of the pods");
    assert_eq!(join.table, lender.lease("a").table);
    assert_eq!((join.lender.as_str(), join.cluster.as_str()), ("lender", "lender-uid"));
    // B2: rank 0 has another address there.
    assert_eq!(home.lead, "tcp://lender-0.lender.hpc.svc.cluster.local:8050");
    assert_eq!(away.lead, "tcp://203.0.113.1:30050");
    let remote = join.remote.unwrap();
    assert_eq!(remote.addresses, ["203.0.113.1:30050", "203.0.113.2:30050"]);
    assert_eq!(remote.invitation.as_deref(), Some("a"));
    assert_eq!(remote.joiner_name, "theirs/joiner");
}

/// The lender as it is created, to decide what its own brokers get.
pub fn fresh(lender: &Lender) -> flux_operator_api::MiniCluster {
    flux_operator_api::MiniCluster { status: None, ..lender.minicluster.clone() }
}

#[test]
fn b4_the_secrets_are_in_the_secret_alone() {
    let lender = Lender::settled(&one_invitation());
    let munge = InvitationSecrets { munge: Some(ByteString(MUNGE.to_vec())), ..secrets() };
    let file =
        invitation_file(&lender.minicluster, lender.observed.job.as_deref(), "a", "joiner", munge);
    let file = file.unwrap();
    assert_eq!(file.secret.metadata.name.as_deref(), Some("joiner-invitation"));
    let data = file.secret.data.unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["curve.cert", "invitation.key", "munge.key"]);
    assert_eq!(data["curve.cert"].0, certificate().into_bytes());
    assert_eq!(data["munge.key"].0, MUNGE, "byte for byte");
    let own = SealKey::from_bytes(REPORT_KEY);
    let invitations = own.for_invitation("lender-uid", "a", END).to_secret_text();
    assert_eq!(data["invitation.key"].0, invitations.as_bytes());
    let flux = file.minicluster.spec.flux.clone().unwrap();
    assert_eq!(flux.curve_cert_secret, "joiner-invitation");
    assert_eq!(flux.munge_secret, "joiner-invitation");
    let shown = serde_json::to_string(&file.minicluster).unwrap();
    let lines = certificate();
    let of_certificate = lines.lines().filter_map(|line| line.split('"').nth(1)).skip(1);
    let keys = of_certificate.chain([invitations.as_str(), "0707070707"]);
    for key in keys.filter(|key| key.len() > 8) {
        assert!(!shown.contains(key), "{key} in {shown}");
    }
    assert_eq!(flux.curve_cert, "");
}

#[test]
fn b5_without_a_munge_key_none_is_mounted() {
    let lender = Lender::settled(&one_invitation());
    let file = file(&lender).unwrap();
    assert!(!file.secret.data.unwrap().contains_key("munge.key"));
    assert_eq!(file.minicluster.spec.flux.unwrap().munge_secret, "");
}

#[test]
fn why_there_is_no_file_is_said() {
    let error = |lender: &Lender| file(lender).err().map(|it| it.to_string()).unwrap_or_default();
    let mut lender = Lender::settled(&one_invitation());
    assert_eq!(error(&lender), "");
    let before = lender.clone();
    lender.edit(&json!({ "invitations": [invitation("b", 2, END)] }));
    assert_eq!(error(&lender), "there is no invitation \"a\"");
    lender.edit(&json!({ "invitations": [invitation("a", 2, "2026-01-01T02:00:00Z")] }));
    assert_eq!(error(&lender), "no ranks are leased to invitation \"a\" yet", "of another end");
    lender.clone_from(&before);
    lender.change_status(&json!({ "leases": [] }));
    assert_eq!(error(&lender), "no ranks are leased to invitation \"a\" yet");
    for external in [json!(null), json!({ "addresses": [] })] {
        lender.clone_from(&before);
        lender.change_status(&json!({ "external": external }));
        assert_eq!(error(&lender), "it is not known yet where others reach the MiniCluster");
    }
    lender.clone_from(&before);
    let lease = merged(lender.lease("a"), &json!({ "invitation": { "port": 0 } }));
    lender.change_status(&json!({ "leases": [lease] }));
    assert_eq!(error(&lender), "it is not known yet where others reach the MiniCluster");
    lender.clone_from(&before);
    lender.change_status(&json!({ "external": { "lead": null } }));
    assert_eq!(error(&lender), "the lead has not reported its version and user yet");
    lender.clone_from(&before);
    lender.observed.job = None;
    assert_eq!(error(&lender), "the MiniCluster has no Flux instance");
}

#[test]
fn the_file_has_what_the_brokers_need_and_names_what_is_left_out() {
    let containers = json!([{
        "runFlux": true, "image": "example.org/app", "imagePullSecret": "registry",
        "workingDir": "/work", "environment": { "A": "b" }, "secrets": { "s": { "name": "x", "key": "y" } },
        "resources": { "limits": { "cpu": "2" } }, "command": "run-all", "volumes": { "data": { "path": "/data" } },
        "commands": { "pre": "p", "workerPre": "w", "brokerPre": "b", "script": "" },
    }, { "name": "web", "image": "nginx" }]);
    let view = json!({ "image": "example.org/view", "imagePullSecret": "views" });
    let mut bursting = one_invitation();
    bursting["expose"] = json!({});
    let flux = json!({ "container": view, "logLevel": 7, "environment": { "C": "d" },
        "bursting": bursting, "scheduler": { "simple": true } });
    let spec = json!({ "size": 2, "maxSize": 10, "interactive": true, "containers": containers,
        "flux": flux, "pod": { "serviceAccountName": "robot" } });
    let mut lender = Lender::of(minicluster("lender", &json!({ "spec": spec })));
    lender.settle();
    let file = file(&lender).unwrap();
    let left_out = [
        "volumes",
        "secrets",
        "imagePullSecret",
        "flux.container.imagePullSecret",
        "sidecars",
        "pod",
    ];
    assert_eq!(file.left_out, left_out);
    let spec = &file.minicluster.spec;
    let shown = json!(spec.containers);
    let expected = json!([{ "image": "example.org/app", "workingDir": "/work",
        "environment": { "A": "b" }, "resources": { "limits": { "cpu": "2" } },
        "commands": { "pre": "p", "workerPre": "w" } }]);
    assert_eq!(shown, expected);
    let flux = spec.flux.clone().unwrap();
    assert_eq!((flux.log_level, flux.environment["C"].as_str()), (7, "d"));
    assert_eq!(json!(flux.container), json!({ "image": "example.org/view" }));
    let lent = flux.bursting.unwrap().lead_broker.unwrap().instance.unwrap();
    assert!(lent.simple_scheduler);
    Valid::check(joiner(&lender)).unwrap();
    assert!(boot_plan(&joiner(&lender)).simple_scheduler);
    let plain = Lender::settled(&one_invitation());
    assert_eq!(crate::file::file(&plain).unwrap().left_out, [""; 0]);
}

#[test]
fn the_file_of_a_lead_without_a_gateway_asks_no_permission() {
    let mut bursting = one_invitation();
    bursting["expose"] = json!({ "direct": true });
    let lender = Lender::settled(&bursting);
    let plan = boot_plan(&joiner(&lender));
    let remote = plan.join.unwrap().remote.unwrap();
    assert_eq!(remote.addresses, ["203.0.113.1:30050", "203.0.113.2:30050"]);
    assert_eq!(remote.invitation, None);
}

#[test]
fn an_ipv6_address_is_in_brackets() {
    let mut lender = Lender::settled(&one_invitation());
    lender.observed.gateway.nodes =
        Some(["a", "b"].map(|it| (it.to_owned(), format!("2001:db8::{it}"))).into());
    lender.settle();
    let plan = boot_plan(&joiner(&lender));
    assert_eq!(plan.lead, "tcp://[2001:db8::a]:30050");
    let remote = plan.join.unwrap().remote.unwrap();
    assert_eq!(remote.addresses, ["[2001:db8::a]:30050", "[2001:db8::b]:30050"]);
}

/// A pool's hosts have other resources, and fewer brokers than ranks may be started.
#[test]
fn resources_of_pools_are_in_the_file() {
    let mut bursting = one_invitation();
    let pool: Value = json!({ "name": "a", "size": 2, "cores": 16, "gpus": 2 });
    bursting["clusters"] = json!([pool]);
    let lender = Lender::settled(&bursting);
    assert_eq!(lender.leases(), ["a: 10-11 Active"]);
    let joiner = joiner(&lender);
    let (home, away) = (boot_plan(&fresh(&lender)), boot_plan(&joiner));
    assert_eq!(away.host_groups, home.host_groups);
    assert_eq!(away.host_groups[1].cores, Some(16));
    let smaller = merged(&joiner, &json!({ "spec": { "size": 1 } }));
    Valid::check(smaller).unwrap();
}
