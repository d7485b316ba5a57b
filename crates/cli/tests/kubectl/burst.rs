//! `kubectl minicluster burst`: what it prints, what it changes, and its errors. Flux is never asked.

use std::sync::mpsc::Receiver;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::server::{Change, kubeconfig, record_changes};
use crate::{errors, plugin};

const TOKEN: &str = "very-secret-token";
const LEFT: &str = "burst-0123456789ab";

/// Exit code, output, errors, and what was to be changed.
type Ran = (Option<i32>, String, String, Vec<Change>);

#[test]
fn bursts_are_listed_with_what_only_a_user_can_solve() {
    let expected = "\
NAME    CLUSTER   TARGET   STATUS               NODES   JOBS   NODE-HOURS   COST   AGE
ready   fs        gke      Ready                2/2     1      1.50         0.54   0s
stuck   fs        gke      CredentialsRefused   0/2     0                          0s
";
    let problem = "stuck: CredentialsRefused: 401 Unauthorized\nhint: Replace the kubeconfig";
    for words in [&["burst"][..], &["burst", "list"], &["burst", "ls", "-n", "default"]] {
        let (code, output, errors, _) = run(words, objects());
        assert_eq!((code, output.as_str()), (Some(0), expected), "{words:?}: {errors}");
        assert!(errors.starts_with(problem), "{words:?}: {errors}");
    }
    let (_, output, errors, _) = run(&["burst", "list", "ready"], objects());
    assert_eq!((output.lines().count(), errors.as_str()), (2, ""), "{output}");
    let (_, output, ..) = run(&["burst", "-A", "-o", "name"], objects());
    assert_eq!(output, "burst.flux-framework.org/ready\nburst.flux-framework.org/stuck\n");
    let (_, output, ..) = run(&["burst", "list", "-o", "json"], objects());
    let list: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(list["items"][1]["metadata"]["name"], "stuck");
    let (code, _, errors, _) = run(&["burst", "list", "redy"], objects());
    let expected = "error: there is no Burst \"redy\" in default\nhint: did you mean \"ready\"?\n";
    assert_eq!((code, errors.as_str()), (Some(1), expected));
    let (code, _, errors, _) = run(&["burst", "-A", "list"], objects());
    // As for every command line that is not valid.
    assert!(code == Some(2) && errors.contains("hint: put it after the command"), "{errors}");
}

#[test]
fn policies_are_listed_with_what_they_serve() {
    let expected = "\
NAME    ACCEPTED   CLUSTERS   JOBS   BURSTS   NODES   TODAY   AGE
cloud   True       1          3      2        4/8     -       0s
";
    let (code, output, errors, _) = run(&["burst", "policies"], objects());
    assert_eq!((code, output.as_str(), errors.as_str()), (Some(0), expected, ""));
    let (_, output, ..) = run(&["burst", "policies", "-o", "name"], objects());
    assert_eq!(output, "burstpolicy.flux-framework.org/cloud\n");
}

#[test]
fn nodes_are_requested_with_a_copy_of_the_target() {
    let words = "burst request fs --policy cloud --nodes 2 --for 1h --idle 10m --name mine";
    let words: Vec<&str> = words.split(' ').collect();
    let (code, output, errors, changes) = run(&words, objects());
    assert_eq!(output, "burst.flux-framework.org/mine created\n", "{errors}");
    let [Change { method, path, body }] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!((code, method.as_str()), (Some(0), "POST"));
    assert_eq!(path, "/apis/flux-framework.org/v1alpha2/namespaces/default/bursts");
    let spec = json!({ "cluster": "fs", "nodes": 2, "lifetimeSeconds": 3600, "idleSeconds": 600,
        "graceSeconds": 300, "target": target() });
    assert_eq!((&body["spec"], &body["metadata"]["name"]), (&spec, &json!("mine")));
}

