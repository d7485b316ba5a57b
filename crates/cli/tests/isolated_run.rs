//! A job that is handed over: from the jobspec that Flux prints at home to what Flux gets at the
//! target, through everything of ours in between: the objects that the burst controller renders, and
//! the program that the lead runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use flux_operator_api::MiniCluster;
use flux_operator_api::burst::BurstTarget;
use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_plan::bursting::{
    IsolatedObjects, PoolPods, isolated_objects, isolated_secret_name,
};
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_wire::{BootPlan, JobspecText, Program};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Texts that a shell, a template, Kubernetes or an option parser would change.
fn hard_text() -> impl Strategy<Value = String> {
    let hard = [
        "", " ", "\n", "\t", "'", "\"", "\\", "\\n", "`", "$", "$$", "$(HOME)", "${HOME}", "$(id)",
        "#", "*", "~", "-", "--", "-n4", "=", ";", "|", "{{", "}}", "{{id}}", "{0}", "%s", "\u{1}",
        "\u{7f}", "é", "ƒ", "日本", "🦀", "\u{feff}", "a b", "x",
    ];
    let pieces = vec(prop::sample::select(hard.to_vec()), 0..5).prop_map(|it| it.concat());
    prop_oneof![pieces, any::<String>()]
}

fn jobspec(argv: &[String], environment: &BTreeMap<String, String>, cwd: &str) -> String {
    let mut environment = json!(environment);
    environment["FLUX_URI"] = json!("local:///home");
    let slot = json!({ "type": "slot", "count": 1, "label": "task",
        "with": [{ "type": "core", "count": 1 }] });
    json!({
        "version": 1,
        "resources": [{ "type": "node", "count": 9, "with": [slot] }],
        "tasks": [{ "command": argv, "slot": "task", "count": { "per_slot": 1 } }],
        "attributes": { "system": { "duration": 60.0, "environment": environment, "cwd": cwd,
            "queue": "batch" } },
    })
    .to_string()
}

fn render(jobspec: String) -> IsolatedObjects {
    let home: MiniCluster = serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "metadata": { "name": "fs", "namespace": "ns", "uid": "fs-uid" },
        "spec": { "size": 2, "interactive": true, "containers": [{ "image": "i",
            "commands": { "pre": "true", "prefix": "strace", "script": "echo no" } }] },
    }))
    .unwrap();
    let target = BurstTarget { name: "away".into(), max_nodes: 9, ..BurstTarget::default() };
    let labels = BTreeMap::from([("flux-framework.org/burst".to_owned(), "burst-1".to_owned())]);
    let pods = PoolPods {
        namespace: "there",
        uid: "burst-uid",
        nodes: 9,
        labels: &labels,
        target: &target,
        deadline_seconds: Some(3600),
    };
    let settings = Settings {
        agent_image: "agent".into(),
        cluster_domain: "cluster.local".into(),
        delivery: DeliveryMethod::Init,
        report_url: Some("http://home".into()),
    };
    let key = SecretKey::from_bytes([7; 32]);
    let certificate = Certificate::new(key, Metadata::new("test").unwrap());
    let jobspec = JobspecText::new(jobspec);
    isolated_objects(&home, "burst-1", &pods, certificate, &jobspec, &settings)
        .map_err(|error| error.to_string())
        .unwrap()
}

/// The program of the lead, as the agent gets it.
fn program(objects: &IsolatedObjects) -> Vec<String> {
    let plan = &objects.config_map.data.as_ref().unwrap()["boot.json"];
    let plan: BootPlan = serde_json::from_str(plan).unwrap();
    assert!(plan.report.is_none(), "nobody there may reach home");
    match plan.program {
        Program::Words(words) => words,
        other => panic!("a shell would run {other:?}"),
    }
}

/// Folders of the pod. Here their files are in one folder.
const PLACES: [&str; 2] = ["/flux_operator_keys", "/mnt/flux"];

/// What Flux prints of a job whose exit code is 7.
const EVENTS: &str = r#"{"timestamp": 1.0, "name": "finish", "context": {"status": 1792}}"#;

