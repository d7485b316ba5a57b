//! Clusters that are made for a Burst.

use flux_operator_api::burst::{ClusterApiTarget, CommandTarget};
use flux_operator_api::{Burst, Reason};
use flux_operator_plan::bursting::{
    CommandJobs, Deletion, Presence, cluster_api_cluster, cluster_api_presence, cluster_nodes,
    cluster_secret, command_presence, down_job, object_name, up_job,
};
use k8s_openapi::api::batch::v1::Job;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::world::{World, burst};

#[test]
fn a_burst_waits_for_its_cluster_and_says_how_far_it_is() {
    let mut world = World::new(json!({}));
    (world.makes_cluster, world.is_made) = (true, false);
    world.settle();
    assert_eq!(world.reason("Prepared"), "False ClusterComing");
    assert_eq!(world.status().phase, "ClusterComing");
    let creations = |world: &World| world.steps.iter().filter(|it| **it == "Create").count();
    assert_eq!(creations(&world), 1, "it is asked for once");
    world.is_made = true;
    world.settle();
    assert_eq!(world.reason("Ready"), "True Joined");
    assert_eq!(creations(&world), 2);
}

#[test]
fn a_cluster_that_is_still_being_made_can_be_given_back() {
    let mut world = World::new(json!({}));
    (world.makes_cluster, world.is_made) = (true, false);
    world.settle();
    world.delete_burst();
    world.settle();
    assert!(!world.has_any() && world.burst.is_none(), "{:?}", world.steps);
}

#[test]
fn a_policy_gives_back_a_cluster_that_could_not_be_made_and_a_user_is_told_to() {
    for owned in [true, false] {
        let mut world = World::new(json!({ "policy": "p" }));
        (world.makes_cluster, world.is_made) = (true, false);
        if owned {
            world.own("p");
        }
        world.settle();
        world.target.job_failure = Some("no quota".into());
        world.reconcile(false);
        assert_eq!(world.reason("Prepared"), "False ClusterFailed");
        world.settle();
        assert_eq!(world.burst.is_none(), owned);
    }
}

fn cluster_api(target: Value) -> ClusterApiTarget {
    serde_json::from_value(target).unwrap()
}

fn applied(target: Value, template: Option<&str>) -> Result<Value, String> {
    let burst = burst(&json!({}));
    let cluster = cluster_api_cluster(&burst, &cluster_api(target), template, 2);
    let cluster = cluster.map_err(|failure| {
        assert_eq!(failure.reason, Reason::ClusterRefused);
        failure.message
    })?;
    assert_eq!(cluster_nodes(&cluster), Some(2));
    assert_eq!(cluster.name_any(), object_name(&burst));
    Ok(serde_json::to_value(cluster).unwrap())
}

#[test]
fn a_cluster_of_a_class_has_its_nodes_and_variables() {
    let target = json!({ "class": { "name": "quick", "namespace": "classes", "workers": "w" },
        "version": "v1.34.0", "variables": { "zone": "a", "disk": { "size": 3 } } });
    let cluster = applied(target, None).unwrap();
    assert_eq!(cluster["apiVersion"], "cluster.x-k8s.io/v1beta2");
    assert_eq!(
        cluster["spec"]["topology"],
        json!({
            "classRef": { "name": "quick", "namespace": "classes" },
            "version": "v1.34.0",
            "controlPlane": { "replicas": 1 },
            "workers": { "machineDeployments": [{ "class": "w", "name": "burst", "replicas": 2 }] },
            "variables": [{ "name": "disk", "value": { "size": 3 } }, { "name": "zone", "value": "a" }],
        })
    );
    assert_eq!(cluster["metadata"]["ownerReferences"][0]["kind"], "Burst");
}

const TEMPLATE: &str = "
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: ${NAME}
  namespace: ${NAMESPACE}
  labels: {team: hpc, flux-framework.org/burst: mine}
spec:
  topology:
    workers: {machineDeployments: [{name: md, replicas: ${NODES}}]}
";

#[test]
fn a_template_is_used_as_it_is_but_our_labels_win() {
    let cluster = applied(json!({ "template": { "configMap": "c" } }), Some(TEMPLATE)).unwrap();
    let workers = &cluster["spec"]["topology"]["workers"]["machineDeployments"][0];
    assert_eq!(workers, &json!({ "name": "md", "replicas": 2 }));
    let labels = &cluster["metadata"]["labels"];
    assert_eq!(labels["team"], "hpc");
    assert_eq!(labels["flux-framework.org/burst"], object_name(&burst(&json!({}))));
}

