//! The offline check of all available manifests, without a cluster.

use flux_operator_api::burst::BurstTarget;
use flux_operator_api::{crd, manifest, validate};
use flux_operator_testkit::bad::{self, InvalidManifest};
use flux_operator_testkit::{corpus, isolated_burst, targets_of_every_kind};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::Value;

#[test]
fn invalid_manifests_are_refused_with_their_field() {
    let cases = bad::refused_by_schema().into_iter().chain(bad::refused_beyond_schema());
    for InvalidManifest { name, field, message, manifest: value } in cases {
        let document = manifest::Document { number: 1, value };
        let problems: Vec<String> =
            validate::check_document(&document).iter().map(ToString::to_string).collect();
        let problems = problems.join("\n");
        assert!(problems.contains(&field), "{name}: {problems:?}");
        assert!(problems.contains(message.as_deref().unwrap_or_default()), "{name}: {problems:?}");
    }
}

/// The rule of the CRD and the code that decides agree for every kind of target.
#[test]
fn a_job_runs_in_an_instance_of_its_own_at_every_target_elsewhere() {
    let targets = targets_of_every_kind();
    assert_eq!(targets.len(), 6);
    for target in targets {
        let decoded: BurstTarget = serde_json::from_value(target.clone()).unwrap();
        let problems = validate::check_schema_and_rules(&isolated_burst(target.clone()));
        assert_eq!(problems.is_empty(), decoded.is_elsewhere(), "{target}: {problems:?}");
    }
}

#[test]
fn q35_our_own_examples_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut count = 0;
    let inner = ["", "queue", "connected", "two-clusters", "burst"];
    let inner = inner.map(|it| format!("{folder}/{it}"));
    let files = inner.map(|folder| std::fs::read_dir(folder).unwrap());
    for file in files.into_iter().flatten() {
        let file = file.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let manifest = manifest::read(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(manifest.warnings, Vec::<String>::new(), "{}", file.display());
        let is_ours = |it: &&manifest::Document| is_of_group(it, "flux-framework.org/");
        for document in manifest.documents.iter().filter(is_ours) {
            assert_eq!(validate::check_document(document), Vec::new(), "{}", file.display());
        }
        count += 1;
    }
    assert!(count > 0, "no examples in {folder}");
}

fn is_of_group(document: &manifest::Document, group: &str) -> bool {
    document.value["apiVersion"].as_str().is_some_and(|version| version.starts_with(group))
}

/// The API server ignores misspelled fields of a Role, or stores a rule without effect.
#[test]
fn the_account_of_a_burst_target_has_exactly_the_rights_that_are_used() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/burst/target-account.yaml");
    let documents = manifest::read(&std::fs::read(file).unwrap()).unwrap().documents;
    let kinds: Vec<&str> = documents.iter().filter_map(|it| it.value["kind"].as_str()).collect();
    assert_eq!(kinds, ["ServiceAccount", "Role", "RoleBinding"]);
    let role: Role = serde_json::from_value(documents[1].value.clone()).unwrap();
    let mut rights = Vec::new();
    for rule in role.rules.unwrap() {
        let groups = rule.api_groups.unwrap();
        for resource in rule.resources.unwrap() {
            rights.push(format!("{}/{resource}: {}", groups.join(","), rule.verbs.join(",")));
        }
    }
    let used = [
        "batch/jobs: get,create,patch,delete",
        "/configmaps: create,delete",
        "/secrets: create,delete",
        "/pods: list",
        "/services: create,delete",
        "/pods/log: get",
    ];
    assert_eq!(rights, used);
    let binding: RoleBinding = serde_json::from_value(documents[2].value.clone()).unwrap();
    assert_eq!(Some(binding.role_ref.name), role.metadata.name);
    let subject = binding.subjects.unwrap().remove(0);
    assert_eq!(Some(subject.name.as_str()), documents[0].value["metadata"]["name"].as_str());
}

/// A kubeconfig that the controller would refuse must not be recommended.
#[test]
fn the_kubeconfig_of_a_burst_target_has_one_account_with_a_token() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/burst/target.kubeconfig");
    let documents = manifest::read(&std::fs::read(file).unwrap()).unwrap().documents;
    let value = &documents[0].value;
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&value["users"][0]["user"]), ["token"]);
    let cluster = &value["clusters"][0]["cluster"];
    assert_eq!(keys(cluster), ["certificate-authority-data", "server"]);
    assert_eq!(value["contexts"][0]["name"], value["current-context"]);
    assert_eq!(value["contexts"][0]["context"]["user"], value["users"][0]["name"]);
    assert_eq!(value["contexts"][0]["context"]["cluster"], value["clusters"][0]["name"]);
}