#[test]
fn a_request_can_wait_until_its_nodes_have_joined() {
    // The server returns its first Burst when one is created.
    let words = ["burst", "request", "fs", "--policy", "cloud", "--nodes", "2", "--wait"];
    let (code, _, errors, _) = run(&words, objects());
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.ends_with(": all its nodes have joined fs\n"), "{errors}");
    let mut stuck_first = objects();
    stuck_first.retain(|it| it["metadata"]["name"] != "ready");
    let (code, output, errors, _) = run(&words, stuck_first);
    assert!(code == Some(1) && output.ends_with(" created\n"), "{output}");
    let expected = " does not become ready: CredentialsRefused: 401 Unauthorized\nhint: Replace ";
    assert!(errors.contains(expected), "{errors}");
}

#[test]
fn a_request_that_cannot_succeed_is_refused() {
    let request = |line: &str, objects: Vec<Value>| {
        let line = format!("burst request {line}");
        let words: Vec<&str> = line.split(' ').collect();
        let (code, output, errors, changes) = run(&words, objects);
        assert_eq!((code, output.as_str(), changes.len()), (Some(1), "", 0), "{line}");
        errors
    };
    let changed = |kind: &str, path: &str, value: Value| {
        let mut objects = objects();
        let object = objects.iter_mut().find(|it| it["kind"] == kind).unwrap();
        *object.pointer_mut(path).unwrap() = value;
        objects
    };
    for (line, objects, expected) in [
        (
            "fs --policy clod --nodes 2",
            objects(),
            "error: there is no BurstPolicy \"clod\" in default\nhint: did you mean \"cloud\"?\n",
        ),
        (
            "fs --policy cloud --nodes 5",
            objects(),
            "error: target \"gke\" has at most 4 nodes, and 5 are requested\nhint: request at most 4",
        ),
        (
            "fs --policy cloud --nodes 2 --target aks",
            objects(),
            "error: BurstPolicy \"cloud\" has no target \"aks\"\nhint: it has \"gke\"\n",
        ),
        (
            "fs --policy cloud --nodes 2",
            changed("MiniCluster", "/spec/flux", json!({})),
            "error: \"fs\" is not exposed, so nodes of target \"gke\", which is another Kubernetes \
             cluster, cannot reach it\nhint: set spec.flux.bursting.expose of fs",
        ),
        (
            "fs --policy cloud --nodes 2",
            changed("BurstPolicy", "/status", json!({})),
            "error: BurstPolicy \"cloud\" has no condition Accepted, so no burst controller seems to \
             be running\nhint: see whether `kubectl get pods --all-namespaces -l ",
        ),
        (
            "ff --policy cloud --nodes 2",
            objects(),
            "error: there is no MiniCluster \"ff\" in default\nhint: there is \"fs\"\n",
        ),
    ] {
        let errors = request(line, objects);
        assert!(errors.starts_with(expected), "{line}: {errors}");
    }
}

#[test]
fn bursts_are_given_back_by_deletion() {
    let (code, output, errors, changes) = run(&["burst", "give-back", "redy", "ready"], objects());
    assert_eq!(output, "burst.flux-framework.org \"ready\" deleted\n");
    assert!(code == Some(1) && errors.contains("did you mean \"ready\"?"), "{errors}");
    let [Change { method, path, .. }] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(method, "DELETE");
    assert!(path.ends_with("/namespaces/default/bursts/ready"), "{path}");
    let (code, _, errors, _) = run(&["burst", "give-back", "stuck", "--wait"], objects());
    let expected = "error: Burst \"stuck\" cannot be given back: CredentialsRefused: 401";
    assert!(code == Some(1) && errors.contains(expected), "{errors}");
}

#[test]
fn a_burst_that_does_not_exist_is_listed_by_the_right_command() {
    let mut objects = objects();
    objects.extend(["a", "b", "c"].map(|name| burst(name, json!({}))));
    let (code, _, errors, changes) = run(&["burst", "give-back", "zzz"], objects);
    let expected = "error: there is no Burst \"zzz\" in default\n\
                    hint: `kubectl minicluster burst list` lists all\n";
    assert_eq!((code, errors.as_str(), changes.len()), (Some(1), expected, 0));
}

