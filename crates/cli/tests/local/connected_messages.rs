//! What is printed about connected MiniClusters that cannot run, or that run differently than in
//! pods.

use serde_json::{Value, json};

use crate::connected::{joiner, lender, minicluster};
use crate::home::{TestHome, errors};

/// A MiniCluster of one broker that joins this one.
fn joining(name: &str, lender: &str) -> Value {
    minicluster(name, 1, json!({ "join": { "name": lender } }), json!({}))
}

fn in_namespace(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}

#[test]
fn what_cannot_be_connected_is_reported_before_anything_starts() {
    let home = TestHome::new();
    let base = lender(json!({}));
    let other = minicluster("other", 1, json!({}), json!({}));
    let setup = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxSetup",
        "metadata": { "name": "team" }, "spec": {} });
    let lead = json!({ "address": "192.0.2.1", "name": "fs", "size": 1 });
    let bursting = json!({ "leadBroker": lead, "clusters": [{ "name": "far", "size": 1 }] });
    let flux = json!({ "curveCertSecret": "key", "bursting": bursting });
    let invited = minicluster("far", 1, flux, json!({}));
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "key" },
        "data": { "curve.cert": "YQ==" } });
    let cases: Vec<(Vec<Value>, &str, &str)> = vec![
        (
            vec![base.clone(), joiner("more", 5)],
            "\"more\" needs 5 ranks of \"base\", and 2 are free: 3 more are missing",
            "set flux.bursting.spareRanks of \"base\" to 5 before it is started",
        ),
        (
            vec![base.clone(), joiner("one", 2), joiner("two", 1)],
            "\"two\" needs 1 rank of \"base\", and none is free: 1 more is missing",
            "to 3 before",
        ),
        (
            vec![joining("last", "more"), base.clone(), joiner("more", 1)],
            "\"last\" cannot join \"more\", which joins \"base\" itself",
            "let \"last\" join \"base\"",
        ),
        (
            vec![joining("a", "b"), joining("b", "a")],
            "\"a\" and \"b\" join each other",
            "remove flux.join from the one that is to lend ranks",
        ),
        (
            vec![base.clone(), joining("more", "bas")],
            "MiniCluster \"more\" joins \"bas\", which is neither in the file nor running",
            "did you mean \"base\"?",
        ),
        (
            vec![joiner("more", 1)],
            "\"more\" joins \"base\", which is neither in the file nor running",
            "add \"base\" to the file",
        ),
        (
            vec![in_namespace(base.clone(), "one"), in_namespace(joiner("more", 1), "two")],
            "\"more\" joins two/base, and \"base\" is in namespace \"one\"",
            "set flux.join.namespace of \"more\" to \"one\"",
        ),
        (
            vec![base.clone(), joiner("more", 1), other.clone()],
            "\"other\" joins no other one, and none joins it",
            "in a file of its own",
        ),
        (
            vec![base.clone(), joiner("more", 1), other, joining("last", "other")],
            "\"base\" and \"other\" are both joined",
            "in a file of their own",
        ),
        (
            vec![base.clone(), joiner("more", 1), setup],
            "with a FluxSetup",
            "in a file of their own",
        ),
        (
            vec![base.clone(), joiner("base", 1)],
            "(document 2, MiniCluster \"base\"): spec.flux.join.name: names the MiniCluster itself",
            "",
        ),
        (
            vec![secret, invited],
            "\"far\" joins an instance of another Kubernetes cluster, which works only in Kubernetes",
            "apply it in a cluster",
        ),
        (vec![base, joiner("more", 1), joiner("more", 1)], "two MiniClusters named", "rename one"),
    ];
    for (objects, message, hint) in cases {
        let manifest = home.objects(&objects);
        for command in ["run", "up"] {
            let error = home.local_error(&[command, "-f", &manifest]);
            assert!(error.contains(message), "{command}: {error}");
            let hints = error.split_once("\nhint: ").map(|it| it.1).unwrap_or_default();
            assert!(hints.contains(hint), "{command}: {error}");
        }
    }
    home.wait_until_nothing_left();
}

#[test]
fn a_joiner_of_a_running_lender_must_fit() {
    let home = TestHome::new();
    let base = in_namespace(lender(json!({})), "one");
    let joiner = |name: &str, size: u32| in_namespace(joiner(name, size), "one");
    home.local(&["up", "-f", &home.objects(&[base, joiner("one", 1)])]);
    let fast = json!({ "join": { "name": "base", "ranks": "fast" } });
    let cases = [
        (joiner("two", 2), "needs 2 ranks of \"base\", and 1 is free: 1 more is missing\n"),
        (joiner("one", 1), "running already"),
        (
            in_namespace(joiner("two", 1), "two"),
            "\"two\" joins two/base, and \"base\" is in namespace \"one\"\nhint: set",
        ),
        (
            in_namespace(joining("two", "bas"), "one"),
            "neither in the file nor running\nhint: did you mean \"base\"?",
        ),
        (
            in_namespace(minicluster("two", 1, fast, json!({})), "one"),
            "no host of \"base\" has the property \"fast\": it has home, spare\n",
        ),
    ];
    for (object, message) in cases {
        let error = home.local_error(&["up", "-f", &home.objects(&[object])]);
        assert!(error.contains(message), "{error}");
    }
    let error = home.local_error(&["run", "-f", &home.objects(&[joiner("two", 1)])]);
    assert!(error.contains("joins \"base\", which is running, but is not in the file"), "{error}");
    home.local(&["down", "base"]);
    home.wait_until_nothing_left();
}