/// It is created with the controller's rights: anything but a Cluster of the namespace would be more than
/// the user may do.
#[test]
fn a_template_of_anything_else_is_refused() {
    for (change, says) in [
        (("kind: Cluster", "kind: Machine"), "not a Cluster of cluster.x-k8s.io/v1beta2"),
        (("cluster.x-k8s.io/v1beta2", "v1"), "not a Cluster of"),
        (("${NAME}\n", "other\n"), "metadata.name is not ${NAME}"),
        (("${NAMESPACE}", "kube-system"), "metadata.namespace is not ${NAMESPACE}"),
        (("spec:", "---\nspec:"), "not one Cluster of"),
        (("spec:", ": ["), "not one Cluster of"),
    ] {
        let template = TEMPLATE.replacen(change.0, change.1, 1);
        let target = json!({ "template": { "configMap": "c" } });
        let refusal = applied(target, Some(&template)).unwrap_err();
        assert!(refusal.contains(says), "{refusal}");
    }
}

#[test]
fn a_cluster_is_ready_when_its_control_plane_is_and_says_what_it_waits_for() {
    let presence = |cluster: Value| {
        let mut object = json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "name": "c" } });
        flux_operator_testkit::merge(&mut object, &cluster);
        cluster_api_presence(&serde_json::from_value::<DynamicObject>(object).unwrap())
    };
    let coming = |text: &str| Presence::ClusterComing(text.to_owned());
    assert_eq!(presence(json!({})), coming("Cluster c is Pending"));
    let status = json!({ "status": { "phase": "Provisioning", "conditions": [
        { "type": "Available", "status": "False", "message": "later" },
        { "type": "InfrastructureReady", "status": "False", "message": "no quota\nfor VMs" },
        { "type": "TopologyReconciled", "status": "True", "message": "" },
    ] } });
    assert_eq!(presence(status), coming("Cluster c is Provisioning: no quota for VMs"));
    let ready = json!({ "status": { "initialization": { "controlPlaneInitialized": true } } });
    assert_eq!(presence(ready.clone()), Presence::ClusterReady);
    let mut leaving = ready;
    leaving["metadata"] = json!({ "deletionTimestamp": "2026-05-04T10:00:00Z" });
    assert_eq!(presence(leaving), Presence::Leaving);
}

fn command() -> CommandTarget {
    serde_json::from_value(json!({ "image": "i", "up": ["up", "a b"], "down": ["down"],
        "serviceAccount": "maker", "env": [{ "name": "ZONE", "value": "a" },
            { "name": "BURST_NAME", "value": "mine" }] }))
    .unwrap()
}

#[test]
fn a_program_gets_its_words_as_they_are_and_what_it_has_to_make() {
    let burst = burst(&json!({}));
    let job = up_job(&burst, &command(), 3);
    let pod = job.spec.clone().unwrap().template.spec.unwrap();
    assert_eq!(pod.service_account_name.as_deref(), Some("maker"));
    let container = &pod.containers[0];
    assert_eq!(container.command, Some(vec!["up".to_owned(), "a b".to_owned()]));
    let environment = container.env.clone().unwrap();
    let value = |name: &str| {
        let all: Vec<_> = environment.iter().filter(|it| it.name == name).collect();
        assert_eq!(all.len(), 1, "{name}");
        all[0].value.clone().unwrap()
    };
    assert_eq!(value("ZONE"), "a");
    assert_eq!(value("BURST_NAME"), object_name(&burst));
    assert_eq!((value("BURST_NODES"), value("BURST_NAMESPACE")), ("3".into(), "ns".into()));
    assert_eq!(value("BURST_SECRET"), cluster_secret(&burst));
}

/// A Job with a condition, and this many pods that run.
fn with_condition(mut job: Job, condition: Option<&str>, active: i32) -> Job {
    let conditions: Vec<Value> = condition
        .iter()
        .map(|it| json!({ "type": it, "status": "True", "message": "it ended" }))
        .collect();
    let status = json!({ "active": active, "conditions": conditions });
    job.spec.as_mut().unwrap().suspend = Some(condition == Some("Suspended"));
    job.status = Some(serde_json::from_value(status).unwrap());
    job
}

