//! Connected MiniClusters: the brokers of one join the Flux instance of another.

use serde_json::{Value, json};

use crate::home::{TestHome, errors, output};

/// Prints the number of nodes that jobs can use.
const FREE_NODES: &str = "flux resource list -n -s free -o {nnodes}";

pub fn minicluster(name: &str, size: u32, flux: Value, container: Value) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "name": name },
        "spec": { "size": size, "flux": flux, "containers": [container] },
    })
}

/// A cluster with two nodes, and ranks for two more.
pub fn lender(container: Value) -> Value {
    minicluster("base", 2, json!({ "bursting": { "spareRanks": 2 } }), container)
}

pub fn joiner(name: &str, size: u32) -> Value {
    minicluster(name, size, json!({ "join": { "name": "base" } }), json!({}))
}

impl TestHome {
    /// Runs `flux-operator local WORDS`, which must succeed.
    pub fn local(&self, words: &[&str]) -> String {
        let result = self.program(&[&["local"], words].concat()).output().unwrap();
        assert!(result.status.success(), "{words:?}: {}", errors(&result));
        output(&result)
    }

    /// Runs `flux-operator local WORDS`, which must fail, and returns its message.
    pub fn local_error(&self, words: &[&str]) -> String {
        let result = self.program(&[&["local"], words].concat()).output().unwrap();
        assert_eq!(result.status.code(), Some(1), "{words:?}: {}", errors(&result));
        errors(&result)
    }

    fn exec(&self, name: &str, command: &str) -> String {
        self.local(&["exec", name, "--", "sh", "-c", command])
    }

    /// Waits until the instance of a cluster has this many nodes that jobs can use.
    fn wait_for_free_nodes(&self, name: &str, count: &str) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            let free = self.exec(name, FREE_NODES);
            if free.trim() == count {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "{free} nodes are free, not {count}");
        }
    }
}

#[test]
fn the_command_runs_on_the_nodes_of_both_and_its_exit_code_is_the_result() {
    let home = TestHome::new();
    let script = format!("flux run -N4 hostname && {FREE_NODES}; exit 7");
    let lender = lender(json!({ "launcher": true, "command": format!("sh -c '{script}'") }));
    for objects in [[lender.clone(), joiner("more", 2)], [joiner("more", 2), lender]] {
        let result = home.run_objects(&objects);
        assert_eq!(result.status.code(), Some(7), "{}", errors(&result));
        let lines = output(&result).lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!((lines.len(), lines[4].trim()), (5, "4"), "{lines:?}");
        let progress = errors(&result);
        assert!(progress.contains("2 brokers of more join as ranks 2-3"), "{progress}");
        home.wait_until_nothing_left();
    }
}

#[test]
fn both_sides_of_running_clusters_use_one_instance() {
    let home = TestHome::new();
    let lender = lender(json!({}));
    for objects in [[lender.clone(), joiner("more", 2)], [joiner("more", 2), lender]] {
        let up = home.local(&["up", "-f", &home.objects(&objects)]);
        assert!(up.contains("more is up as ranks 2-3 of base"), "{up}");
        for name in ["base", "more"] {
            assert_eq!(home.exec(name, FREE_NODES).trim(), "4", "{name}");
            assert_eq!(home.exec(name, "flux run -N4 hostname").lines().count(), 4, "{name}");
        }
        let listed = home.local(&["ps"]);
        let words = |name: &str| {
            let line = listed.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words("base")[1..3], ["2", "Ready"], "{listed}");
        assert_eq!(words("more")[1..3], ["2", "Ready"], "{listed}");
        assert_eq!(
            (&words("base")[4][..], words("more")[4..6].join(" ")),
            ("-", "base (2-3)".into())
        );
        home.local(&["logs", "more"]);
        home.local(&["logs", "more", "--rank", "3"]);
        let down = home.program(&["local", "down", "base"]).output().unwrap();
        assert!(down.status.success());
        assert_eq!(errors(&down), "more joins base: it is stopped too\n");
        home.wait_until_nothing_left();
    }
}

