//! RBAC rules of the operator, the gateway and the burst controller: exactly what they do, and nothing else.
//!
//! No wildcard and no `pods/exec`. Secrets can be created, read by name and, by a burst controller that may
//! run programs, deleted, but never listed. Tests on a real API server run all three with these rules, so that
//! a missing rule is noticed.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    BURST_CONTROLLER, BurstClusters, GATEWAY, InstallSettings, LEASE, OPERATOR,
    cluster_scoped_metadata, labels, value,
};

const RBAC: &str = "rbac.authorization.k8s.io";
const FLUX: &str = "flux-framework.org";

/// All roles and their bindings.
pub(crate) fn roles(settings: &InstallSettings) -> Vec<Value> {
    let mut objects = match &settings.watched_namespace {
        // No permissions beyond the namespace: the operator then cannot query the nodes, and uses
        // the delivery method that works on all of them.
        Some(watched) => namespaced_role(settings, watched, "operator-manager", manager_rules()),
        None => [
            cluster_role(settings, "manager", manager_rules()),
            cluster_role(settings, "node-reader", node_reader_rules()),
            cluster_role(settings, "queue-reader", queue_reader_rules()),
        ]
        .concat(),
    };
    objects.extend(namespaced_role(
        settings,
        &settings.namespace,
        "operator-leader-election",
        leader_election_rules(),
    ));
    if settings.gateway && settings.watched_namespace.is_some() {
        let rules = vec![rule("discovery.k8s.io", &["endpointslices"], &["list", "watch"])];
        let name = "operator-gateway-reader";
        objects.extend(namespaced_role(settings, &settings.namespace, name, rules));
    }
    objects.extend(user_roles(settings));
    objects
}