#[test]
fn a_job_without_output_has_a_hint() {
    let run_of = |name: &str, job: &str, run: Value| {
        let mut burst = burst(name, json!({ "run": run }));
        burst["spec"]["isolatedJob"] = json!(job);
        burst
    };
    let mut objects = objects();
    objects.extend([
        run_of("running", "f2", json!({ "state": "Running" })),
        run_of("lost", "f3", json!({ "state": "Failed", "message": "it was lost" })),
        run_of("refused", "f4", json!({ "state": "Refused", "message": "it is interactive" })),
    ]);
    for (name, job, expected) in [
        (
            "fs",
            "f2",
            "it is running\nhint: there is output when it has finished; `kubectl minicluster jobs fs`",
        ),
        ("fs", "f3", "it is failed: it was lost\nhint: it is not run again: submit the job again"),
        (
            "fs",
            "f4",
            "it is refused: it is interactive\nhint: it has not run elsewhere; `kubectl minicluster why fs --job ƒ4`",
        ),
        ("fs", "f5", "error: no Burst has run job ƒ5 of \"fs\""),
        ("sf", "f5", "error: there is no MiniCluster \"sf\" in default\nhint: "),
    ] {
        let (code, output, errors, _) = run(&["logs", name, "--job", job], objects.clone());
        assert_eq!((code, output.as_str()), (Some(1), ""), "{job}");
        assert!(errors.contains(expected), "{job}: {errors}");
    }
}

#[test]
fn leftovers_are_listed_and_not_deleted() {
    let (code, output, errors, home, there) = cleanup(&[], "");
    assert_eq!(code, Some(0), "{errors}");
    let rows: Vec<Vec<&str>> =
        output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["PLACE", "KIND", "NAME", "BURST", "CLUSTER", "AGE"]);
    let rows: Vec<[&str; 3]> = rows[1..].iter().map(|row| [row[0], row[1], row[2]]).collect();
    let invitation = format!("fs/{LEFT}");
    let secret = format!("{LEFT}-invitation");
    let config_map = format!("{LEFT}-entrypoint");
    let expected = [
        ["here", "Invitation", &invitation],
        ["here", "MiniCluster", LEFT],
        ["target", "Job", LEFT],
        ["target", "ConfigMap", &config_map],
        ["target", "Secret", &secret],
        ["target", "Service", LEFT],
        ["target", "Pod", "orphan"],
    ];
    assert_eq!(rows, expected);
    assert!(errors.ends_with("note: nothing was deleted; --delete deletes them\n"), "{errors}");
    assert!(!errors.contains("warning"), "{errors}");
    assert_eq!((home, there), (Vec::new(), Vec::new()));
    assert!(!format!("{output}{errors}").contains(TOKEN), "{output}{errors}");
}

#[test]
fn leftovers_are_deleted_and_nothing_else() {
    let (code, output, errors, home, there) = cleanup(&["--delete"], "");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert_eq!(output.lines().count(), 7);
    assert!(output.contains(&format!("Job {LEFT:?} at the target deleted\n")), "{output}");
    let paths = |changes: &[Change]| -> Vec<String> {
        let path = |it: &Change| {
            format!("{} {}", it.method, it.path.rsplit("/namespaces/").next().unwrap())
        };
        changes.iter().map(path).collect()
    };
    let expected =
        ["PATCH default/miniclusters/fs".to_owned(), format!("DELETE default/miniclusters/{LEFT}")];
    assert_eq!(paths(&home), expected);
    // The invitation of a user, and that of a Burst that exists, are kept.
    let kept = &home[0].body["spec"]["flux"]["bursting"]["invitations"];
    let names: Vec<&Value> = kept.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["a", &*live_name()]);
    let expected = [
        format!("DELETE there/jobs/{LEFT}"),
        format!("DELETE there/configmaps/{LEFT}-entrypoint"),
        format!("DELETE there/secrets/{LEFT}-invitation"),
        format!("DELETE there/services/{LEFT}"),
        "DELETE there/pods/orphan".to_owned(),
    ];
    assert_eq!(paths(&there), expected);
}

