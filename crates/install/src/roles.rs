//! What the operator may do: what it does, and nothing else.
//!
//! No wildcard and no `pods/exec`. Secrets can be made and one can be read whose
//! name is known, but never listed. Tests on a real API server run the operator
//! with these rules, so one that is missing shows.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{LEASE, OPERATOR, Settings, labels, unnamespaced, value};

const RBAC: &str = "rbac.authorization.k8s.io";
const FLUX: &str = "flux-framework.org";

/// All roles, and who has them.
pub(crate) fn roles(settings: &Settings) -> Vec<Value> {
    let mut objects = match &settings.watched {
        // Without a right that reaches beyond the namespace: the operator then
        // cannot ask what nodes can do, and takes the way that works on all.
        Some(watched) => namespaced(settings, watched, "operator-manager", manager()),
        None => [
            cluster_wide(settings, "manager", manager()),
            cluster_wide(settings, "node-reader", node_reader()),
            cluster_wide(settings, "queue-reader", queue_reader()),
        ]
        .concat(),
    };
    objects.extend(namespaced(
        settings,
        &settings.namespace,
        "operator-leader-election",
        leader_election(),
    ));
    objects.extend(users(settings));
    objects
}

/// What carrying out MiniClusters needs, in every namespace that has some.
fn manager() -> Vec<PolicyRule> {
    vec![
        // The main object: watched, labelled, and deleted when its time is over. Made for
        // a FluxJob that a queue has admitted.
        rule(FLUX, &["miniclusters"], &["create", "get", "list", "watch", "patch", "delete"]),
        // Watched; deleted when their time is over or another one has taken their place.
        // A FluxSetup is patched, to keep it while jobs have room of it.
        rule(FLUX, &["fluxjobs"], &["list", "watch", "delete"]),
        rule(FLUX, &["fluxsetups"], &["list", "watch", "patch", "delete"]),
        // A reconciliation puts a whole status in the place of the last one; records of
        // admissions, and what is said of an object that cannot be read, are patched in.
        rule(
            FLUX,
            &["miniclusters/status", "fluxjobs/status", "fluxsetups/status"],
            &["patch", "update"],
        ),
        // Ours name their owner and hold up its deletion. Where the admission plugin
        // OwnerReferencesPermissionEnforcement is on, that takes this right.
        rule(FLUX, &["miniclusters/finalizers", "fluxjobs/finalizers"], &["update"]),
        // What a namespace's own quota leaves for a job.
        rule("", &["resourcequotas"], &["list", "watch"]),
        // Created once; then size and suspension are patched. Deleted for a
        // replacement, and with a namespace that goes.
        rule("batch", &["jobs"], &["create", "get", "list", "watch", "patch", "delete"]),
        // The boot plan and the names of pods: applied (which is create and patch),
        // watched for drift, deleted when the plan has them no more.
        rule(
            "",
            &["configmaps", "services"],
            &["create", "get", "list", "watch", "patch", "delete"],
        ),
        // A cluster's keys: made once, read by name to check reports. Whoever could
        // list or watch Secrets could read those of everybody.
        rule("", &["secrets"], &["create", "get"]),
        // Watched for addresses and endings; their index becomes a label; a pod of
        // services beside the cluster is created and deleted.
        rule("", &["pods"], &["create", "list", "watch", "patch", "delete"]),
        // Whether a namespace is going, when the pods of a cluster in it do.
        rule("", &["namespaces"], &["get"]),
        // What users hear of.
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        // Why pods are not made (a quota, a policy) or do not start stands in Events alone.
        rule("", &["events"], &["list"]),
    ]
}

/// Whether nodes can mount images decides how pods get the agent and Flux. Nodes
/// belong to no namespace, so this is a role of its own that can be left out.
fn node_reader() -> Vec<PolicyRule> {
    vec![rule("", &["nodes"], &["list"])]
}

/// What belongs to no namespace and queues ask for: the labels that a selector of
/// namespaces looks at, the values of priorities, the room that nodes make, and who it is
/// that asks where a job stands. A role of its own that can be left out: then a queue
/// serves its own namespace, and priorities are numbers.
fn queue_reader() -> Vec<PolicyRule> {
    vec![
        rule("", &["namespaces", "nodes"], &["list", "watch"]),
        rule("scheduling.k8s.io", &["priorityclasses"], &["list", "watch"]),
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}

/// The Lease of the leading replica, in the operator's own namespace alone.
fn leader_election() -> Vec<PolicyRule> {
    let group = "coordination.k8s.io";
    let this = PolicyRule {
        resource_names: Some(vec![LEASE.to_owned()]),
        ..rule(group, &["leases"], &["get", "list", "watch", "update"])
    };
    // What does not exist yet has no name to be held to.
    vec![this, rule(group, &["leases"], &["create"])]
}

/// Who may edit or view a namespace may do so with its MiniClusters and FluxJobs. Queues
/// are an administrator's, and seen by all who see the namespace.
fn users(settings: &Settings) -> Vec<Value> {
    let view = ["get", "list", "watch"];
    let edit = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let role = |name: &str, aggregate_to: &[&str], rules: Vec<PolicyRule>| {
        let aggregated =
            aggregate_to.iter().map(|to| (format!("{RBAC}/aggregate-to-{to}"), "true".to_owned()));
        let labels: BTreeMap<String, String> = labels().into_iter().chain(aggregated).collect();
        let metadata = unnamespaced(settings.cluster_wide(name));
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
                rule(FLUX, &["miniclusters", "fluxjobs"], &edit),
                rule(FLUX, &["miniclusters/scale"], &["get", "patch", "update"]),
                rule(FLUX, &["miniclusters/status", "fluxjobs/status"], &["get"]),
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
                rule(FLUX, &["miniclusters/scale", "miniclusters/status"], &["get"]),
                rule(FLUX, &["fluxjobs/status", "fluxsetups/status"], &["get"]),
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

fn cluster_wide(settings: &Settings, name: &str, rules: Vec<PolicyRule>) -> Vec<Value> {
    let role = settings.cluster_wide(&format!("{name}-role"));
    let binding = ClusterRoleBinding {
        metadata: unnamespaced(settings.cluster_wide(&format!("{name}-rolebinding"))),
        role_ref: reference("ClusterRole", &role),
        subjects: Some(vec![subject(settings)]),
    };
    let role =
        ClusterRole { metadata: unnamespaced(role), rules: Some(rules), ..ClusterRole::default() };
    vec![value(&role), value(&binding)]
}

fn namespaced(
    settings: &Settings,
    namespace: &str,
    name: &str,
    rules: Vec<PolicyRule>,
) -> Vec<Value> {
    let within =
        |name: String| ObjectMeta { namespace: Some(namespace.to_owned()), ..unnamespaced(name) };
    let role = format!("{name}-role");
    let binding = RoleBinding {
        metadata: within(format!("{name}-rolebinding")),
        role_ref: reference("Role", &role),
        subjects: Some(vec![subject(settings)]),
    };
    vec![value(&Role { metadata: within(role), rules: Some(rules) }), value(&binding)]
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some(RBAC.into()), kind: kind.into(), name: name.into() }
}

fn subject(settings: &Settings) -> Subject {
    Subject {
        kind: "ServiceAccount".into(),
        name: OPERATOR.into(),
        namespace: Some(settings.namespace.clone()),
        ..Subject::default()
    }
}
