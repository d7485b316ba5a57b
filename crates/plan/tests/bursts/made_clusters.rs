//! Clusters that are made for a Burst.

use flux_operator_api::burst::{ClusterApiTarget, CommandTarget};
use flux_operator_api::{Burst, Reason};
use flux_operator_plan::bursting::{
    ApiCluster, CommandJobs, Deletion, Growth, Presence, cluster_api_cluster, cluster_api_presence,
    cluster_nodes, cluster_secret, command_presence, down_job, is_command_job, may_exist,
    needs_permission, object_name, remote_secret_name, up_job,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::world::{World, burst, failure, start};

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
        world.target.presence = Presence::ClusterFailed("no quota".into());
        world.reconcile(false);
        assert_eq!(world.reason("Prepared"), "False ClusterFailed");
        let why = world.deleted_for.clone();
        assert_eq!(why.as_deref(), owned.then_some("its cluster could not be made: no quota"));
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
    assert_eq!(cluster.name_any(), object_name(&burst));
    let cluster = serde_json::to_value(cluster).unwrap();
    let observed: ApiCluster = serde_json::from_value(cluster.clone()).unwrap();
    assert_eq!(cluster_nodes(&observed), Some(2));
    Ok(cluster)
}

#[test]
fn a_cluster_of_a_class_has_its_nodes_and_variables() {
    let target = json!({ "class": { "name": "quick", "workers": "w" },
        "version": "v1.34.0", "variables": { "zone": "a", "disk": { "size": 3 } } });
    let cluster = applied(target, None).unwrap();
    assert_eq!(cluster["apiVersion"], "cluster.x-k8s.io/v1beta2");
    assert_eq!(
        cluster["spec"]["topology"],
        json!({
            "classRef": { "name": "quick" },
            "version": "v1.34.0",
            "workers": { "machineDeployments": [{ "class": "w", "name": "burst", "replicas": 2 }] },
            "variables": [{ "name": "disk", "value": { "size": 3 } }, { "name": "zone", "value": "a" }],
        })
    );
    assert_eq!(cluster["metadata"]["ownerReferences"][0]["kind"], "Burst");
}

/// A control plane of a cloud has no machines, and no field for their number.
#[test]
fn what_the_user_leaves_out_is_left_out() {
    let topology = |more: Value| {
        let mut target = json!({ "class": { "name": "q", "workers": "w" }, "version": "v1.34.0" });
        flux_operator_testkit::merge(&mut target, &more);
        applied(target, None).unwrap()["spec"]["topology"].clone()
    };
    let least = topology(json!({}));
    assert!(least.get("controlPlane").is_none() && least.get("variables").is_none(), "{least}");
    let three = topology(json!({ "class": { "controlPlaneMachines": 3 } }));
    assert_eq!(three["controlPlane"], json!({ "replicas": 3 }));
}

#[test]
fn large_variables_are_refused() {
    let variables = json!({ "zone": "a".repeat(ClusterApiTarget::MAX_TEXT) });
    let target = json!({ "class": { "name": "q", "workers": "w" }, "version": "v1.34.0",
        "variables": variables });
    let refusal = applied(target, None).unwrap_err();
    assert!(refusal.contains("its variables have 65542 bytes in total"), "{refusal}");
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
    let large = format!("# {}\nspec:", "-".repeat(ClusterApiTarget::MAX_TEXT));
    for (change, says) in [
        (("kind: Cluster", "kind: Machine"), "not a Cluster of cluster.x-k8s.io/v1beta2"),
        (("cluster.x-k8s.io/v1beta2", "v1"), "not a Cluster of"),
        (("${NAME}\n", "other\n"), "metadata.name is not ${NAME}"),
        (("${NAMESPACE}", "kube-system"), "metadata.namespace is not ${NAMESPACE}"),
        (
            ("topology:\n", "topology:\n    classRef: {name: c, namespace: classes}\n"),
            "its class is of another namespace",
        ),
        (("spec:", "---\nspec:"), "not one Cluster of"),
        (("spec:", ": ["), "not one Cluster of"),
        (("spec:", &large), "its template has"),
    ] {
        let template = TEMPLATE.replacen(change.0, change.1, 1);
        let target = json!({ "template": { "configMap": "c" } });
        let refusal = applied(target, Some(&template)).unwrap_err();
        assert!(refusal.contains(says), "{refusal}");
    }
}

