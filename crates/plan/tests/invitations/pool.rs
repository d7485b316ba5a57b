//! The objects of a burst in a Kubernetes cluster without an operator.

use std::collections::BTreeMap;

use flux_operator_api::burst::BurstTarget;
use flux_operator_plan::bursting::{
    PoolPods, RemotePool, RemotePoolError, remote_pool, resize_patch,
};
use flux_operator_wire::BootPlan;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::file::secrets;
use crate::fixture::*;

fn target(patch: &Value) -> BurstTarget {
    let target = json!({ "name": "cloud", "maxNodes": 8, "kubeconfig": { "secret": "cloud" } });
    merged(&serde_json::from_value::<BurstTarget>(target).unwrap(), patch)
}

/// The pool of invitation `a` with this many nodes.
fn pool(lender: &Lender, nodes: i32, target: &BurstTarget) -> Result<RemotePool, RemotePoolError> {
    let labels = BTreeMap::from([("flux-framework.org/burst".to_owned(), "b1".to_owned())]);
    let pods = PoolPods {
        namespace: "theirs",
        uid: "burst-uid",
        nodes,
        labels: &labels,
        target,
        deadline_seconds: Some(7200),
    };
    let job = lender.observed.job.as_deref();
    remote_pool(&lender.minicluster, job, "a", "b1", &pods, secrets(), &settings())
}

fn plan_of(pool: &RemotePool) -> BootPlan {
    serde_json::from_str(&pool.config_map.data.as_ref().unwrap()["boot.json"]).unwrap()
}

fn chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", chain(cause)));
    format!("{error}{}", cause.unwrap_or_default())
}

#[test]
fn a_pool_is_a_secret_a_config_map_and_a_job() {
    let lender = Lender::settled(&one_invitation());
    let pods = json!({ "nodeSelector": { "pool": "burst" }, "priorityClassName": "low",
        "tolerations": [{ "key": "burst", "operator": "Exists" }],
        "resources": { "limits": { "cpu": "4" } }, "image": "example.org/other:1" });
    let target = target(&json!({ "labels": { "cost": "42" }, "pods": pods }));
    let pool = pool(&lender, 1, &target).unwrap();
    insta::assert_yaml_snapshot!("pool_job", pool.job);
    insta::assert_yaml_snapshot!("pool_boot_plan", plan_of(&pool));
    insta::assert_yaml_snapshot!(
        "pool_metadata",
        [&pool.secret.metadata, &pool.config_map.metadata]
    );
    let keys: Vec<_> = pool.secret.data.as_ref().unwrap().keys().collect();
    assert_eq!(keys, ["curve.cert", "invitation.key"]);
}

/// Whatever the pods refer to is part of the pool.
#[test]
fn the_pods_need_nothing_else() {
    let lender = Lender::settled(&one_invitation());
    let pool = pool(&lender, 2, &target(&json!({}))).unwrap();
    let pod = pool.job.spec.as_ref().unwrap().template.spec.clone().unwrap();
    let mut named = Vec::new();
    for volume in pod.volumes.unwrap() {
        named.extend(volume.secret.and_then(|it| it.secret_name));
        named.extend(volume.config_map.map(|it| it.name));
        let sources = volume.projected.and_then(|it| it.sources).unwrap_or_default();
        named.extend(sources.into_iter().filter_map(|it| it.secret).map(|it| it.name));
    }
    named.sort();
    assert_eq!(named, ["b1-entrypoint", "b1-invitation"]);
    assert_eq!(pod.service_account_name, None);
    let labels =
        [&pool.job.metadata, pool.job.spec.as_ref().unwrap().template.metadata.as_ref().unwrap()]
            .map(|it| it.labels.clone().unwrap());
    for labels in labels {
        assert!(
            !labels.contains_key("flux-framework.org/lender"),
            "it would be taken for a joiner"
        );
        assert_eq!(labels["flux-framework.org/burst"], "b1");
    }
    assert_eq!(plan_of(&pool).report, None, "the operator at home cannot be reached");
}

#[test]
fn the_boot_plan_has_all_ranks_of_the_lease_whatever_the_number_of_nodes() {
    for ranks in [1, 3, 8] {
        let invited = invitation("a", ranks, END);
        let lender = Lender::settled(&json!({ "invitations": [invited] }));
        for nodes in 1..=ranks {
            let pool = pool(&lender, nodes, &target(&json!({}))).unwrap();
            let join = plan_of(&pool).join.unwrap();
            assert_eq!(join.ranks.to_string(), lender.lease("a").ranks);
            assert_eq!(join.table, lender.lease("a").table);
            assert_eq!(join.remote.unwrap().invitation.as_deref(), Some("a"));
            assert_eq!(plan_of(&pool).uid, "burst-uid");
            let spec = pool.job.spec.unwrap();
            assert_eq!((spec.completions, spec.parallelism), (Some(nodes), Some(nodes)));
        }
        let error = pool(&lender, ranks + 1, &target(&json!({}))).err().unwrap();
        let expected =
            format!("{} nodes were requested, and the invitation has {ranks} ranks", ranks + 1);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn completions_and_parallelism_change_together() {
    let lender = Lender::settled(&one_invitation());
    let pool = pool(&lender, 1, &target(&json!({}))).unwrap();
    let resized: Job = merged(&pool.job, &resize_patch(2));
    let spec = resized.spec.unwrap();
    assert_eq!((spec.completions, spec.parallelism), (Some(2), Some(2)));
    assert_eq!(spec.template, pool.job.spec.unwrap().template);
}

/// Nothing but Kubernetes' own controllers watches the Job.
#[test]
fn lost_pods_are_replaced_and_the_job_does_not_complete() {
    let lender = Lender::settled(&one_invitation());
    let pool = pool(&lender, 2, &target(&json!({}))).unwrap();
    let spec = pool.job.spec.unwrap();
    assert_eq!(spec.success_policy, None);
    assert_eq!((spec.suspend, spec.managed_by), (None, None));
    assert_eq!(spec.backoff_limit_per_index, Some(100));
    let rules = spec.pod_failure_policy.unwrap().rules;
    let ignored: Vec<_> = rules.iter().filter(|rule| rule.action == "Ignore").collect();
    assert_eq!(ignored[0].on_pod_conditions.as_ref().unwrap()[0].type_, "DisruptionTarget");
}

#[test]
fn why_there_is_no_pool_is_said() {
    let error = |lender: &Lender, nodes: i32, patch: Value| {
        chain(&pool(lender, nodes, &target(&patch)).err().unwrap())
    };
    let lender = Lender::settled(&one_invitation());
    let expected = "0 nodes were requested, and the invitation has 2 ranks";
    assert_eq!(error(&lender, 0, json!({})), expected);
    let refused = error(&lender, 1, json!({ "pods": { "priorityClassName": "a".repeat(254) } }));
    assert!(refused.starts_with("the pods cannot be created: spec.pod.priority"), "{refused}");

    let new = Lender::new(&json!({}));
    let expected = "the invitation cannot be used yet: there is no invitation \"a\"";
    assert_eq!(error(&new, 1, json!({})), expected);

    let direct = json!({ "expose": { "direct": true },
        "invitations": [invitation("a", 2, END)] });
    let refused = error(&Lender::settled(&direct), 1, json!({}));
    assert!(refused.starts_with("the lead is exposed without the gateway"), "{refused}");
}