fn jobs(burst: &Burst, up: &[(Option<&str>, i32)], down: Option<Option<&str>>) -> CommandJobs {
    let ups = up.iter().zip(1..);
    let mut all: Vec<Job> = ups
        .map(|((condition, active), nodes)| {
            with_condition(up_job(burst, &command(), nodes), *condition, *active)
        })
        .collect();
    all.extend(down.map(|it| with_condition(down_job(burst, &command()), it, 0)));
    // A Job of the MiniCluster's own is none of them.
    let mut other = up_job(burst, &command(), 1);
    other.meta_mut().name = Some("other-up-1".into());
    all.push(other);
    CommandJobs::of(burst, all)
}

#[test]
fn a_program_is_done_when_it_has_finished_and_written_the_secret() {
    let burst = burst(&json!({}));
    let presence = |up: &[(Option<&str>, i32)], has_secret| {
        command_presence(&burst, &jobs(&burst, up, None), has_secret)
    };
    assert_eq!(presence(&[], false), (Presence::Nothing, None));
    let (coming, failure) = presence(&[(None, 1)], true);
    assert!(matches!(coming, Presence::ClusterComing(_)) && failure.is_none());
    assert_eq!(presence(&[(Some("Complete"), 0)], true), (Presence::ClusterReady, None));
    // It grows: brokers of the first nodes are there.
    let grows = presence(&[(Some("Complete"), 0), (None, 1)], true);
    assert_eq!(grows, (Presence::ClusterReady, None));
    let (_, failure) = presence(&[(Some("Complete"), 0)], false);
    assert!(failure.unwrap().contains("has not written Secret"));
    let (_, failure) = presence(&[(Some("Failed"), 0)], false);
    assert!(failure.unwrap().starts_with("it ended; see kubectl logs -n ns job/burst-"));
}

#[test]
fn nodes_that_a_program_could_not_add_do_not_end_the_burst() {
    let burst = burst(&json!({}));
    let grows = jobs(&burst, &[(Some("Complete"), 0), (Some("Failed"), 0)], None);
    let (presence, failure) = command_presence(&burst, &grows, true);
    assert_eq!(presence, Presence::ClusterReady);
    assert!(failure.unwrap().contains("-up-2"));
}

/// It would choose which nodes to delete, and jobs may run on them.
#[test]
fn a_program_is_run_for_more_nodes_and_never_for_fewer() {
    let burst = burst(&json!({}));
    let made = jobs(&burst, &[(Some("Complete"), 0), (Some("Complete"), 0)], None);
    let next = |nodes| made.next_up(&burst, &command(), nodes);
    assert_eq!((next(1), next(2)), (None, None));
    assert_eq!(next(3), Some(up_job(&burst, &command(), 3)));
    let none = jobs(&burst, &[], None);
    assert_eq!(none.next_up(&burst, &command(), 1), Some(up_job(&burst, &command(), 1)));
}

#[test]
fn a_cluster_is_deleted_only_when_no_program_makes_it_any_more() {
    let burst = burst(&json!({}));
    let step = |up: &[(Option<&str>, i32)], down: Option<Option<&str>>| {
        let jobs = jobs(&burst, up, down);
        let short = |job: &Job| job.name_any().replace(&object_name(&burst), "");
        let step = match jobs.next_deletion() {
            Deletion::StopUp(jobs) => {
                let names: Vec<String> = jobs.into_iter().map(short).collect();
                format!("StopUp {}", names.join(" "))
            }
            Deletion::RetryDown(job, why) => format!("RetryDown {} {why}", short(job)),
            other => format!("{other:?}"),
        };
        (step, command_presence(&burst, &jobs, true).0)
    };
    let ready = Presence::ClusterReady;
    let complete = (Some("Complete"), 0);
    let cases = [
        (step(&[], None), ("RemoveRecords", Presence::Nothing)),
        (step(&[complete, (None, 1)], None), ("StopUp -up-2", ready.clone())),
        (step(&[complete, (Some("Suspended"), 1)], None), ("Wait", ready.clone())),
        (step(&[complete, (Some("Suspended"), 0)], None), ("RunDown", ready.clone())),
        (step(&[complete, (Some("Failed"), 0)], None), ("RunDown", ready)),
        (step(&[complete], Some(None)), ("Wait", Presence::Leaving)),
        (
            step(&[complete], Some(Some("Failed"))),
            ("RetryDown -down it ended", Presence::ClusterDown),
        ),
        (step(&[complete], Some(Some("Complete"))), ("RemoveRecords", Presence::ClusterDown)),
        // Killed before the last one was deleted.
        (step(&[], Some(Some("Complete"))), ("RemoveRecords", Presence::ClusterDown)),
    ];
    for ((step, presence), expected) in cases {
        assert_eq!((step.as_str(), presence), expected);
    }
}