#[test]
fn a_cluster_is_ready_when_its_control_plane_is_and_says_what_it_waits_for() {
    let of = |burst: &Burst, cluster: Value, has_secret| {
        let mut object = json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "name": "c" }, "spec": { "topology": {} } });
        flux_operator_testkit::merge(&mut object, &cluster);
        let observed: ApiCluster = serde_json::from_value(object).unwrap();
        cluster_api_presence(burst, &observed, has_secret)
    };
    let burst = burst(&json!({}));
    let presence = |cluster: Value| of(&burst, cluster, true);
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
    let secret = cluster_secret(&burst);
    let waits = coming(&format!("Cluster API has not written Secret {secret} yet"));
    assert_eq!(of(&burst, ready.clone(), false), waits);
    // It was there before: credentials are missing, and brokers may be fine.
    assert_eq!(of(&prepared(), ready.clone(), false), Presence::ClusterReady);
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
    let why_failed = |presence| match presence {
        Presence::ClusterFailed(why) => why,
        other => panic!("it has not failed: {other:?}"),
    };
    assert_eq!(presence(&[], false), Presence::Nothing);
    assert!(matches!(presence(&[(None, 1)], true), Presence::ClusterComing(_)));
    assert_eq!(presence(&[(Some("Complete"), 0)], true), Presence::ClusterReady);
    // It grows: brokers of the first nodes are there.
    let grows = presence(&[(Some("Complete"), 0), (None, 1)], true);
    assert_eq!(grows, Presence::ClusterReady);
    let why = why_failed(presence(&[(Some("Complete"), 0)], false));
    assert!(why.contains("has not written Secret"), "{why}");
    // The next program may replace it.
    let grows = presence(&[(Some("Complete"), 0), (None, 1)], false);
    assert!(matches!(grows, Presence::ClusterComing(_)), "{grows:?}");
    // It was there before: credentials are missing, and brokers may be fine.
    let complete = jobs(&burst, &[(Some("Complete"), 0)], None);
    assert_eq!(command_presence(&prepared(), &complete, false), Presence::ClusterReady);
    let why = why_failed(presence(&[(Some("Failed"), 0)], false));
    assert!(why.starts_with("it ended; see kubectl logs -n ns job/burst-"), "{why}");
}

/// Brokers of a Burst have the same label, and are not the Jobs of its program.
#[test]
fn jobs_of_programs_are_recognized_by_their_names() {
    let burst = burst(&json!({}));
    let name = object_name(&burst);
    for job in [up_job(&burst, &command(), 3), down_job(&burst, &command())] {
        assert!(is_command_job(&name, &job.name_any()), "{}", job.name_any());
        assert!(!is_command_job("burst-ffffffffffff", &job.name_any()), "it is of another Burst");
    }
    let brokers = [name.clone(), remote_secret_name(&name), format!("{name}-up-x")];
    for other in brokers.iter().map(String::as_str).chain(["", "other-down"]) {
        assert!(!is_command_job(&name, other), "{other}");
    }
}

#[test]
fn what_may_have_been_made_is_deleted_without_permission() {
    let burst_of = |was_made: bool, is_deleting: bool| {
        let mut burst = burst(&json!({}));
        let deleted = is_deleting.then(|| Time("2026-05-04T10:00:00Z".parse().unwrap()));
        burst.metadata.deletion_timestamp = deleted;
        let status = json!({ "clusterMade": was_made });
        burst.status = Some(serde_json::from_value(status).unwrap());
        burst
    };
    assert!(needs_permission(&burst(&json!({}))), "it has no status yet");
    assert!(needs_permission(&burst_of(false, false)));
    for (was_made, is_deleting) in [(true, false), (true, true), (false, true)] {
        assert!(!needs_permission(&burst_of(was_made, is_deleting)), "{was_made} {is_deleting}");
    }
}

/// Others may delete its Jobs and the Secret, by the label that all objects of a Burst have.
#[test]
fn the_cluster_of_a_run_is_neither_lost_nor_made_again_when_its_records_are_deleted() {
    let none = jobs(&burst(&json!({})), &[], None);
    let presence = |made: bool, run: Value| {
        let mut burst = burst(&json!({ "isolatedJob": "ƒ1" }));
        let status = json!({ "clusterMade": made, "run": run });
        burst.status = Some(serde_json::from_value(status).unwrap());
        command_presence(&burst, &none, false)
    };
    let running = json!({ "state": "Running", "mayHaveRun": true });
    assert_eq!(presence(true, running.clone()), Presence::ClusterReady);
    assert_eq!(presence(true, json!({ "state": "Finishing" })), Presence::ClusterReady);
    assert_eq!(presence(true, json!({ "state": "Starting" })), Presence::Nothing);
    assert_eq!(presence(false, running), Presence::Nothing, "it was deleted");
}

