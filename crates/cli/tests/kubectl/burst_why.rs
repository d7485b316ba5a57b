//! `kubectl minicluster burst why` and `why --job`, with a Flux whose commands print what flux-core
//! does.

use serde_json::{Value, json};

use crate::exec_server::serve_with_programs;
use crate::server::kubeconfig;
use crate::{errors, plugin};

const FLUX: &str = "/bin/sh /mnt/flux/flux-connect.sh flux ";

#[test]
fn a_job_is_explained_by_the_function_that_decides() {
    let expected = "\
job ƒ8 of default/fs: pending
  position  0 (2 wait)
  reason    WaitsForBurst: starts when the nodes of Burst \"fs-gke-1\" are up
  policy    cloud
  burst     fs-gke-1
";
    for words in [&["why", "fs", "--job", "7"][..], &["burst", "why", "fs", "--job", "ƒ8"]] {
        let (code, output, errors) = run(words);
        assert_eq!((code, output.as_str(), errors.as_str()), (Some(0), expected, ""), "{words:?}");
    }
    let (_, output, errors) = run(&["why", "fs", "--job", "0x8", "-o", "json"]);
    let answer: Value = serde_json::from_str(&output).unwrap_or_else(|_| panic!("{errors}"));
    let expected = json!({ "namespace": "default", "cluster": "fs", "job": "ƒ9",
        "state": "pending", "position": 1, "pending": 2, "reason": "NotSelected",
        "message": answer["message"], "policy": "cloud" });
    assert_eq!(answer, expected);
    assert!(answer["message"].as_str().unwrap().contains("--setattr=burstable"), "{answer}");
}

#[test]
fn a_job_that_is_not_pending_has_a_state() {
    let (code, output, _) = run(&["why", "fs", "--job", "5"]);
    let expected = "job ƒ6 of default/fs: running\n  reason    it runs on ranks 0\n";
    assert_eq!((code, output.as_str()), (Some(0), expected));
    let (code, output, _) = run(&["why", "fs", "--job", "3"]);
    let expected =
        "job ƒ4 of default/fs: INACTIVE COMPLETED\n  reason    it does not wait for nodes\n";
    assert_eq!((code, output.as_str()), (Some(0), expected));
    let (code, output, errors) = run(&["why", "fs", "--job", "99"]);
    assert_eq!((code, output.as_str()), (Some(1), ""));
    assert!(errors.starts_with("error: there is no job ƒ2i in \"fs\"\nhint: "), "{errors}");
}

#[test]
fn all_pending_jobs_are_listed_without_an_id() {
    let (code, output, errors) = run(&["burst", "why", "fs"]);
    let rows: Vec<Vec<&str>> =
        output.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let expected = [
        ["JOB", "REASON", "POLICY", "BURST"],
        ["ƒ8", "WaitsForBurst", "cloud", "fs-gke-1"],
        ["ƒ9", "NotSelected", "cloud", "-"],
    ];
    assert_eq!(rows, expected);
}

fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("http://{}", serve_with_programs(objects(), flux));
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig(&server, "")).unwrap();
    let ran = plugin(&folder, words);
    (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned(), errors(&ran))
}

/// What commands of Flux print: a job runs on the first of two brokers, and two are pending.
fn flux(words: &str) -> Option<String> {
    let job = |id: u64| {
        json!({ "id": id, "userid": 0, "urgency": 16, "t_submit": 1.5, "state": 8, "ntasks": 2,
            "nnodes": 2 })
    };
    let jobspec = |attribute: &str| json!({ "attributes": { "system": { attribute: 1 } } });
    let resources = json!({ "version": 1, "execution": { "R_lite":
        [{ "rank": "0-5", "children": { "core": "0-3" } }], "starttime": 0, "expiration": 0,
        "nodelist": ["fs-[0-1],fs-spare-[0-3]"] } });
    match words.strip_prefix(FLUX)? {
        "job list --user=all --states=pending --count=10000" => {
            Some(format!("{}\n{}\n", job(7), job(8)))
        }
        "job list --user=all --states=running --count=10000" => {
            Some(json!({ "id": 5, "state": 16, "nnodes": 1, "ranks": "0" }).to_string())
        }
        "overlay status --no-pretty" => Some("0 fs-0: partial\n1 fs-1: full\n".to_owned()),
        "resource drain -n -o {ranks}" => Some("\n".to_owned()),
        "resource R" => Some(resources.to_string()),
        "module list" => Some("sched-fluxion-qmanager idle\n".to_owned()),
        "kvs get job.0000.0000.0000.0007.jobspec job.0000.0000.0000.0008.jobspec" => {
            Some(format!("{}\n{}\n", jobspec("burstable"), jobspec("other")))
        }
        "jobs -n -o {state} {result} f4" => Some("INACTIVE COMPLETED\n".to_owned()),
        _ => None,
    }
}

/// A MiniCluster of two brokers and four spare ranks with its Job and lead, a policy, and a Burst.
fn objects() -> Vec<Value> {
    let group = "flux-framework.org/v1alpha2";
    let created = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": created })
    };
    let metadata = |name: &str| {
        json!({ "name": name, "namespace": "default", "uid": format!("{name}-uid"),
            "generation": 1, "creationTimestamp": created })
    };
    let owned = |mut metadata: Value| {
        // One that was created long ago would not be expected to join any more.
        metadata["creationTimestamp"] = json!(jiff::Timestamp::now().to_string());
        metadata["ownerReferences"] = json!([{ "apiVersion": group, "kind": "BurstPolicy",
            "name": "cloud", "uid": "cloud-uid" }]);
        metadata
    };
    let target = json!({ "name": "gke", "maxNodes": 4, "mock": {} });
    let mut job = metadata("fs");
    job["ownerReferences"] =
        json!([{ "apiVersion": group, "kind": "MiniCluster", "name": "fs", "uid": "fs-uid" }]);
    job["annotations"] = json!({ "flux-framework.org/ranks": "2",
        "flux-framework.org/table": "{\"spareRanks\":4}" });
    let state = json!({ "running": { "startedAt": created } });
    vec![
        json!({
            "apiVersion": group, "kind": "MiniCluster", "metadata": metadata("fs"),
            "spec": { "size": 2, "containers": [{ "image": "busybox" }],
                "flux": { "bursting": { "spareRanks": 4 } } },
            "status": { "observedGeneration": 1, "conditions": [condition("Ready")] },
        }),
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": job,
            "spec": { "completions": 2, "template": {} },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata("fs-0"),
            "status": { "containerStatuses": [{ "name": "fs", "image": "", "imageID": "",
                "ready": true, "restartCount": 0, "state": state }] },
        }),
        json!({
            "apiVersion": group, "kind": "BurstPolicy", "metadata": metadata("cloud"),
            "spec": { "selector": {}, "limits": { "nodes": 8 }, "targets": [target] },
            "status": { "conditions": [condition("Accepted")] },
        }),
        json!({
            "apiVersion": group, "kind": "Burst", "metadata": owned(metadata("fs-gke-1")),
            "spec": { "cluster": "fs", "policy": "cloud", "nodes": 2, "target": target },
            "status": { "phase": "Joining" },
        }),
    ]
}