#[test]
fn a_joiner_leaves_and_joins_again_while_its_lender_is_running() {
    let home = TestHome::new();
    home.local(&["up", "-f", &home.objects(&[lender(json!({}))])]);
    for _ in 0..2 {
        home.local(&["up", "-f", &home.objects(&[joiner("more", 2)])]);
        assert_eq!(home.exec("base", "flux run -N4 hostname").lines().count(), 4);
        home.local(&["down", "more"]);
        home.wait_for_free_nodes("base", "2");
    }
    assert!(!home.local(&["ps"]).contains("more"));
    home.local(&["down", "base"]);
    home.wait_until_nothing_left();
}

#[test]
fn joiners_that_start_at_the_same_time_get_different_ranks() {
    let home = TestHome::new();
    home.local(&["up", "-f", &home.objects(&[lender(json!({}))])]);
    let ups: Vec<_> = ["one", "two", "three"]
        .map(|name| home.file(name, &joiner(name, 1).to_string()))
        .map(|file| {
            let mut up = home.program(&["local", "up", "-f", &file]);
            up.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            up.spawn().unwrap()
        })
        .into_iter()
        .map(|mut up| up.wait().unwrap().success())
        .collect();
    assert_eq!(ups.iter().filter(|it| **it).count(), 2, "{ups:?}");
    assert_eq!(home.exec("base", "flux run -N4 hostname").lines().count(), 4);
    home.local(&["down", "base"]);
    home.wait_until_nothing_left();
}

#[test]
fn joiners_of_a_killed_lender_stop() {
    let home = TestHome::new();
    let manifest = home.objects(&[lender(json!({})), joiner("more", 2)]);
    home.local(&["up", "-f", &manifest]);
    let record = home.folder.path().join("state/flux-operator/local/base/record.json");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(record).unwrap()).unwrap();
    let supervisor = i32::try_from(record["front"].as_i64().unwrap()).unwrap();
    let supervisor = rustix::process::Pid::from_raw(supervisor).unwrap();
    rustix::process::kill_process(supervisor, rustix::process::Signal::KILL).unwrap();
    home.wait_until_nothing_left_with(|| drop(home.local(&["ps"])));
}

#[test]
fn an_interrupt_stops_lender_and_joiners() {
    let home = TestHome::new();
    let objects = [lender(json!({ "command": "sleep 1000" })), joiner("more", 2)];
    let mut supervisor = home.start(&home.objects(&objects));
    supervisor.wait_for("command starts");
    assert!(home.local(&["ps"]).contains("base (2-3)"));
    rustix::process::kill_process(supervisor.pid(), rustix::process::Signal::INT).unwrap();
    assert_eq!(supervisor.child.wait().unwrap().code(), Some(130));
    home.wait_until_nothing_left();
}

#[test]
fn a_joiners_command_is_not_run_and_a_warning_says_so() {
    let home = TestHome::new();
    let container = json!({ "command": "touch not-run" });
    let more =
        minicluster("more", 2, json!({ "connection": "base", "connectionSize": 2 }), container);
    let objects = [lender(json!({ "command": "true" })), more];
    let result = home.run_objects(&objects);
    assert_eq!(result.status.code(), Some(0), "{}", errors(&result));
    let expected = "warning: more: spec.containers[0].command: is not run: the brokers join \
        another cluster, and its lead runs the command.";
    assert_eq!(errors(&result).matches(expected).count(), 1, "{}", errors(&result));
    let manifest = home.objects(&objects);
    let quiet = home.program(&["local", "run", "--quiet", "-f", &manifest]).output().unwrap();
    assert_eq!((output(&quiet).as_str(), errors(&quiet).as_str()), ("", ""));
    home.wait_until_nothing_left();
}

#[test]
fn if_a_broker_cannot_join_nothing_is_left_running() {
    let home = TestHome::new();
    // One of the two: the other one would wait for it forever.
    let flag = home.folder.path().join("flag");
    let container =
        json!({ "commands": { "init": format!("mkdir {} || exit 3", flag.display()) } });
    let more = minicluster("more", 2, json!({ "join": { "name": "base" } }), container);
    let manifest = home.objects(&[lender(json!({})), more]);
    for command in ["run", "up"] {
        let error = home.local_error(&[command, "-f", &manifest]);
        let expected = "the brokers of MiniCluster \"more\" cannot join: rank";
        assert!(error.contains(expected), "{command}: {error}");
        assert!(error.contains("HookFailed: the hook \"init\" exited with 3"), "{error}");
        home.wait_until_nothing_left();
        std::fs::remove_dir(&flag).unwrap();
    }
}