/// Runs the lead's program with a `flux` that records what it gets, and whose job exits with 7.
fn run(folder: &Path, words: &[String]) -> (i32, Value) {
    let agent = folder.join("flux-operator-agent");
    if !agent.exists() {
        symlink(env!("CARGO_BIN_EXE_flux-operator"), &agent).unwrap();
        let script = format!(
            "#!/bin/sh\ncase \"$2\" in submit) cat \"$3\" >submitted; echo f1;; attach) exit 7;; \
             eventlog) echo '{EVENTS}';; esac\n"
        );
        fs::write(folder.join("flux"), script).unwrap();
        fs::set_permissions(folder.join("flux"), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let here = folder.to_str().unwrap();
    let words = words
        .iter()
        .map(|word| PLACES.iter().fold(word.clone(), |it, place| it.replace(place, here)));
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let status = Command::new(&agent)
        .args(words.skip(1))
        .current_dir(folder)
        .env("PATH", path)
        .stdin(Stdio::null())
        .status()
        .unwrap();
    let submitted = fs::read_to_string(folder.join("submitted")).unwrap();
    (status.code().unwrap(), serde_json::from_str(&submitted).unwrap())
}

#[test]
fn the_objects_of_a_run_need_nothing_of_home() {
    let environment = BTreeMap::from([("TOKEN".to_owned(), "hunter2".to_owned())]);
    let objects = render(jobspec(&["true".to_owned()], &environment, "/tmp"));
    let words = program(&objects);
    let agent = "/flux_operator_agent/flux-operator-agent";
    let jobspec = "/flux_operator_keys/jobspec.json";
    assert_eq!(words, [agent, "run-job", jobspec, "--root", "/mnt/flux"]);
    let secret = objects.secret.metadata.name.clone().unwrap();
    assert_eq!(secret, isolated_secret_name("burst-1", "burst-uid"));
    for metadata in [
        &objects.secret.metadata,
        &objects.config_map.metadata,
        &objects.service.metadata,
        &objects.job.metadata,
    ] {
        assert_eq!(metadata.owner_references, None);
        assert_eq!(metadata.namespace.as_deref(), Some("there"));
        assert_eq!(metadata.labels.as_ref().unwrap()["flux-framework.org/burst"], "burst-1");
    }
    let all = format!(
        "{}{}{}",
        serde_json::to_string(&objects.config_map).unwrap(),
        serde_json::to_string(&objects.service).unwrap(),
        serde_json::to_string(&objects.job).unwrap(),
    );
    assert!(!all.contains("hunter2"), "the environment is outside the Secret");
    assert!(!all.contains("strace") && !all.contains("echo no"), "home's own command is run");
    let job = objects.job.spec.unwrap();
    assert_eq!((job.completions, job.active_deadline_seconds), (Some(9), Some(3600)));
    let pod = job.template.spec.unwrap();
    let volumes = serde_json::to_string(&pod.volumes).unwrap();
    assert!(volumes.contains(&secret), "{volumes}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_command_arrives_byte_by_byte(
        argv in vec(hard_text(), 1..6),
        environment in btree_map("[A-Z_]{1,8}", hard_text(), 0..5),
        cwd in hard_text(),
    ) {
        prop_assume!(!environment.keys().any(|name| name.starts_with("FLUX_") || name.starts_with("PMI_")));
        let objects = render(jobspec(&argv, &environment, &cwd));
        let folder = tempfile::tempdir().unwrap();
        let secret = &objects.secret.data.as_ref().unwrap()["jobspec.json"].0;
        fs::write(folder.path().join("jobspec.json"), secret).unwrap();
        let (code, submitted) = run(folder.path(), &program(&objects));
        prop_assert_eq!(code, 7);
        prop_assert_eq!(&submitted["tasks"][0]["command"], &json!(argv));
        let system = &submitted["attributes"]["system"];
        prop_assert_eq!(&system["environment"], &json!(environment));
        prop_assert_eq!((&system["cwd"], &system["queue"]), (&json!(cwd), &Value::Null));
        prop_assert_eq!(&submitted["resources"][0]["count"], &json!(9));
    }
}