#[test]
fn what_cannot_be_deleted_is_reported_and_the_rest_is_deleted() {
    let (code, output, errors, _, there) = cleanup(&["--delete"], "-entrypoint");
    assert_eq!(code, Some(1));
    let expected = format!(
        "error: failed to delete ConfigMap \"{LEFT}-entrypoint\" at the target: it is not allowed\n"
    );
    assert_eq!(errors, expected);
    assert_eq!((output.lines().count(), there.len()), (6, 5));
}

#[test]
fn everything_at_a_target_is_a_leftover_if_nothing_of_ours_exists() {
    let (there, changes) = record_changes(at_target(), "");
    let home = format!("http://{}", record_changes(Vec::new(), "").0);
    let folder = tempfile::tempdir().unwrap();
    let contexts = kubeconfig(&home, "")
        .replace(
            "clusters: [",
            &format!("clusters: [{{name: t, cluster: {{server: 'http://{there}'}}}}, "),
        )
        .replace("contexts: [", "contexts: [{name: target, context: {cluster: t, user: u}}, ");
    std::fs::write(folder.path().join("kubeconfig"), contexts).unwrap();
    let words = ["burst", "cleanup", "--target-context", "target", "--target-namespace", "there"];
    let ran = plugin(&folder, &words);
    let output = String::from_utf8_lossy(&ran.stdout).into_owned();
    // Also the Job of a Burst that exists at the home of the other tests.
    assert_eq!(output.lines().count(), 7, "{output} {}", errors(&ran));
    assert!(output.contains(" default/gone ") && output.contains(" fs-uid "), "{output}");
    assert!(errors(&ran).contains("warning: 6 of them are of MiniClusters that do not exist"));
    let ran = plugin(&folder, &[&words[..], &["--known-only", "--delete"]].concat());
    assert!(errors(&ran).starts_with("No leftovers found"), "{}", errors(&ran));
    let ran = plugin(&folder, &[&words[..], &["--delete"]].concat());
    assert!(errors(&ran).starts_with("error: nothing was deleted: 6 of them"), "{}", errors(&ran));
    let ran = plugin(&folder, &[&words[..], &["--delete", "--unknown-too"]].concat());
    assert_eq!((ran.status.code(), errors(&ran).as_str()), (Some(0), ""));
    assert_eq!(changes.try_iter().count(), 6);
}

/// The namespace is a target of another Kubernetes cluster.
#[test]
fn brokers_of_others_in_this_namespace_are_left_alone() {
    let with_theirs = || {
        let mut objects = objects();
        let theirs = "burst-ffffffffffff";
        objects.extend([
            labelled("batch/v1", "Job", theirs, theirs, "their-uid"),
            labelled("v1", "Secret", &format!("{theirs}-invitation"), theirs, "their-uid"),
            labelled("v1", "Secret", &format!("{theirs}-flux-0f4e2c1d"), theirs, "their-uid"),
        ]);
        objects
    };
    let delete = ["burst", "cleanup", "--delete"];
    let (code, output, errors, changes) = run(&delete, with_theirs());
    let expected = format!("Invitation \"fs/{LEFT}\" deleted\n");
    assert_eq!((code, output, errors.as_str()), (Some(0), expected, ""));
    let [Change { method, path, .. }] = changes.as_slice() else { panic!("{changes:?}") };
    assert!(method == "PATCH" && path.ends_with("/miniclusters/fs"), "{method} {path}");
    // What has made a cluster for a MiniCluster that is not known is deleted only if that is asked for.
    let with_down = || {
        let down = labelled("batch/v1", "Job", &format!("{LEFT}-down"), LEFT, "gone-uid");
        [with_theirs(), vec![down]].concat()
    };
    let (code, _, errors, changes) = run(&delete, with_down());
    assert_eq!((code, changes.len()), (Some(1), 0), "{errors}");
    assert!(errors.starts_with("error: nothing was deleted: 1 of them"), "{errors}");
    let all = [&delete[..], &["--unknown-too"]].concat();
    let (code, _, errors, changes) = run(&all, with_down());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let deleted: Vec<&str> =
        changes.iter().filter_map(|it| it.path.split('/').next_back()).collect();
    assert_eq!(deleted, ["fs".to_owned(), format!("{LEFT}-down")]);
}