#[test]
fn a_lender_that_stays_up_has_no_command() {
    let home = TestHome::new();
    let mut base = lender(json!({ "command": "hostname" }));
    let refused = home.objects(&[base.clone(), joiner("more", 1)]);
    let error = home.local_error(&["up", "-f", &refused]);
    let expected = "\"base\" has a command, and a cluster that stays up has none\n\
        hint: use `flux-operator local run`, or set interactive: true";
    assert!(error.contains(expected), "{error}");
    home.wait_until_nothing_left();
    base["spec"]["interactive"] = true.into();
    let up = home.local(&["up", "-f", &home.objects(&[base, joiner("more", 1)])]);
    assert!(up.contains("more is up as rank 2 of base: "), "{up}");
    home.local(&["down", "base"]);
    home.wait_until_nothing_left();
}

#[test]
fn sockets_whose_path_is_too_long_are_refused_before_anything_starts() {
    let home = TestHome::new();
    let long = "n".repeat(60);
    let alone = minicluster(&long, 1, json!({}), json!({}));
    let objects = [vec![alone], vec![lender(json!({})), joiner(&long, 1)]];
    for objects in objects {
        let manifest = home.objects(&objects);
        for command in ["run", "up"] {
            let error = home.local_error(&[command, "-f", &manifest]);
            let expected = format!("the sockets of local cluster {long:?} would have paths of 1");
            assert!(error.contains(&expected), "{command}: {error}");
            let hint = "bytes, and at most 107 are possible\nhint: use a shorter name, or set XDG";
            assert!(error.contains(hint), "{command}: {error}");
            assert!(!error.contains("brokers"), "{command}: {error}");
        }
    }
    home.wait_until_nothing_left();
}

#[test]
fn what_is_ignored_and_what_is_untrue_is_printed_by_up_and_run() {
    let home = TestHome::new();
    let flux = json!({ "curveCertSecret": "mine", "bursting": { "spareRanks": 2 } });
    let base = minicluster("base", 2, flux, json!({ "image": "ubuntu", "command": "true" }));
    let flux = json!({ "bootServer": "base-0", "bootServerSize": 9 });
    let more = minicluster("more", 1, flux, json!({ "image": "busybox" }));
    let run = home.run_objects(&[base.clone(), more.clone()]);
    assert!(run.status.success(), "{}", errors(&run));
    assert!(errors(&run).contains("1 broker of more joins as rank 2"), "{}", errors(&run));
    let mut staying = base;
    staying["spec"]["interactive"] = true.into();
    let manifest = home.objects(&[staying, more]);
    let up = home.program(&["local", "up", "-f", &manifest]).output().unwrap();
    assert!(up.status.success(), "{}", errors(&up));
    for printed in [errors(&run), errors(&up)] {
        for line in [
            "note: base: image \"ubuntu\" is not used: this machine's programs run\n",
            "note: more: image \"busybox\" is not used: this machine's programs run\n",
            "note: base: Secret \"mine\" is not used: a certificate is generated\n",
            "warning: more: spec.flux.bootServerSize: is 9, but the cluster it joins has size 2; \
                it is not used\n",
        ] {
            assert_eq!(printed.matches(line).count(), 1, "{line}{printed}");
        }
        assert!(!printed.contains("no broker will join"), "{printed}");
    }
    home.local(&["down", "base"]);
    home.wait_until_nothing_left();
}

#[test]
fn a_run_whose_name_is_in_use_says_under_which_it_runs() {
    let home = TestHome::new();
    home.local(&["up", "-f", &home.objects(&[lender(json!({ "image": "ubuntu" }))])]);
    let base = lender(json!({ "command": "true" }));
    let note = "note: \"base\" is in use: this run is \"base-2\"\n";
    for objects in [vec![base.clone()], vec![base, joiner("more", 1)]] {
        let run = home.run_objects(&objects);
        assert!(run.status.success(), "{}", errors(&run));
        assert_eq!(errors(&run).matches(note).count(), 1, "{}", errors(&run));
    }
    home.local(&["down", "base"]);
    home.wait_until_nothing_left();
}

#[test]
fn logs_of_a_wrong_rank_say_which_ranks_there_are() {
    let home = TestHome::new();
    let flux = json!({ "bursting": { "spareRanks": 4 } });
    let base = minicluster("base", 2, flux, json!({}));
    home.local(&["up", "-f", &home.objects(&[base, joiner("more", 2)])]);
    for (name, rank, message) in [
        ("more", "0", "more has ranks 2-3, not 0\n"),
        (
            "base",
            "2",
            "rank 2 is leased to more\n\
             hint: print its log with `flux-operator local logs more --rank 2`\n",
        ),
        ("base", "5", "rank 5 is free: "),
        ("base", "6", "base has ranks 0-5, not 6\n"),
        ("none", "0", "no local cluster \"none\" is running"),
    ] {
        let error = home.local_error(&["logs", name, "--rank", rank]);
        assert!(error.contains(message), "{error}");
    }
    home.local(&["logs", "base", "--rank", "1"]);
    home.local(&["down", "base"]);
    home.wait_until_nothing_left();
}

#[test]
fn miniclusters_that_do_not_join_are_not_started_together() {
    let home = TestHome::new();
    let objects = ["a", "b"].map(|name| minicluster(name, 1, json!({}), json!({})));
    let manifest = home.objects(&objects);
    let error = home.local_error(&["run", "-f", &manifest]);
    assert!(error.contains("MiniCluster \"a\" names no queue"), "{error}");
    let error = home.local_error(&["up", "-f", &manifest]);
    let expected = "has 2 MiniClusters and none joins another\n\
        hint: set flux.join in one, or use a file for each\n";
    assert!(error.ends_with(expected), "{error}");
    let same = [objects[0].clone(), objects[0].clone()];
    let error = home.local_error(&["up", "-f", &home.objects(&same)]);
    assert!(error.contains("there are two MiniClusters named \"a\"\n"), "{error}");
}
