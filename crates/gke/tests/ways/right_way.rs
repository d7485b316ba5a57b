//! When nothing goes wrong.

use std::collections::BTreeSet;

use flux_operator_gke::testing::{FakeGoogle, Fault};
use flux_operator_gke::{Google, list};
use serde_json::{Value, json};

use super::support::*;

const ACCOUNT: &str = include_str!("../../../../examples/burst/target-account.yaml");
const GUIDE: &str = include_str!("../../../../docs/guide/burst-clouds.md");
const INNER: &str = "/inside/apis/rbac.authorization.k8s.io/v1/namespaces/default";

#[test]
fn a_cluster_is_made_as_the_target_says_and_deleted_again() {
    run_test(async || {
        let fake = fake().await;
        let settings = settings(&fake);
        run_up(&fake, &settings).await.unwrap();
        check_made(&fake);
        let cluster = fake.cluster(CLUSTER).unwrap();
        let labels = json!({ "team": "hpc", "flux-framework-org-burst": "burst-0123456789ab" });
        assert_eq!(cluster["resourceLabels"], labels);
        let pool = &cluster["nodePools"][0];
        assert_eq!((&pool["name"], &pool["initialNodeCount"]), (&json!("burst"), &json!(2)));
        assert_eq!(pool["config"]["machineType"], "c3-standard-8");
        assert_eq!(pool["config"]["serviceAccount"], "nodes@science.example");
        assert_eq!(pool["config"]["resourceLabels"], labels);
        let secret = fake.object(SECRET).unwrap();
        assert_eq!(secret["metadata"]["labels"]["flux-framework.org/burst"], "burst-0123456789ab");
        run_down(&settings).await.unwrap();
        assert!(fake.clusters().is_empty());
    });
}

/// The account in the new cluster has exactly the rights of the example.
#[test]
fn brokers_have_the_rights_of_a_target_account() {
    run_test(async || {
        let fake = fake().await;
        run_up(&fake, &settings(&fake)).await.unwrap();
        let account: Vec<Value> = serde_saphyr::from_multiple(ACCOUNT).unwrap();
        let of_kind = |kind: &str| account.iter().find(|it| it["kind"] == kind).unwrap();
        let role = fake.object(&format!("{INNER}/roles/flux-burst")).unwrap();
        assert_eq!(role["rules"], of_kind("Role")["rules"]);
        let binding = fake.object(&format!("{INNER}/rolebindings/flux-burst")).unwrap();
        assert_eq!(binding["subjects"], of_kind("RoleBinding")["subjects"]);
        assert_eq!(binding["roleRef"], of_kind("RoleBinding")["roleRef"]);
        let kubeconfig = kubeconfig(&fake);
        assert_eq!(kubeconfig["contexts"][0]["context"]["namespace"], "default");
        assert_eq!(
            kubeconfig["clusters"][0]["cluster"]["server"],
            format!("{}/inside", fake.url())
        );
    });
}

#[test]
fn another_namespace_is_created() {
    run_test(async || {
        let fake = fake().await;
        let mut settings = settings(&fake);
        settings.target.namespace = "brokers".into();
        run_up(&fake, &settings).await.unwrap();
        assert!(fake.object("/inside/api/v1/namespaces/brokers").is_some());
        assert!(
            fake.object("/inside/api/v1/namespaces/brokers/serviceaccounts/flux-burst").is_some()
        );
        assert_eq!(kubeconfig(&fake)["contexts"][0]["context"]["namespace"], "brokers");
    });
}

#[test]
fn a_burst_that_grows_gets_more_nodes_and_one_that_shrinks_keeps_them() {
    run_test(async || {
        let fake = fake().await;
        let mut settings = settings(&fake);
        for (nodes, expected) in [(2, 2), (4, 4), (3, 4)] {
            settings.nodes = nodes;
            run_up(&fake, &settings).await.unwrap();
            assert_eq!(fake.cluster(CLUSTER).unwrap()["currentNodeCount"], expected, "{nodes}");
        }
        assert_eq!(fake.created(), 1);
    });
}

