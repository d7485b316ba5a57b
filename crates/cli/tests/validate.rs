//! `flux-operator validate`: exit codes, one line per problem, and no panic for any input.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const GOOD: &str = "
apiVersion: flux-framework.org/v1alpha2
kind: MiniCluster
metadata: {name: good}
spec: {size: 4, containers: [{image: busybox, command: hostname}]}
";

#[test]
fn a_valid_manifest_is_ok_as_a_file_and_on_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("good.yaml");
    std::fs::write(&file, GOOD).unwrap();
    let by_file = validate(&[&file]);
    assert_eq!(by_file.status.code(), Some(0), "{}", errors(&by_file));
    let by_input = validate_input(GOOD.as_bytes());
    assert_eq!(by_input.status.code(), Some(0), "{}", errors(&by_input));
    assert_eq!(output(&by_input), "standard input: ok\n");
}

#[test]
fn each_problem_is_one_line_with_the_path_of_its_field() {
    let manifest = GOOD.replace("size: 4", "size: 0, tasks: -1, sizes: 2");
    let result = validate_input(manifest.as_bytes());
    assert_eq!(result.status.code(), Some(1));
    let errors = errors(&result);
    assert_eq!(errors.lines().count(), 3, "{errors}");
    for field in ["spec.size: ", "spec.tasks: ", "spec.sizes: unknown field"] {
        assert!(errors.contains(field), "{errors}");
    }
}

#[test]
fn a_probable_mistake_is_only_a_warning() {
    let manifest =
        GOOD.replace("size: 4", "size: 2, maxSize: 4, flux: {scheduler: {queuePolicy: fcfs}}");
    let result = validate_input(manifest.as_bytes());
    assert_eq!(result.status.code(), Some(0));
    let errors = errors(&result);
    let warning = "standard input: warning: spec.flux.scheduler.queuePolicy: ";
    assert!(errors.starts_with(warning), "{errors}");
}