/// It would choose which nodes to delete, and jobs may run on them.
#[test]
fn a_program_is_run_for_more_nodes_and_never_for_fewer() {
    let burst = burst(&json!({}));
    let next = |up: &[(Option<&str>, i32)], nodes| {
        let jobs = jobs(&burst, up, None);
        match jobs.next_growth(&burst, &command(), nodes) {
            Growth::Run(job) => format!("Run {}", job.name_any().replace(&object_name(&burst), "")),
            Growth::Retry(job, why) => {
                format!("Retry {} {why}", job.name_any().replace(&object_name(&burst), ""))
            }
            other => format!("{other:?}"),
        }
    };
    let complete = (Some("Complete"), 0);
    assert_eq!(next(&[], 1), "Run -up-1");
    assert_eq!(next(&[complete, complete], 1), "Enough");
    assert_eq!(next(&[complete, complete], 2), "Enough");
    assert_eq!(next(&[complete, complete], 3), "Run -up-3");
    // Two programs would each undo what the other does.
    assert_eq!(next(&[complete, (None, 1)], 3), "Wait");
    assert_eq!(next(&[complete, (Some("Failed"), 0)], 2), "Retry -up-2 it ended");
    assert_eq!(next(&[complete, (Some("Failed"), 0)], 3), "Run -up-3");
}

#[test]
fn a_cluster_is_deleted_only_when_no_program_makes_it_any_more() {
    let burst = burst(&json!({}));
    let made = of_status(json!({ "clusterMade": true, "givingBackSince": "2026-05-04T10:00:00Z" }));
    let step = |up: &[(Option<&str>, i32)], down: Option<Option<&str>>| {
        let jobs = jobs(&burst, up, down);
        let short = |job: &Job| job.name_any().replace(&object_name(&burst), "");
        let step = match jobs.next_deletion(may_exist(&made)) {
            Deletion::StopUp(jobs) => {
                let names: Vec<String> = jobs.into_iter().map(short).collect();
                format!("StopUp {}", names.join(" "))
            }
            Deletion::RetryDown(job, why) => format!("RetryDown {} {why}", short(job)),
            other => format!("{other:?}"),
        };
        (step, command_presence(&made, &jobs, true))
    };
    let ready = Presence::ClusterReady;
    let complete = (Some("Complete"), 0);
    let cases = [
        // Others have deleted its Job.
        (step(&[], None), ("RunDown", ready.clone())),
        (step(&[complete, (None, 1)], None), ("StopUp -up-2", ready.clone())),
        (step(&[complete, (Some("Suspended"), 1)], None), ("Wait", ready.clone())),
        (step(&[complete, (Some("Suspended"), 0)], None), ("RunDown", ready.clone())),
        (step(&[complete, (Some("Failed"), 0)], None), ("RunDown", ready)),
        (step(&[complete], Some(None)), ("Wait", Presence::Leaving)),
        (
            step(&[complete], Some(Some("Failed"))),
            ("RetryDown -down it ended", Presence::ClusterDeletionFailed),
        ),
        (step(&[complete], Some(Some("Complete"))), ("RemoveRecords", Presence::ClusterDeleted)),
        // Killed before the last one was deleted.
        (step(&[], Some(Some("Complete"))), ("RemoveRecords", Presence::ClusterDeleted)),
    ];
    for ((step, presence), expected) in cases {
        assert_eq!((step.as_str(), presence), expected);
    }
    let none = jobs(&burst, &[], None);
    assert_eq!(none.next_deletion(may_exist(&burst)), Deletion::RemoveRecords);
    assert_eq!(command_presence(&burst, &none, true), Presence::Nothing);
}

/// A Burst whose brokers had everything that they need.
fn prepared() -> Burst {
    let mut burst = burst(&json!({}));
    let was = json!({ "conditions": [{ "type": "Prepared", "status": "True", "reason": "Prepared",
        "message": "", "lastTransitionTime": start().to_string() }] });
    burst.status = Some(serde_json::from_value(was).unwrap());
    burst
}

/// A Burst that is being deleted, with this status.
fn of_status(status: Value) -> Burst {
    let mut burst = burst(&json!({}));
    burst.metadata.deletion_timestamp = Some(Time(start()));
    burst.status = Some(serde_json::from_value(status).unwrap());
    burst
}