#[test]
fn a_kubeconfig_that_runs_programs_is_refused() {
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, \
                interactiveMode: Never}";
    let text =
        kubeconfig("http://127.0.0.1:1", "").replace("user: {}", &format!("user: {{{exec}}}"));
    let mut objects = objects();
    objects.push(secret(&text));
    let words = ["burst", "cleanup", "--kubeconfig-secret", "gke"];
    let (code, _, errors, _) = run(&words, objects.clone());
    let expected = "error: Secret \"gke\": the kubeconfig is refused: exec would run a program";
    assert!(code == Some(1) && errors.starts_with(expected), "{errors}");
    let (_, _, errors, _) = run(&[&words[..3], &["other"]].concat(), objects.clone());
    assert!(
        errors.starts_with("error: there is no Secret \"other\" in default\nhint: "),
        "{errors}"
    );
    let (_, _, errors, _) = run(&[&words[..], &["--kubeconfig-key", "x"]].concat(), objects);
    assert!(errors.starts_with("error: the Secret \"gke\" has no key \"x\"\nhint: "), "{errors}");
}

#[test]
fn a_job_is_explained_only_where_it_waits() {
    let mut objects = objects();
    let mut joiner = minicluster("joins", json!({ "join": { "name": "fs" } }));
    joiner["metadata"]["uid"] = json!("joins-uid");
    objects.push(joiner);
    for words in [&["why", "joins", "--job", "f1"][..], &["burst", "why", "joins", "--job", "f1"]] {
        let (code, _, errors, _) = run(words, objects.clone());
        let expected = "error: joins joins the instance of fs, where its jobs are\n\
                        hint: `kubectl minicluster burst why fs`\n";
        assert_eq!((code, errors.as_str()), (Some(1), expected), "{words:?}");
    }
    let (code, _, errors, _) = run(&["why", "fs", "--job", "f1"], objects.clone());
    assert!(code == Some(1) && errors.starts_with("error: fs is not ready: "), "{errors}");
    let (code, _, errors, _) = run(&["why", "fs", "--job", "no id"], objects.clone());
    assert!(code == Some(2) && errors.contains("`flux jobs` prints ids"), "{errors}");
    let (code, _, errors, _) = run(&["why", "fs/queue", "--job", "f1"], objects);
    assert!(code == Some(1) && errors.contains("is a queue, not a MiniCluster"), "{errors}");
}

/// Runs the plugin with these objects.
fn run(words: &[&str], objects: Vec<Value>) -> Ran {
    let (address, changes) = record_changes(objects, "");
    let folder = tempfile::tempdir().unwrap();
    let config = kubeconfig(&format!("http://{address}"), "");
    std::fs::write(folder.path().join("kubeconfig"), config).unwrap();
    let ran = plugin(&folder, words);
    let output = String::from_utf8_lossy(&ran.stdout).into_owned();
    (ran.status.code(), output, errors(&ran), changes.try_iter().collect())
}

/// Runs `burst cleanup` with a target in a Secret, where changes of paths with this end are refused.
/// The last two are the changes here and there.
fn cleanup(
    words: &[&str],
    forbidden: &'static str,
) -> (Option<i32>, String, String, Vec<Change>, Vec<Change>) {
    let (there, changes): (_, Receiver<Change>) = record_changes(at_target(), forbidden);
    let user = format!("user: {{token: {TOKEN}}}");
    let text = kubeconfig(&format!("http://{there}"), "").replace("user: {}", &user);
    let mut objects = objects();
    objects.push(secret(&text));
    let mut joiner = minicluster(LEFT, json!({ "join": { "name": "fs" } }));
    joiner["metadata"]["labels"] =
        json!({ "flux-framework.org/burst": LEFT, "flux-framework.org/burst-cluster": "fs-uid" });
    objects.push(joiner);
    let command = ["burst", "cleanup", "--kubeconfig-secret", "gke", "--target-namespace", "there"];
    let (code, output, errors, home) = run(&[&command[..], words].concat(), objects);
    (code, output, errors, home, changes.try_iter().collect())
}