#[test]
fn names_and_job_ids_of_bursts_say_what_is_expected() {
    let long = "a".repeat(254);
    let allowed = "a".repeat(253);
    for (name, job, expected) in [
        (allowed.as_str(), "f2bGzJKq", ""),
        ("tonight", "60565749760", ""),
        ("tonight", "", ""),
        ("tonight", "x", "spec.isolatedJob: is \"x\", which is no job id: "),
        (
            "tonight",
            "ƒ2bGzJKq",
            "spec.isolatedJob: is \"ƒ2bGzJKq\": expected the id of a job, such as f2bGzJKq, with f instead of ƒ",
        ),
        (long.as_str(), "f2bGzJKq", "metadata.name: has 254 characters: must have at most 253"),
        ("To_night", "f2bGzJKq", "metadata.name: is \"To_night\": expected lowercase letters, "),
    ] {
        let manifest = format!(
            "
apiVersion: flux-framework.org/v1alpha2
kind: Burst
metadata: {{name: {name}}}
spec:
  cluster: fs
  nodes: 2
  isolatedJob: '{job}'
  target: {{name: away, maxNodes: 2, kubeconfig: {{secret: away}}}}
"
        );
        let result = validate_input(manifest.as_bytes());
        let errors = errors(&result);
        assert_eq!(result.status.success(), expected.is_empty(), "{job}: {errors}");
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn a_first_policy_gets_messages_that_say_what_to_write() {
    let valid = "
apiVersion: flux-framework.org/v1alpha2
kind: BurstPolicy
metadata: {name: first}
spec:
  selector: {}
  jobs: {}
  limits: {nodes: 2}
  targets: [{name: a, maxNodes: 2, cluster: {}}]
";
    assert_eq!(errors(&validate_input(valid.as_bytes())), "");
    for (right, wrong, expected) in [
        ("cluster: {}", "cluster:", "mock: set exactly one of them, such as `cluster: {}`"),
        (
            "selector: {}",
            "selector: {burst: allowed}",
            "spec.selector.burst: unknown field: expected matchExpressions or matchLabels",
        ),
        (
            "jobs: {}",
            "jobs: {users: [alice]}",
            "spec.jobs.users[0]: must be a user id such as 1000, not text",
        ),
    ] {
        let errors = errors(&validate_input(valid.replace(right, wrong).as_bytes()));
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn a_policy_whose_jobs_can_run_nowhere_is_a_warning() {
    let policy = |target: &str| {
        format!(
            "
apiVersion: flux-framework.org/v1alpha2
kind: BurstPolicy
metadata: {{name: cloud}}
spec:
  selector: {{}}
  isolated: true
  limits: {{nodes: 2}}
  targets: [{{name: a, maxNodes: 2, {target}}}]
"
        )
    };
    let result = validate_input(policy("cluster: {}").as_bytes());
    let warned = errors(&result);
    assert_eq!(result.status.code(), Some(0));
    let expected =
        "standard input: warning: spec.isolated: no target is in another Kubernetes cluster";
    assert!(warned.starts_with(expected), "{warned}");
    let result = validate_input(policy("kubeconfig: {secret: away}").as_bytes());
    assert_eq!(errors(&result), "");
}

#[test]
fn the_invalid_one_of_two_documents_is_named() {
    let bad = GOOD.replace("size: 4", "size: 0").replace("good", "second");
    let result = validate_input(format!("{GOOD}---{bad}").as_bytes());
    assert_eq!(result.status.code(), Some(1));
    assert_eq!(output(&result), "standard input (document 1, MiniCluster \"good\"): ok\n");
    let errors = errors(&result);
    assert!(
        errors.starts_with("standard input (document 2, MiniCluster \"second\"): spec.size: "),
        "{errors}"
    );
}

#[test]
fn an_unreadable_file_does_not_prevent_the_check_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.yaml");
    std::fs::write(&good, GOOD).unwrap();
    let missing = folder.path().join("missing.yaml");
    let result = validate(&[&missing, folder.path(), &good]);
    assert_eq!(result.status.code(), Some(1));
    assert!(output(&result).ends_with("good.yaml: ok\n"));
    let errors = errors(&result);
    assert!(errors.contains("missing.yaml: No such file"), "{errors}");
    assert!(errors.contains("Is a directory"), "{errors}");
}

#[test]
fn documents_of_other_kinds_are_errors() {
    let cases = [
        ("just text", "document: is not an object"),
        ("[1, 2]", "document: is not an object"),
        ("a: b", "kind: is missing"),
        ("kind: Job\napiVersion: batch/v1", "kind: is \"Job\""),
        (
            "kind: Fluxjob",
            "kind: is \"Fluxjob\", which is not checked here: did you mean \"FluxJob\"?",
        ),
        ("kind: MiniCluster", "apiVersion: is missing"),
        (&GOOD.replace("v1alpha2", "v1alpha1"), "apiVersion: is \"flux-framework.org/v1alpha1\""),
        (&GOOD.replace("spec:", "specs:"), "spec: is required"),
        ("", "it contains no object"),
        ("a: [1", "not YAML: line "),
    ];
    for (manifest, expected) in cases {
        let result = validate_input(manifest.as_bytes());
        assert_eq!(result.status.code(), Some(1), "{manifest}");
        let errors = errors(&result);
        assert!(errors.contains(expected), "{manifest:?}: {errors}");
    }
}

#[test]
fn all_examples_are_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let folders = ["", "queue", "connected", "two-clusters"].map(|it| examples.join(it));
    let files: Vec<_> = folders
        .iter()
        .flat_map(|folder| folder.read_dir().unwrap())
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    assert!(!files.is_empty());
    let files: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
    let result = validate(&files);
    assert_eq!(result.status.code(), Some(0), "{}", errors(&result));
}

#[test]
fn objects_that_the_operator_would_refuse_are_errors() {
    let object = |kind: &str, spec: &str| {
        format!(
            "apiVersion: flux-framework.org/v1alpha2\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n"
        )
    };
    let kueue = "{queue: ours, jobLabels: {kueue.x-k8s.io/queue-name: theirs}, containers: [{}]}";
    let cases = [
        (
            object("MiniCluster", "{autoscale: {maxSize: 2}, containers: [{}]}"),
            Some("spec.autoscale: is not supported yet: remove it"),
        ),
        (object("MiniCluster", kueue), Some("spec.queue: cannot be combined with Kueue's")),
        (object("FluxSetup", "{quotaFromNodes: {}}"), None),
        (object("FluxJob", "{size: 2, command: hostname, priorityClassName: high}"), None),
        (
            object("FluxJob", "{comand: hostname}"),
            Some("spec.comand: unknown field: did you mean \"command\"?"),
        ),
        (
            object("FluxJob", "{template: {spec: {autoscale: {maxSize: 2}, containers: [{}]}}}"),
            Some("autoscale: is not supported yet: remove it"),
        ),
        (object("FluxSetup", "{namespaceSelector: {}, quota: {nodes: 4, memory: 16Gi}}"), None),
        (object("FluxSetup", "{cohort: all}"), Some("cohorts are not supported yet")),
        (object("FluxSetup", "{quota: {nodes: 4e}}"), Some("spec.quota.nodes: ")),
    ];
    for (manifest, expected) in cases {
        let result = validate_input(manifest.as_bytes());
        let errors = errors(&result);
        assert_eq!(result.status.success(), expected.is_none(), "{manifest}: {errors}");
        assert!(errors.contains(expected.unwrap_or_default()), "{manifest}: {errors}");
    }
}

#[test]
fn two_documents_that_are_the_same_object_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["one.yaml", "two.yaml"].map(|name| folder.path().join(name));
    files.iter().for_each(|file| std::fs::write(file, GOOD).unwrap());
    let result = validate(&[&files[0], &files[1]]);
    assert_eq!(result.status.code(), Some(1));
    let expected = format!(
        "{}: has the kind, namespace and name of {}: rename one\n",
        files[1].display(),
        files[0].display()
    );
    assert_eq!(errors(&result), expected);
    assert_eq!(output(&result), format!("{}: ok\n", files[0].display()));
    let other = GOOD.replace("name: good", "name: good, namespace: other");
    let result = validate_input(format!("{GOOD}---{other}").as_bytes());
    assert_eq!(result.status.code(), Some(0), "{}", errors(&result));
}

#[test]
fn a_joiner_that_does_not_fit_its_lender_gets_a_warning() {
    let object = |metadata: &str, flux: &str| {
        format!(
            "apiVersion: flux-framework.org/v1alpha2\nkind: MiniCluster\nmetadata: {{{metadata}}}\n\
             spec: {{size: 2, flux: {{{flux}}}, containers: [{{}}]}}\n"
        )
    };
    let joiner = object("name: joiner", "join: {name: lender}");
    let lender = |count: u32| object("name: lender", &format!("bursting: {{spareRanks: {count}}}"));
    let (middle, abroad) = (
        object("name: lender", "join: {name: other}"),
        object("name: joiner, namespace: two", "join: {name: lender, namespace: default}"),
    );
    for (documents, warning) in [
        ([&joiner, &lender(2)], ""),
        (
            [&joiner, &lender(1)],
            "needs 2 ranks of \"lender\", and 1 is free: 1 more is missing: set",
        ),
        ([&joiner, &middle], "cannot join \"lender\", which joins \"other\" itself: let"),
        ([&abroad, &lender(2)], "cannot join \"lender\", which does not allow namespace \"two\""),
    ] {
        let result = validate_input(documents.map(String::as_str).join("---\n").as_bytes());
        let errors = errors(&result);
        assert_eq!(result.status.code(), Some(0), "{errors}");
        assert_eq!(errors.lines().count(), usize::from(!warning.is_empty()), "{errors}");
        let start = "standard input (document 1, MiniCluster \"joiner\"): warning: ";
        assert!(warning.is_empty() || errors.starts_with(start), "{errors}");
        assert!(errors.contains(warning), "{errors}");
    }
}

#[test]
fn a_secret_that_a_minicluster_names_is_checked_for_its_keys() {
    let secret = |name: &str, key: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ndata: {{{key}: YQ==}}\n")
    };
    let minicluster = GOOD.replace("size: 4", "size: 4, flux: {curveCertSecret: mine}");
    let label = "standard input (document 1, Secret \"mine\"): ";
    let other = "standard input (document 1, Secret \"other\"): metadata.name: no MiniCluster that is \
        given with this Secret names it in the same metadata.namespace: spec.flux.curveCertSecret is";
    let elsewhere = secret("mine, namespace: b", "curve.cert");
    let not_named = other.replace("\"other\"", "\"mine\"");
    for (secret, expected) in [
        (secret("mine", "curve.cert"), String::new()),
        (secret("mine", "tls.key"), format!("{label}data: has no curve.cert, and")),
        (
            secret("mine", "curve.cert").replace("YQ==", "?"),
            format!("{label}data: curve.cert is not"),
        ),
        (secret("other", "curve.cert"), other.to_owned()),
        (elsewhere, not_named),
    ] {
        let result = validate_input(format!("{secret}---\n{minicluster}").as_bytes());
        assert_eq!(result.status.success(), expected.is_empty(), "{}", errors(&result));
        assert!(errors(&result).starts_with(&expected), "{}", errors(&result));
        let good = "standard input (document 2, MiniCluster \"good\"): ok\n";
        assert!(output(&result).ends_with(good), "{}", output(&result));
    }
}