/// Kubernetes would delete them with the Burst, or before it, and what they have made would be forgotten.
#[test]
fn jobs_of_a_program_do_not_belong_to_the_burst() {
    let burst = burst(&json!({}));
    assert_eq!(up_job(&burst, &command(), 1).metadata.owner_references, None);
    assert_eq!(down_job(&burst, &command()).metadata.owner_references, None);
}

#[test]
fn what_a_program_has_made_is_recorded_until_it_was_deleted() {
    let command = json!({ "image": "i", "up": ["u"], "down": ["d"], "serviceAccount": "a" });
    let target = json!({ "name": "made", "maxNodes": 4, "kubeconfig": null, "command": command });
    let mut world = World::new(json!({ "target": target }));
    (world.makes_cluster, world.is_made) = (true, true);
    world.settle();
    assert_eq!(world.reason("Ready"), "True Joined");
    assert!(world.status().cluster_made);
    world.lingers = true;
    world.delete_burst();
    world.settle();
    assert!(world.status().cluster_made, "it is not known that it was deleted");
    world.target.presence = Presence::ClusterDeleted;
    world.reconcile(true);
    assert!(!world.status().cluster_made);
}

/// Nodes that are drained, or whose number is not known, are paid for.
#[test]
fn a_cluster_that_is_deleted_counts_until_it_is_gone() {
    let mut world = World::new(json!({}));
    world.settle();
    assert_eq!(world.status().counted_nodes, 2);
    world.hides_pods = true;
    world.lingers = true;
    world.delete_burst();
    world.settle();
    assert_eq!((world.status().counted_nodes, world.has_any()), (2, true));
    world.target.presence = Presence::Nothing;
    world.reconcile(true);
    assert_eq!(world.status().counted_nodes, 0);
}

/// A cloud asks for money for machines, whatever runs on them.
#[test]
fn machines_of_a_cluster_count_from_its_beginning_to_its_deletion() {
    let made = json!({ "name": "made", "maxNodes": 4, "kubeconfig": null,
        "scaling": { "minNodes": 1, "maxNodes": 4 },
        "command": { "image": "i", "up": ["u"], "down": ["d"], "serviceAccount": "a" } });
    let mut world = World::new(json!({ "target": made }));
    (world.makes_cluster, world.is_made, world.hides_pods) = (true, false, true);
    let counted = |world: &mut World, presence: Presence, nodes: i32| {
        (world.target.presence, world.target.nodes) = (presence, nodes);
        world.reconcile(true);
        world.status().counted_nodes
    };
    world.settle();
    assert_eq!(world.status().counted_nodes, 0, "there is no cluster yet");
    assert_eq!(counted(&mut world, Presence::ClusterReady, 0), 2);
    world.hides_pods = false;
    assert_eq!(counted(&mut world, Presence::Complete, 2), 2);
    world.burst.as_mut().unwrap().spec.nodes = 4;
    assert_eq!(counted(&mut world, Presence::Complete, 3), 4, "the cluster is made larger");
    world.burst.as_mut().unwrap().spec.nodes = 1;
    assert_eq!(counted(&mut world, Presence::Complete, 1), 4, "and never smaller");
    world.target.job_failure = Some("it has failed".into());
    assert_eq!(counted(&mut world, Presence::Complete, 0), 4);
    world.delete_burst();
    for presence in [Presence::ClusterReady, Presence::ClusterDeletionFailed, Presence::Leaving] {
        assert_eq!(counted(&mut world, presence.clone(), 0), 4, "{presence:?}");
    }
    assert_eq!(counted(&mut world, Presence::ClusterDeleted, 0), 0);
}

/// Otherwise a program that fails at once would be run without a pause.
#[test]
fn a_program_that_cannot_delete_its_cluster_is_run_less_and_less_often() {
    let mut world = World::new(json!({}));
    world.settle();
    world.lingers = true;
    world.delete_burst();
    world.settle();
    let mut waits = Vec::new();
    for _ in 0..4 {
        world.failure = failure(Reason::TargetRefused);
        world.reconcile(false);
        let retry_at: Timestamp = world.status().retry_at.parse().unwrap();
        waits.push(retry_at.duration_since(world.now).as_secs());
        // It is run again: its Job exists.
        world.failure = None;
        world.now = retry_at;
        world.target.presence = Presence::Leaving;
        world.reconcile(false);
    }
    assert_eq!(waits, [5, 10, 20, 40]);
}