/// The gateway's roles: it reads MiniClusters, and reports what it refuses.
pub(crate) fn gateway_roles(settings: &InstallSettings) -> Vec<Value> {
    let rules = vec![
        rule(FLUX, &["miniclusters"], &["list", "watch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ];
    match &settings.watched_namespace {
        Some(watched) => namespaced_role_of(settings, GATEWAY, watched, GATEWAY, rules),
        None => cluster_role_of(settings, GATEWAY, "gateway", rules),
    }
}

/// The burst controller's roles. It reads policies, Bursts and MiniClusters of all namespaces, and says
/// in the status of those that it does not serve that it does not. Everything else it may do only in
/// the namespaces that are listed.
pub(crate) fn burst_roles(settings: &InstallSettings) -> Vec<Value> {
    let reader = vec![
        rule(FLUX, &["burstpolicies", "bursts", "miniclusters"], &["list", "watch"]),
        rule(FLUX, &["burstpolicies/status", "bursts/status"], &["update"]),
    ];
    let mut objects = match &settings.watched_namespace {
        Some(watched) => {
            let name = "operator-burst-reader";
            namespaced_role_of(settings, BURST_CONTROLLER, watched, name, reader)
        }
        None => cluster_role_of(settings, BURST_CONTROLLER, "burst-reader", reader),
    };
    for namespace in &settings.burst_namespaces {
        // Another installation may serve the same namespace.
        let name = settings.cluster_scoped_name("burst-controller");
        let mut rules = burst_rules();
        rules.extend(cluster_rules(settings));
        objects.extend(namespaced_role_of(settings, BURST_CONTROLLER, namespace, &name, rules));
    }
    objects
}

/// What the burst controller does in a namespace that it serves.
fn burst_rules() -> Vec<PolicyRule> {
    vec![
        // A policy's Bursts are created, resized and given back; a Burst has a finalizer.
        rule(FLUX, &["bursts"], &["create", "patch", "delete"]),
        // What a Burst has used is added to the record of its policy.
        rule(FLUX, &["burstpolicies"], &["get"]),
        // A Burst is owned by its policy, and blocks the deletion of it.
        rule(FLUX, &["burstpolicies/finalizers"], &["update"]),
        // Get: to read pending jobs from the operator. Patch: an invitation and a finalizer, and to have
        // the operator hand over a job with its environment. Create and
        // delete: joiners, for bursts in the same Kubernetes cluster.
        rule(FLUX, &["miniclusters"], &["create", "get", "patch", "delete"]),
        // The instance that brokers elsewhere join, and its keys; kubeconfigs of targets.
        rule("batch", &["jobs"], &["get"]),
        rule("", &["secrets"], &["get"]),
        // The output of a job that has run in an instance of its own.
        rule("", &["configmaps"], &["create"]),
        // What a user would want to hear of.
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

/// What the burst controller needs to have Kubernetes clusters made.
fn cluster_rules(settings: &InstallSettings) -> Vec<PolicyRule> {
    let BurstClusters { cluster_api: has_cluster_api, commands } = settings.burst_clusters;
    let has_programs = commands || settings.gke_image.is_some();
    let cluster_api = [
        rule("cluster.x-k8s.io", &["clusters"], &["create", "get", "patch", "delete"]),
        // Templates of Clusters.
        rule("", &["configmaps"], &["get"]),
    ];
    let programs = [
        // A Job that makes a cluster is suspended before another one deletes the cluster.
        rule("batch", &["jobs"], &["create", "list", "patch", "delete"]),
        // The kubeconfig that the program has written.
        rule("", &["secrets"], &["delete"]),
    ];
    let cluster_api = cluster_api.into_iter().filter(|_| has_cluster_api);
    cluster_api.chain(programs.into_iter().filter(|_| has_programs)).collect()
}

/// What managing MiniClusters requires, in every namespace that has some.
fn manager_rules() -> Vec<PolicyRule> {
    vec![
        // MiniClusters are watched, labelled, and deleted when their time to live is over; they are
        // created for FluxJobs that a queue has admitted.
        rule(FLUX, &["miniclusters"], &["create", "get", "list", "watch", "patch", "delete"]),
        // Watched; deleted when their time to live is over or they were replaced. A FluxSetup gets
        // a finalizer while jobs use its quota.
        rule(FLUX, &["fluxjobs"], &["list", "watch", "delete"]),
        rule(FLUX, &["fluxsetups"], &["list", "watch", "patch", "delete"]),
        // MiniClusters that they select get spare ranks.
        rule(FLUX, &["burstpolicies"], &["list", "watch"]),
        // A reconciliation replaces the whole status; admission records, and the status of an
        // object that cannot be read, are patched.
        rule(
            FLUX,
            &["miniclusters/status", "fluxjobs/status", "fluxsetups/status"],
            &["patch", "update"],
        ),
        // Our objects have owner references that block the deletion of the owner. The admission
        // plugin OwnerReferencesPermissionEnforcement allows that only with this permission.
        rule(FLUX, &["miniclusters/finalizers", "fluxjobs/finalizers"], &["update"]),
        // What the namespace's ResourceQuota leaves for a job.
        rule("", &["resourcequotas"], &["list", "watch"]),
        // Created once; afterwards size and suspension are patched. Deleted to be replaced, and
        // with a namespace that is being deleted.
        rule("batch", &["jobs"], &["create", "get", "list", "watch", "patch", "delete"]),
        // The boot plan, and the Services for the host names of pods: applied (create and patch),
        // watched for drift, deleted when they are no longer in the plan.
        rule(
            "",
            &["configmaps", "services"],
            &["create", "get", "list", "watch", "patch", "delete"],
        ),
        // The endpoints of a Service for brokers of other Kubernetes clusters, which are pods of the
        // gateway and in another namespace.
        rule(
            "discovery.k8s.io",
            &["endpointslices"],
            &["create", "get", "list", "watch", "patch", "delete"],
        ),
        // A cluster's keys: created once, read by name to verify reports. With list or watch the
        // operator could read the Secrets of all users.
        rule("", &["secrets"], &["create", "get"]),
        // Watched for addresses and exit codes; their index becomes a label; a pod for services is
        // created and deleted.
        rule("", &["pods"], &["create", "list", "watch", "patch", "delete"]),
        // When pods of a cluster are being deleted: whether their namespace is being deleted too.
        rule("", &["namespaces"], &["get"]),
        // Events for users.
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        // Why pods are not created (a quota, a policy) or do not start is only in Events.
        rule("", &["events"], &["list"]),
    ]
}

/// How the agent and Flux are delivered to pods depends on whether nodes can mount images. Nodes
/// are cluster-scoped, so this is a separate role, which can be omitted.
fn node_reader_rules() -> Vec<PolicyRule> {
    vec![rule("", &["nodes"], &["list"])]
}

/// Cluster-scoped objects that queues need: the labels of namespaces for selectors, the values of
/// PriorityClasses, the capacity of nodes, and reviews of the tokens of callers. This is a separate
/// role, which can be omitted: then a queue serves only its own namespace, and jobs cannot use
/// PriorityClasses, only numbers.
fn queue_reader_rules() -> Vec<PolicyRule> {
    vec![
        rule("", &["namespaces", "nodes"], &["list", "watch"]),
        rule("scheduling.k8s.io", &["priorityclasses"], &["list", "watch"]),
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}

/// The leader's Lease, in the operator's own namespace only.
fn leader_election_rules() -> Vec<PolicyRule> {
    let group = "coordination.k8s.io";
    let this = PolicyRule {
        resource_names: Some(vec![LEASE.to_owned()]),
        ..rule(group, &["leases"], &["get", "list", "watch", "update"])
    };
    // `create` cannot be restricted to a name.
    vec![this, rule(group, &["leases"], &["create"])]
}

/// Users who may edit or view a namespace may do the same with its MiniClusters and FluxJobs.
/// Queues are edited by administrators, and visible to all who may view the namespace.
fn user_roles(settings: &InstallSettings) -> Vec<Value> {
    let view = ["get", "list", "watch"];
    let edit = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let role = |name: &str, aggregate_to: &[&str], rules: Vec<PolicyRule>| {
        let aggregated =
            aggregate_to.iter().map(|to| (format!("{RBAC}/aggregate-to-{to}"), "true".to_owned()));
        let labels: BTreeMap<String, String> = labels().into_iter().chain(aggregated).collect();
        let metadata = cluster_scoped_metadata(settings.cluster_scoped_name(name));
        value(&ClusterRole {
            metadata: ObjectMeta { labels: Some(labels), ..metadata },
            rules: Some(rules),
            ..ClusterRole::default()
        })
    };
    vec![
        role(
            "minicluster-editor",
            &["edit", "admin"],
            vec![
                rule(FLUX, &["miniclusters", "fluxjobs", "bursts", "burstpolicies"], &edit),
                rule(FLUX, &["miniclusters/scale"], &["get", "patch", "update"]),
                rule(FLUX, &["miniclusters/status", "fluxjobs/status"], &["get"]),
                rule(FLUX, &["bursts/status", "burstpolicies/status"], &["get"]),
            ],
        ),
        role(
            "fluxsetup-editor",
            &["admin"],
            vec![rule(FLUX, &["fluxsetups"], &edit), rule(FLUX, &["fluxsetups/status"], &["get"])],
        ),
        role(
            "minicluster-viewer",
            &["view"],
            vec![
                rule(FLUX, &["miniclusters", "fluxjobs", "fluxsetups"], &view),
                rule(FLUX, &["bursts", "burstpolicies"], &view),
                rule(FLUX, &["miniclusters/scale", "miniclusters/status"], &["get"]),
                rule(FLUX, &["fluxjobs/status", "fluxsetups/status"], &["get"]),
                rule(FLUX, &["bursts/status", "burstpolicies/status"], &["get"]),
            ],
        ),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn cluster_role(settings: &InstallSettings, name: &str, rules: Vec<PolicyRule>) -> Vec<Value> {
    cluster_role_of(settings, OPERATOR, name, rules)
}

fn cluster_role_of(
    settings: &InstallSettings,
    account: &str,
    name: &str,
    rules: Vec<PolicyRule>,
) -> Vec<Value> {
    let role = settings.cluster_scoped_name(&format!("{name}-role"));
    let binding = ClusterRoleBinding {
        metadata: cluster_scoped_metadata(
            settings.cluster_scoped_name(&format!("{name}-rolebinding")),
        ),
        role_ref: reference("ClusterRole", &role),
        subjects: Some(vec![subject(settings, account)]),
    };
    let role = ClusterRole {
        metadata: cluster_scoped_metadata(role),
        rules: Some(rules),
        ..ClusterRole::default()
    };
    vec![value(&role), value(&binding)]
}

fn namespaced_role(
    settings: &InstallSettings,
    namespace: &str,
    name: &str,
    rules: Vec<PolicyRule>,
) -> Vec<Value> {
    namespaced_role_of(settings, OPERATOR, namespace, name, rules)
}

fn namespaced_role_of(
    settings: &InstallSettings,
    account: &str,
    namespace: &str,
    name: &str,
    rules: Vec<PolicyRule>,
) -> Vec<Value> {
    let within = |name: String| ObjectMeta {
        namespace: Some(namespace.to_owned()),
        ..cluster_scoped_metadata(name)
    };
    let role = format!("{name}-role");
    let binding = RoleBinding {
        metadata: within(format!("{name}-rolebinding")),
        role_ref: reference("Role", &role),
        subjects: Some(vec![subject(settings, account)]),
    };
    vec![value(&Role { metadata: within(role), rules: Some(rules) }), value(&binding)]
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some(RBAC.into()), kind: kind.into(), name: name.into() }
}

fn subject(settings: &InstallSettings, account: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".into(),
        name: account.into(),
        namespace: Some(settings.namespace.clone()),
        ..Subject::default()
    }
}