#[test]
fn what_a_pattern_allows_is_said_in_words() {
    let invitation = "{name: A_b, ranks: 1, expires: tomorrow}";
    let bursting = format!("{{expose: {{hostname: Ä}}, invitations: [{invitation}]}}");
    let manifest = GOOD.replace("size: 4", &format!("size: 4, flux: {{bursting: {bursting}}}"));
    let errors = errors(&validate_input(manifest.as_bytes()));
    for expected in [
        "invitations[0].name: is \"A_b\": expected lowercase letters, digits and '-', starting with",
        "invitations[0].expires: is \"tomorrow\": expected a time such as 2026-05-04T11:00:00Z",
        "expose.hostname: is \"Ä\": expected a host name such as flux.example.org",
    ] {
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn invitations_that_cannot_be_granted_give_warnings() {
    let invitation = |name: &str, ranks: i32, year: i32| {
        format!("{{name: {name}, ranks: {ranks}, expires: '{year}-01-01T00:00:00Z'}}")
    };
    let invitations =
        [invitation("a", 5, 2099), invitation("b", 1, 2020), invitation("c", 4, 2099)].join(", ");
    let bursting = format!("{{spareRanks: 4, invitations: [{invitations}]}}");
    let manifest = GOOD.replace("size: 4", &format!("size: 4, flux: {{bursting: {bursting}}}"));
    let result = validate_input(manifest.as_bytes());
    assert_eq!(result.status.code(), Some(0), "{}", errors(&result));
    let errors = errors(&result);
    let paths: Vec<&str> = errors.lines().filter_map(|line| line.split(": ").nth(2)).collect();
    let list = "spec.flux.bursting.invitations";
    assert_eq!(paths, [list.to_owned(), format!("{list}[0].ranks"), format!("{list}[1].expires")]);
}

#[test]
fn garbage_causes_a_short_error_and_no_panic() {
    let ten_megabytes = 10 * 1024 * 1024;
    let noise: Vec<u8> =
        (0..ten_megabytes as u64).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    let below_the_limit = 7 * 1024 * 1024;
    let bomb = format!(
        "a: &a [{}]\nb: &b [{}]\nc: [{}]",
        "x,".repeat(1000),
        "*a,".repeat(1000),
        "*b,".repeat(1000)
    );
    let cases: [(&str, Vec<u8>); 7] = [
        ("noise", noise),
        ("zeros", vec![0; ten_megabytes]),
        ("letters", vec![b'a'; below_the_limit]),
        ("brackets", vec![b'['; below_the_limit]),
        ("braces", b"{a: ".repeat(below_the_limit / 4)),
        ("dashes", b"- ".repeat(below_the_limit / 2)),
        ("aliases", bomb.into_bytes()),
    ];
    for (name, bytes) in cases {
        let result = validate_input(&bytes);
        assert_eq!(result.status.code(), Some(1), "{name}: {:.300}", errors(&result));
        let errors = errors(&result);
        assert!(errors.len() < 1000, "{name}: {} bytes of error", errors.len());
        assert!(!errors.contains("panicked"), "{name}: {errors}");
        assert!(errors.starts_with("standard input"), "{name}: {errors}");
    }
}

#[test]
fn a_key_given_twice_is_a_warning() {
    let result = validate_input(format!("{GOOD}kind: MiniCluster\n").as_bytes());
    assert_eq!(result.status.code(), Some(0));
    assert!(errors(&result).contains("warning: line 6"), "{}", errors(&result));
}

fn validate(files: &[&Path]) -> Output {
    program().arg("validate").arg("-f").args(files).output().unwrap()
}

fn validate_input(manifest: &[u8]) -> Output {
    let mut child = program()
        .args(["validate", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program stops reading when the input is too large; that is not a failure here.
    let _ = child.stdin.take().unwrap().write_all(manifest);
    child.wait_with_output().unwrap()
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_flux-operator"))
}

fn output(result: &Output) -> String {
    String::from_utf8(result.stdout.clone()).unwrap()
}

fn errors(result: &Output) -> String {
    String::from_utf8(result.stderr.clone()).unwrap()
}