/// The name of what was made for the Burst `ready`.
fn live_name() -> String {
    let burst = serde_json::from_value(burst("ready", json!({}))).unwrap();
    flux_operator_plan::bursting::object_name(&burst)
}

/// A MiniCluster with three invitations, a policy, and two Bursts.
fn objects() -> Vec<Value> {
    let invitation =
        |name: &str| json!({ "name": name, "ranks": 2, "expires": "2099-01-01T00:00:00Z" });
    let invitations = [invitation("a"), invitation(LEFT), invitation(&live_name())];
    let bursting = json!({ "expose": { "type": "NodePort" }, "invitations": invitations });
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({ "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    let policy = json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "BurstPolicy",
        "metadata": { "name": "cloud", "namespace": "default", "uid": "cloud-uid",
            "creationTimestamp": "2099-01-01T00:00:00Z" },
        "spec": { "selector": {}, "limits": { "nodes": 8 }, "targets": [target()] },
        "status": { "clusters": 1, "pendingJobs": 3, "bursts": 2, "nodes": 4,
            "conditions": [condition("Accepted", "True", "Accepted", "the policy is applied")] },
    });
    let ready = json!({ "phase": "Ready", "ready": "2/2", "jobs": 1, "nodeHours": "1.50",
        "cost": "0.54", "conditions": [condition("Ready", "True", "Joined", "")] });
    let refused = ["CredentialsAccepted", "Ready"]
        .map(|kind| condition(kind, "False", "CredentialsRefused", "401 Unauthorized"));
    let stuck = json!({ "phase": "CredentialsRefused", "conditions": refused });
    let cluster = minicluster("fs", json!({ "bursting": bursting }));
    vec![cluster, policy, burst("ready", ready), burst("stuck", stuck)]
}

fn target() -> Value {
    json!({ "name": "gke", "maxNodes": 4, "kubeconfig": { "secret": "gke" } })
}

fn burst(name: &str, status: Value) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "Burst",
        "metadata": { "name": name, "namespace": "default", "uid": format!("{name}-uid"),
            "creationTimestamp": "2099-01-01T00:00:00Z" },
        "spec": { "cluster": "fs", "nodes": 2, "target": target() },
        "status": status,
    })
}

fn minicluster(name: &str, flux: Value) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": name, "namespace": "default", "uid": format!("{name}-uid"),
            "resourceVersion": "7" },
        "spec": { "size": 2, "containers": [{ "image": "busybox" }], "flux": flux },
    })
}

fn secret(kubeconfig: &str) -> Value {
    let bytes = ByteString(kubeconfig.as_bytes().to_vec());
    json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "gke", "namespace": "default" }, "data": { "kubeconfig": bytes } })
}

/// An object that was made for a Burst of the MiniCluster with this uid.
fn labelled(version: &str, kind: &str, name: &str, label: &str, uid: &str) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": {
        "name": name, "namespace": "default", "uid": format!("{name}-uid"),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": { "flux-framework.org/burst": label, "flux-framework.org/burst-cluster": uid },
        "annotations": { "flux-framework.org/burst-name": "default/gone" },
    } })
}

/// What a target has: all that was made for a Burst that no longer exists and a pod whose Job does
/// not, and the Job of a Burst that exists.
fn at_target() -> Vec<Value> {
    let object = |version: &str, kind: &str, name: &str, label: &str| {
        let mut object = labelled(version, kind, name, label, "fs-uid");
        object["metadata"]["namespace"] = json!("there");
        object
    };
    let live = live_name();
    let mut pod = object("v1", "Pod", "of-job", LEFT);
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "batch/v1", "kind": "Job",
        "name": LEFT, "uid": format!("{LEFT}-uid") }]);
    vec![
        object("batch/v1", "Job", LEFT, LEFT),
        object("batch/v1", "Job", &live, &live),
        object("v1", "ConfigMap", &format!("{LEFT}-entrypoint"), LEFT),
        object("v1", "Secret", &format!("{LEFT}-invitation"), LEFT),
        object("v1", "Service", LEFT, LEFT),
        pod,
        object("v1", "Pod", "orphan", LEFT),
    ]
}
