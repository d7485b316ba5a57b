//! `kubectl minicluster ranks`: the objects that it reads, what it prints, and its errors.

use serde_json::{Value, json};

use crate::server::{kubeconfig, serve_objects};
use crate::{errors, plugin};

#[test]
fn all_ranks_of_an_instance_are_shown() {
    let expected = "\
RANK   HOST             OWNER   STATE
0-1    fs-[0-1]         fs      online
2      fs-spare-0       far/b   online
3      fs-spare-1       far/b   offline
4-5    fs-spare-[2-3]   -       free
";
    assert_eq!(ranks(&["fs", "-n", "near"], &connected()), (Some(0), expected.into(), "".into()));
    let (code, output, _) = ranks(&["fs", "-n", "near", "-o", "json"], &connected());
    let table: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((code, &table["name"], &table["joiner"]), (Some(0), &json!("fs"), &Value::Null));
    let row = json!({ "ranks": "2", "hosts": "fs-spare-0", "owner": "far/b", "state": "online",
        "property": "spare", "since": "2026-01-01T00:00:00Z" });
    assert_eq!(table["items"][1], row);
    let (_, output, _) = ranks(&["fs", "-n", "near", "-o", "yaml"], &connected());
    assert!(output.contains("ranks: 0-1"), "{output}");
}

#[test]
fn a_joiner_has_its_own_rows_of_the_lenders_table() {
    let (code, output, errors) = ranks(&["b", "-n", "far", "-o", "wide"], &connected());
    let rows: Vec<Vec<&str>> =
        output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["RANK", "HOST", "OWNER", "STATE", "PROPERTY", "SINCE"]);
    assert_eq!(rows[1][..5], ["2", "fs-spare-0", "b", "online", "spare"]);
    assert_eq!((code, rows.len()), (Some(0), 3));
    let note = "note: b joins the instance of near/fs; \
        `kubectl minicluster -n near ranks fs` shows all its ranks\n";
    assert_eq!(errors, note);
}

#[test]
fn a_joiner_without_ranks_says_what_it_waits_for() {
    let mut objects = connected();
    objects[0]["status"]["leases"] = json!([]);
    let (code, output, errors) = ranks(&["b", "-n", "far"], &objects);
    assert_eq!((code, output.as_str()), (Some(0), ""));
    let expected = "No ranks are leased to b: Waiting, 0/2 ready: NoFreeRanks: 1 is missing.\n";
    assert!(errors.ends_with(expected), "{errors}");
}

#[test]
fn errors_say_what_to_do() {
    let [fs, b, job] = connected();
    let mut joins_b = minicluster("near", "c");
    joins_b["spec"]["flux"] = json!({ "join": { "name": "b", "namespace": "far" } });
    for (words, objects, expected) in [
        (
            ["fss", "-n", "near"],
            vec![fs.clone()],
            "error: there is no MiniCluster \"fss\" in near\nhint: did you mean \"fs\"?\n",
        ),
        (
            ["fs", "-n", "near"],
            vec![fs.clone()],
            "error: fs has no ranks to show: it has no Job yet, so its Flux instance was not \
             started (Ready, 1/2 ready)\n\
             hint: try again once it has started; `kubectl minicluster -n near list -o wide` \
             shows what it waits for\n",
        ),
        (
            ["b", "-n", "far"],
            vec![b.clone(), job],
            "error: b joins the MiniCluster \"near/fs\", which does not exist\nhint: Create the lender",
        ),
        (
            ["c", "-n", "near"],
            vec![fs, b, joins_b],
            "error: b has no ranks to show: it joins another MiniCluster, so it has no rank \
             table of its own\nhint: join \"near/fs\" instead\n",
        ),
    ] {
        let (code, output, errors) = ranks(&words, &objects);
        assert_eq!((code, output.as_str()), (Some(1), ""), "{words:?}");
        assert!(errors.starts_with(expected), "{words:?}: {errors}");
    }
}

/// Runs the command with these objects. Returns exit code, output and errors.
fn ranks(words: &[&str], objects: &[Value]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("http://{}", serve_objects(objects.to_vec()));
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig(&server, "")).unwrap();
    let ran = plugin(&folder, &[&["ranks"], words].concat());
    (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned(), errors(&ran))
}

/// A lender, a joiner of another namespace that leases two of its ranks, and the lender's Job.
fn connected() -> [Value; 3] {
    let mut lender = minicluster("near", "fs");
    lender["spec"]["flux"] = json!({ "bursting": { "spareRanks": 4 } });
    let lease = json!({ "ranks": "2-3", "holder": "b", "namespace": "far", "name": "b",
        "table": "t", "since": "2026-01-01T00:00:00Z", "state": "Active" });
    lender["status"] =
        json!({ "phase": "Ready", "ready": "1/2", "online": "0-2", "leases": [lease] });
    let mut joiner = minicluster("far", "b");
    joiner["spec"]["flux"] = json!({ "join": { "name": "fs", "namespace": "near" } });
    let joined = json!({ "type": "Joined", "status": "False", "reason": "NoFreeRanks",
        "message": "1 is missing", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    joiner["status"] = json!({ "phase": "Waiting", "ready": "0/2", "conditions": [joined] });
    let owner = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "name": "fs", "uid": "fs" });
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "fs", "namespace": "near", "ownerReferences": [owner],
            "annotations": { "flux-framework.org/ranks": "2",
                "flux-framework.org/table": "{\"spareRanks\":4}" },
        },
        "spec": { "completions": 2, "template": {} },
    });
    [lender, joiner, job]
}

fn minicluster(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "namespace": namespace, "name": name, "uid": name },
        "spec": { "size": 2, "containers": [{ "image": "busybox" }] },
    })
}
