//! `kubectl minicluster invite`: its file, its list, and its errors, as far as no object is changed.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use flux_operator_plan::{Cluster, Valid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{kubeconfig, serve_objects};
use crate::{command, errors, plugin};

/// "the-certificate", and the digits `0f` 32 times, as in a Secret.
const CERTIFICATE: &str = "dGhlLWNlcnRpZmljYXRl";
const KEY: &str =
    "MGYwZjBmMGYwZjBmMGYwZjBmMGYwZjBmMGYwZjBmMGYwZjBmMGYwZjBmMGYwZjBmMGYwZjBmMGYwZjBmMGYwZg==";
/// Messages and tables have it in whole seconds.
const EXPIRES: &str = "2099-01-01T00:00:00.123456Z";

#[test]
fn the_file_of_an_invitation_has_a_secret_and_a_minicluster() {
    let (code, output, errors) = invite(&["fs", "--ranks", "2", "--invitation", "a"], &lender());
    assert_eq!(code, Some(0), "{errors}");
    let expected = "\
note: invitation \"a\" exists: its file is written again
invitation \"a\" for 2 ranks (2-3) of fs was written: use it in the other cluster with `kubectl \
apply -f join.yaml`
warning: whoever can read this file has full access to the Flux instance of fs, until \
2099-01-01T00:00:00Z
";
    assert_eq!(errors, expected);
    let documents = serde_saphyr::from_multiple::<Value>(&output).unwrap();
    let kinds: Vec<&Value> = documents.iter().map(|document| &document["kind"]).collect();
    assert_eq!(kinds, ["Secret", "MiniCluster"]);
    assert_eq!(documents[1]["metadata"], json!({ "name": "fs-a" }));
    let lead = &documents[1]["spec"]["flux"]["bursting"]["leadBroker"];
    assert_eq!((&lead["address"], &lead["port"]), (&json!("192.0.2.1"), &json!(31000)));
    assert_eq!(lead["instance"]["ranks"], "2-3");
}

#[test]
fn the_file_can_be_validated_and_rendered() {
    let (_, output, errors) = invite(&["fs", "--ranks", "2", "--invitation", "a"], &lender());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("join.yaml");
    let run = |command: &str, text: &str| {
        std::fs::write(&file, text).unwrap();
        let program = env!("CARGO_BIN_EXE_flux-operator");
        let ran = Command::new(program).arg(command).arg("-f").arg(&file).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (ran.status.success(), text(&ran.stdout), text(&ran.stderr))
    };
    let (is_valid, checked, problems) = run("validate", &output);
    assert!(is_valid && problems.is_empty(), "{problems} {errors}");
    assert_eq!(checked.lines().filter(|line| line.ends_with(": ok")).count(), 2, "{checked}");
    let (is_rendered, rendered, notes) = run("render", &output);
    assert!(is_rendered && rendered.contains("\nkind: Job\n"), "{notes}");
    assert!(notes.contains("Secret \"fs-a-invitation\"): is left out: it is applied"), "{notes}");
    // The rest of the file is checked as well.
    for (from, to, problem) in [
        ("  invitation.key:", "  other.key:", "data: has no invitation.key, and"),
        (
            "  invitation.key:",
            "  invitation.key: YWFh\n  other.key:",
            "invitation.key is not 64 hexadecimal digits",
        ),
        ("192.0.2.1", "", "leadBroker.address: instance needs the address"),
        ("  size: 2\n  ", "  size: 3\n  ", "spec.size: is 3, and there are 2 ranks for it"),
        ("192.0.2.1", "a_b", "address: is not a host name or an address"),
        ("2099-01-01T00:00:00.", "20x9.", "expires: is \"20x9.123456Z\": expected a time"),
    ] {
        let changed = output.replace(from, to);
        assert_ne!(changed, output, "{from}: {output}");
        let (is_valid, _, problems) = run("validate", &changed);
        assert!(!is_valid && problems.contains(problem), "{from}: {problems}");
    }
    let (is_valid, _, warning) = run("validate", &output.replace("2099-", "2020-"));
    let expired = "instance.expires: the invitation has expired at 2020-01-01T00:00:00Z: ask for";
    assert!(is_valid && warning.contains(expired), "{warning}");
}

#[test]
fn the_file_is_written_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("join.yaml");
    let path = file.to_str().unwrap();
    let words = ["fs", "--ranks", "2", "--invitation", "a", "--output-file", path, "--as", "far"];
    let (code, output, errors) = invite(&words, &lender());
    assert_eq!((code, output.as_str()), (Some(0), ""), "{errors}");
    assert!(errors.contains(&format!("`kubectl apply -f {path}`")), "{errors}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# Invitation \"a\"") && text.contains("name: far-invitation"));
}

