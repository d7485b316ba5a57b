//! FluxJobs on one machine: the same scheduler as in a cluster.

use serde_json::{Value, json};

use crate::home::{TestHome, errors, output};

#[test]
fn q40_three_jobs_with_quota_for_two() {
    let home = TestHome::new();
    let objects = [
        setup(json!({ "quota": { "nodes": 2 } })),
        job("a", json!({ "command": wait_for_file(&home, "end-a") })),
        job("b", json!({ "command": wait_for_file(&home, "end-b") })),
        job("c", json!({ "command": "true" })),
    ];
    let mut supervisor = home.start(&home.objects(&objects));
    let waits = supervisor.wait_for("job c waits");
    assert!(waits.ends_with("job c waits: missing 1 node; position 0"), "{waits}");
    home.file("end-b", "");
    supervisor.wait_for("job b finished with exit code 0");
    supervisor.wait_for("job c is admitted by team with 1 node");
    supervisor.wait_for("job c finished with exit code 0");
    home.file("end-a", "");
    supervisor.wait_for("job a finished with exit code 0");
    assert_eq!(supervisor.child.wait().unwrap().code(), Some(0));
    home.wait_until_nothing_left();
}

#[test]
fn lines_are_prefixed_with_their_job_and_the_highest_exit_code_is_returned() {
    let home = TestHome::new();
    let objects = [
        job("good", json!({ "command": "echo here" })),
        job("bad", json!({ "command": "sh -c 'echo there; exit 7'" })),
        job("worse", json!({ "command": "sh -c 'exit 3'" })),
    ];
    let result = home.run_objects(&objects);
    assert_eq!(result.status.code(), Some(7), "{}", errors(&result));
    let printed = output(&result);
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["bad | there", "good | here"]);
    let errors = errors(&result);
    assert!(errors.contains("there is no FluxSetup: all jobs run at the same time"), "{errors}");
    home.wait_until_nothing_left();
}

#[test]
fn priority_precedes_the_order_in_the_file() {
    let home = TestHome::new();
    let objects = [
        job("last", json!({ "command": "true" })),
        job("first", json!({ "command": "true", "priority": 5 })),
        setup(json!({ "quota": { "nodes": 1 } })),
    ];
    let result = home.run_objects(&objects);
    assert_eq!(result.status.code(), Some(0), "{}", errors(&result));
    let errors = errors(&result);
    let place = |words: &str| errors.find(words).unwrap_or_else(|| panic!("no {words}: {errors}"));
    assert!(place("first finished") < place("last is admitted"), "{errors}");
}

#[test]
fn a_job_with_min_size_takes_the_available_quota() {
    let home = TestHome::new();
    let command = "sh -c 'echo $FLUX_JOB_NNODES'";
    let objects = [
        setup(json!({ "quota": { "nodes": 2 } })),
        job("partly", json!({ "command": command, "size": 4, "minSize": 2 })),
    ];
    let result = home.run_objects(&objects);
    assert_eq!(result.status.code(), Some(0), "{}", errors(&result));
    assert!(errors(&result).contains("admitted by team with 2 nodes"), "{}", errors(&result));
    assert_eq!(output(&result), "partly | 2\npartly | 2\n");
}

#[test]
fn a_job_that_can_never_run_is_reported_and_blocks_no_other() {
    let home = TestHome::new();
    let objects = [
        setup(json!({ "quota": { "nodes": 2 } })),
        job("large", json!({ "command": "true", "size": 3 })),
        job("lost", json!({ "command": "true", "queue": "nowhere" })),
        job("small", json!({ "command": "echo here" })),
    ];
    let result = home.run_objects(&objects);
    assert_eq!(result.status.code(), Some(1));
    assert_eq!(output(&result), "small | here\n");
    let errors = errors(&result);
    for words in [
        "job large waits: it requests 3 nodes, but the whole quota is 2",
        "job large was not run",
        "job lost waits: FluxSetup \"nowhere\" does not exist",
        "job lost was not run",
    ] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    home.wait_until_nothing_left();
}

#[test]
fn a_job_that_exceeds_its_runtime_is_stopped() {
    let home = TestHome::new();
    let objects = [job("long", json!({ "command": "sleep 1000", "maxRuntimeSeconds": 1 }))];
    let result = home.run_objects(&objects);
    assert_eq!(result.status.code(), Some(124), "{}", errors(&result));
    assert!(errors(&result).contains("exceeded maxRuntimeSeconds"), "{}", errors(&result));
    home.wait_until_nothing_left();
}

#[test]
fn an_interrupt_stops_all_jobs() {
    let home = TestHome::new();
    let objects = [
        setup(json!({ "quota": { "nodes": 2 } })),
        job("a", json!({ "command": "sleep 1000" })),
        job("b", json!({ "command": "sleep 1000" })),
        job("c", json!({ "command": "sleep 1000" })),
    ];
    let mut front = home.start(&home.objects(&objects));
    // Either job may be the first.
    front.wait_for(" runs");
    front.wait_for(" runs");
    rustix::process::kill_process(front.pid(), rustix::process::Signal::INT).unwrap();
    assert_eq!(front.child.wait().unwrap().code(), Some(130));
    home.wait_until_nothing_left();
}

#[test]
fn a_minicluster_that_names_a_queue_waits_like_a_job() {
    let home = TestHome::new();
    let minicluster = json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": "queued" },
        "spec": { "queue": "team", "size": 2, "containers": [{ "command": "echo here" }] },
    });
    let setup = setup(json!({ "quota": { "nodes": 2 } }));
    let result = home.run_objects(&[setup, minicluster]);
    assert_eq!(result.status.code(), Some(0), "{}", errors(&result));
    assert!(errors(&result).contains("queued is admitted by team with 2 nodes"));
    assert_eq!(output(&result), "queued | here\n");
}

#[test]
fn an_invalid_job_is_reported_before_any_job_starts() {
    let home = TestHome::new();
    let template = json!({ "spec": { "autoscale": { "maxSize": 2 }, "containers": [{}] } });
    let objects = [
        job("good", json!({ "command": "echo here" })),
        job("bad", json!({ "command": "true", "template": template })),
    ];
    let result = home.run_objects(&objects);
    assert_eq!(result.status.code(), Some(1));
    assert_eq!(output(&result), "");
    let errors = errors(&result);
    assert!(errors.contains("FluxJob \"bad\" cannot be run: "), "{errors}");
    assert!(errors.contains("autoscale"), "{errors}");
}

/// A command that exits once a file exists.
fn wait_for_file(home: &TestHome, file: &str) -> String {
    let file = home.folder.path().join(file);
    format!("sh -c 'until [ -e {} ]; do sleep 0.05; done'", file.display())
}

fn setup(spec: Value) -> Value {
    object("FluxSetup", "team", spec)
}

fn job(name: &str, spec: Value) -> Value {
    object("FluxJob", name, spec)
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": kind,
        "metadata": { "name": name },
        "spec": spec,
    })
}