#[test]
fn the_examples_of_bursts_have_every_field() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/burst");
    // A Burst has one target, which is of one kind.
    let cases = [
        ("policy-every-field", crd::burst_policy(), Vec::new()),
        (
            "burst",
            crd::burst(),
            vec![
                "target.cluster",
                "target.clusterAPI",
                "target.command",
                "target.gke",
                "target.mock",
            ],
        ),
    ];
    for (name, crd, expected) in cases {
        let file = std::fs::read(format!("{folder}/{name}.yaml")).unwrap();
        let document = manifest::read(&file).unwrap().documents.remove(0);
        let schema = &crd::schema(&crd)["properties"]["spec"];
        let mut missing = Vec::new();
        add_missing("", schema, &[&document.value["spec"]], &mut missing);
        assert_eq!(missing, expected, "{name}");
    }
}

/// Adds the fields of a schema that none of the values has. Kubernetes' own types, and `anyOf`, whose
/// fields are those beside it, count as one field.
fn add_missing(path: &str, schema: &Value, values: &[&Value], missing: &mut Vec<String>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let found: Vec<&Value> = values.iter().filter_map(|value| value.get(name)).collect();
        if found.is_empty() {
            missing.push(path);
        } else if !["selector", "tolerations", "resources", "anyOf", "env", "envFrom", "variables"]
            .contains(&name.as_str())
        {
            let entries = found.iter().filter_map(|it| it.as_array()).flatten();
            let found: Vec<&Value> = found.iter().copied().chain(entries).collect();
            let entry = if schema["type"] == "array" { &schema["items"] } else { schema };
            add_missing(&path, entry, &found, missing);
        }
    }
}

/// The guide shows the examples as they are, so that the two do not differ.
#[test]
fn the_guide_to_bursts_shows_every_field_as_the_examples_do() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let guide = std::fs::read_to_string(format!("{root}/docs/guide/burst.md")).unwrap();
    for name in ["policy", "minicluster", "same-cluster", "policy-every-field", "burst"] {
        let text = std::fs::read_to_string(format!("{root}/examples/burst/{name}.yaml")).unwrap();
        // Without the comment at its head.
        let manifest = &text[text.find("apiVersion").unwrap()..];
        assert!(guide.contains(manifest), "the guide does not show {name}.yaml as it is");
    }
    let clouds = std::fs::read_to_string(format!("{root}/docs/guide/burst-clouds.md")).unwrap();
    for name in ["cluster-api", "gke"] {
        let text = std::fs::read_to_string(format!("{root}/examples/burst/{name}.yaml")).unwrap();
        assert!(clouds.contains(&text[text.find("apiVersion").unwrap()..]), "{name}.yaml");
    }
}

#[test]
fn manifests_in_the_documentation_are_valid() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folders = ["guide", "concepts"].map(|name| format!("{root}/docs/{name}"));
    let pages = folders.into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let pages = pages.map(|file| file.unwrap().path());
    let mut count = 0;
    for file in pages.chain([format!("{root}/README.md").into()]) {
        let text = std::fs::read_to_string(&file).unwrap();
        let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for block in blocks {
            for document in manifest::read(block.as_bytes()).unwrap().documents {
                assert_eq!(validate::check_document(&document), Vec::new(), "{}", file.display());
                count += 1;
            }
        }
    }
    assert!(count > 0, "no manifest in the documents");
}

#[test]
fn every_question_of_the_seeds_names_tests_that_exist() {
    let concepts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/concepts");
    let page = std::fs::read_to_string(format!("{concepts}/burst.md")).unwrap();
    let (_, section) = page.split_once("## The questions of the seeds").unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| 0")).collect();
    assert!(rows.len() > 20, "only {} questions", rows.len());
    for row in rows {
        let shown_by = row.split(" | ").nth(3).unwrap();
        let mut count = 0;
        for (name, rest) in shown_by.split("[`").skip(1).filter_map(|it| it.split_once("`](")) {
            let path = rest.split_once(')').unwrap().0;
            let source = std::fs::read_to_string(format!("{concepts}/{path}")).unwrap();
            assert!(source.contains(&format!("fn {name}(")), "{path} has no {name}");
            count += 1;
        }
        assert!(count > 0, "no test shows this: {row}");
    }
}

#[test]
fn the_corpus_is_valid() {
    for example in corpus::manifests() {
        let manifest = manifest::read(example.text.as_bytes()).unwrap();
        for document in &manifest.documents {
            assert_eq!(validate::check_document(document), Vec::new(), "{}", example.name);
        }
    }
}