#[test]
fn the_autoscaler_changes_the_size_if_the_target_scales() {
    run_test(async || {
        let fake = fake().await;
        let mut settings = settings(&fake);
        settings.target.autoscaling = Some((1, 8));
        run_up(&fake, &settings).await.unwrap();
        let autoscaling = &fake.cluster(CLUSTER).unwrap()["nodePools"][0]["autoscaling"];
        assert_eq!(*autoscaling, json!({ "enabled": true, "minNodeCount": 1, "maxNodeCount": 8 }));
        settings.nodes = 8;
        run_up(&fake, &settings).await.unwrap();
        assert!(!fake.methods().contains(&"SetNodePoolSize".to_owned()));
    });
}

#[test]
fn leftovers_are_listed_and_other_clusters_are_not() {
    run_test(async || {
        let fake = fake().await;
        let settings = settings(&fake);
        run_up(&fake, &settings).await.unwrap();
        let other = json!({ "name": "other", "status": 2, "resourceLabels": { "team": "hpc" } });
        fake.set_cluster("projects/science/locations/us-central1-a/clusters/other", other);
        fake.fail("ListClusters", Fault::LostAfter);
        let lines = list(&Google::of(&settings).await.unwrap(), PACE).await.unwrap();
        assert_eq!(lines, ["burst-0123456789ab RUNNING 2 2026-01-01T00:00:00+00:00"]);
    });
}

/// The role of the guide has no verb more than the program needs: to apply an object that does not exist,
/// Kubernetes asks for `create` and `patch`.
#[test]
fn the_role_of_the_guide_at_home_is_that_of_the_requests_there() {
    run_test(async || {
        let fake = fake().await;
        whole_way(&fake).await;
        let called = fake.methods();
        let at_home: BTreeSet<&str> =
            called.iter().filter_map(|it| it.strip_prefix("home ")).collect();
        assert_eq!(at_home, BTreeSet::from(["PATCH secrets"]));
        let role = "kubectl create role gke-maker --verb create,patch --resource secrets\n";
        assert!(GUIDE.contains(role), "the guide has another role");
    });
}

/// A request of Google's API, or of the API of a new cluster, and the permissions that Google requires.
const PERMISSIONS: [(&str, &[&str]); 11] = [
    ("GetCluster", &["container.clusters.get"]),
    ("CreateCluster", &["container.clusters.create"]),
    ("DeleteCluster", &["container.clusters.delete"]),
    ("SetNodePoolSize", &["container.clusters.update"]),
    ("ListClusters", &["container.clusters.list"]),
    ("GetOperation", &["container.operations.get"]),
    ("inside POST namespaces", &["container.namespaces.create"]),
    ("inside POST serviceaccounts", &["container.serviceAccounts.create"]),
    ("inside POST serviceaccounts/token", &["container.serviceAccounts.createToken"]),
    // Who gives rights away must have them, or these.
    ("inside POST roles", &["container.roles.create", "container.roles.escalate"]),
    ("inside POST rolebindings", &["container.roleBindings.create", "container.roles.bind"]),
];

/// Everything that the program does with Google.
async fn whole_way(fake: &FakeGoogle) {
    let mut settings = settings(fake);
    settings.target.namespace = "brokers".into();
    run_up(fake, &settings).await.unwrap();
    settings.nodes = 4;
    run_up(fake, &settings).await.unwrap();
    list(&Google::of(&settings).await.unwrap(), PACE).await.unwrap();
    run_down(&settings).await.unwrap();
}

#[test]
fn the_permissions_of_the_guide_are_those_of_the_methods_that_are_called() {
    run_test(async || {
        let fake = fake().await;
        whole_way(&fake).await;
        let called: BTreeSet<String> = fake.methods().into_iter().collect();
        let mut needed = BTreeSet::new();
        for method in called.iter().filter(|it| *it != "token" && !it.starts_with("home ")) {
            let known = PERMISSIONS.iter().find(|(name, _)| name == method);
            let (_, permissions) =
                known.unwrap_or_else(|| panic!("{method} has no permission here"));
            needed.extend(permissions.iter().map(|it| (*it).to_owned()));
        }
        let (_, role) = GUIDE.split_once("includedPermissions:\n").expect("the guide has a role");
        let lines = role.lines().map_while(|line| line.strip_prefix("  - "));
        let documented: BTreeSet<String> = lines.map(str::to_owned).collect();
        assert_eq!(documented, needed);
    });
}