#[test]
fn nothing_is_printed_to_a_terminal() {
    let folder = folder_for(&lender());
    let (terminal, ours) = open_terminal();
    let words = ["-n", "near", "invite", "fs", "--ranks", "2", "--invitation", "a"];
    let ran = command(&folder, &words).stdout(terminal).output().unwrap();
    let expected = "error: the invitation contains the keys of the Flux instance and is not printed \
        to a terminal\nhint: redirect it with `> join.yaml`, or give --output-file join.yaml\n";
    assert_eq!((ran.status.code(), errors(&ran).as_str()), (Some(1), expected));
    // With a file, a terminal does not matter.
    let (terminal, _ours) = open_terminal();
    let file = folder.path().join("join.yaml");
    let words = [&words[..], &["--output-file", file.to_str().unwrap()]].concat();
    let ran = command(&folder, &words).stdout(terminal).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", errors(&ran));
    let mut shown = Vec::new();
    // Reading from a terminal that is closed on the other side is an error.
    let _closed = File::from(ours).read_to_end(&mut shown);
    assert_eq!(shown, b"");
}

#[test]
fn fields_that_name_objects_of_this_cluster_are_left_out() {
    let mut objects = lender();
    objects[0]["spec"]["pod"] = json!({ "serviceAccountName": "mine" });
    objects[0]["spec"]["containers"][0]["imagePullSecret"] = json!("registry");
    let (code, output, errors) = invite(&["fs", "--ranks", "2", "--invitation", "a"], &objects);
    assert_eq!(code, Some(0), "{errors}");
    let expected = "note: left out, because they name objects of this Kubernetes cluster: \
        imagePullSecret, pod\n";
    assert!(errors.contains(expected), "{errors}");
    assert!(!output.contains("registry") && !output.contains("mine"), "{output}");
}

#[test]
fn an_exposed_lead_can_be_reached_longer() {
    let mut objects = lender();
    objects[0]["spec"]["flux"]["bursting"]["expose"] = json!({ "direct": true });
    objects[0]["status"]["external"]["port"] = 30050.into();
    let (code, output, errors) = invite(&["fs", "--ranks", "2", "--invitation", "a"], &objects);
    assert_eq!(code, Some(0), "{errors}");
    let expected = "until fs is deleted: it is exposed without the gateway\n";
    assert!(errors.ends_with(expected) && output.contains("port: 30050\n"), "{errors}");
}

#[test]
fn invitations_are_listed() {
    let expected = "\
CLUSTER   INVITATION   RANKS   STATE    USED-BY   ADDRESS           EXPIRES
fs        a            2       Active   -         192.0.2.1:31000   2099-01-01T00:00:00Z
";
    for words in [&["list"][..], &["list", "fs"]] {
        assert_eq!(invite(words, &lender()), (Some(0), expected.into(), "".into()));
    }
    let (_, output, _) = invite(&["list", "-o", "json"], &lender());
    let listed: Value = serde_json::from_str(&output).unwrap();
    let view = json!({ "cluster": "fs", "invitation": "a", "ranks": 2, "leased": "2-3",
        "state": "Active", "addresses": ["192.0.2.1:31000"], "expires": EXPIRES });
    assert_eq!(listed, json!([view]));
    let (_, output, _) = invite(&["list", "-o", "yaml"], &lender());
    assert!(output.starts_with("- cluster: fs\n"), "{output}");
    let mut none = lender();
    none[0]["spec"]["flux"] = json!({});
    none[0]["status"] = json!({});
    let shown = (Some(0), "".into(), "No invitations.\n".into());
    assert_eq!(invite(&["list"], &none), shown);
    assert_eq!(invite(&["list", "-o", "json"], &none).1, "[]\n");
    assert_eq!(invite(&["revoke", "fs", "--all"], &none), shown);
}

#[test]
fn errors_say_what_to_do() {
    let changed = |change: fn(&mut [Value; 3])| {
        let mut objects = lender();
        change(&mut objects);
        objects
    };
    let closed = changed(|it| it[0]["spec"]["flux"]["bursting"]["expose"] = Value::Null);
    let joiner = changed(|it| it[0]["spec"]["flux"] = json!({ "join": { "name": "b" } }));
    let no_key = changed(|it| it[2]["data"]["report.key"] = Value::Null);
    let waiting = changed(|it| {
        it[0]["status"]["leases"] = json!([]);
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({ "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        it[0]["status"]["conditions"] =
            json!([condition("Exposed", "False", "GatewayMissing", "no gateway is running")]);
    });
    let b = &["fs", "--ranks", "2"][..];
    let a = &["fs", "--ranks", "2", "--invitation", "a"][..];
    let three = &["fs", "--ranks", "3", "--invitation", "a"][..];
    let five = &["fs", "--ranks", "5"][..];
    for (words, objects, expected) in [
        (
            &["fss", "--ranks", "2"][..],
            &lender(),
            "error: there is no MiniCluster \"fss\" in near\nhint: did you mean \"fs\"?\n",
        ),
        (
            b,
            &closed,
            "error: \"fs\" is not exposed, so brokers of other Kubernetes clusters cannot reach \
             it\nhint: add `--expose NodePort`, or set spec.flux.bursting.expose\n",
        ),
        (
            b,
            &joiner,
            "error: \"fs\" joins another MiniCluster itself, so it has no ranks to lend\n\
             hint: invite to \"b\", whose instance it joins\n",
        ),
        (
            three,
            &lender(),
            "error: invitation \"a\" of \"fs\" is for 2 ranks, not 3\nhint: choose another name, or \
             remove it with `kubectl minicluster -n near invite revoke fs a`\n",
        ),
        (
            &["fs", "--ranks", "2", "--invitation", "a", "--ttl", "8h"],
            &lender(),
            "error: invitation \"a\" of \"fs\" exists: it expires at 2099-01-01T00:00:00Z and cannot be \
             extended\nhint: invite under another name, or omit --ttl to write its file again\n",
        ),
        (
            five,
            &lender(),
            "error: \"fs\" can lend 4 ranks at most, and 5 are asked for\nhint: ask for fewer, or \
             create it again with more hosts to lend: spec.maxSize, or spec.flux.bursting.spareRanks\n",
        ),
        (
            a,
            &no_key,
            "note: invitation \"a\" exists: its file is written again\n\
             error: the Secret \"fs-flux-fs\" does not contain report.key\nhint: ",
        ),
        (
            &["fs", "--ranks", "2", "--invitation", "a", "--timeout", "1s"],
            &waiting,
            "note: invitation \"a\" exists: its file is written again\n\
             error: invitation \"a\" cannot be used after 1s: GatewayMissing: no gateway is \
             running\nhint: Install it with ",
        ),
        (
            &["revoke", "fs", "b", "a"],
            &lender(),
            "error: \"fs\" has no invitation \"b\"\nhint: it has \"a\"\n",
        ),
        (&["list", "fss"], &lender(), "error: there is no MiniCluster \"fss\" in near\nhint: "),
    ] {
        let (code, output, errors) = invite(words, objects);
        assert_eq!((code, output.as_str()), (Some(1), ""), "{words:?}: {errors}");
        assert!(errors.starts_with(expected), "{words:?}: {errors}");
        assert!(!errors.contains("removed again"), "{words:?}: {errors}");
    }
}

#[test]
fn a_suggested_command_is_for_the_same_cluster() {
    let folder = folder_for(&lender());
    let file = folder.path().join("other");
    std::fs::rename(folder.path().join("kubeconfig"), &file).unwrap();
    let file = file.to_str().unwrap();
    let options = ["-n", "near", "--context", "c", "--kubeconfig", file];
    let words = ["invite", "fs", "--ranks", "3", "--invitation", "a"];
    let ran = plugin(&folder, &[&options[..], &words].concat());
    let expected = format!("`kubectl minicluster {} invite revoke fs a`", options.join(" "));
    assert!(errors(&ran).contains(&expected), "{}", errors(&ran));
}

/// Runs the command with these objects. Returns exit code, output and errors.
fn invite(words: &[&str], objects: &[Value]) -> (Option<i32>, String, String) {
    let ran = plugin(&folder_for(objects), &[&["-n", "near", "invite"], words].concat());
    let (output, errors) = (String::from_utf8_lossy(&ran.stdout).into_owned(), errors(&ran));
    for secret in [CERTIFICATE, "the-certificate", KEY, "0f0f"] {
        assert!(!errors.contains(secret), "{errors}");
    }
    (ran.status.code(), output, errors)
}

/// A folder with a kubeconfig for a server with these objects.
fn folder_for(objects: &[Value]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("http://{}", serve_objects(objects.to_vec()));
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig(&server, "")).unwrap();
    folder
}

/// A MiniCluster whose invitation `a` has ranks and an address, its Job and its Secret.
fn lender() -> [Value; 3] {
    let bursting = json!({ "spareRanks": 4, "expose": {},
        "invitations": [{ "name": "a", "ranks": 2, "expires": EXPIRES }] });
    let mut lender = json!({
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": { "namespace": "near", "name": "fs", "uid": "fs", "resourceVersion": "7" },
        "spec": { "size": 2, "containers": [{ "image": "busybox" }],
            "flux": { "bursting": bursting } },
    });
    let valid = Valid::check(serde_json::from_value(lender.clone()).unwrap()).unwrap();
    let table = Cluster::of(&valid).unwrap().ranks.hash();
    let lease = json!({ "ranks": "2-3", "holder": format!("invitation:a:{EXPIRES}"),
        "namespace": "near", "name": "a", "table": table, "since": "2026-01-01T00:00:00Z",
        "state": "Active", "invitation": { "expires": EXPIRES, "port": 31000 } });
    lender["status"] = json!({ "leases": [lease], "external": { "addresses": ["192.0.2.1"],
        "lead": { "version": "0.80.0", "user": 1000, "cores": 4 } } });
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
    let data = json!({ "curve.cert": CERTIFICATE, "report.key": KEY });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "data": data,
        "metadata": { "namespace": "near", "name": "fs-flux-fs" } });
    [lender, job, secret]
}

/// A terminal, and our side of it.
fn open_terminal() -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let path = ptsname(&ours, Vec::new()).unwrap();
    let terminal = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
    (terminal.into(), ours)
}
