//! `kubectl minicluster queue`, `why`, `stop` and `resume` on a real API server, without an
//! operator: the test writes what it would have written.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use flux_operator_api::fluxsetup::StopPolicy;
use flux_operator_api::{FluxJob, FluxSetup};
use flux_operator_testkit::cluster::{client, in_namespace, install_crds, kubectl, program};
use flux_operator_testkit::{fluxjob, fluxsetup, merge};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;

#[tokio::test]
async fn q33_queue_and_why_show_positions_and_missing_resources() -> Result<()> {
    with_queue(async |queue| {
        let namespace = &queue.namespace;
        let listed = queue.run(&["queue"])?;
        assert_eq!(listed.code, Some(0), "{}", listed.errors);
        let rows: Vec<Vec<&str>> =
            listed.output.lines().map(|line| line.split_whitespace().collect()).collect();
        let row =
            [namespace.as_str(), "main", "BestEffortFIFO", "2/4", "nodes", "2", "1", "Active"];
        assert_eq!(rows[1], row, "{}", listed.output);
        let (main, wide) = (format!("{namespace}/main"), "WaitingForQuota");
        assert_eq!(
            rows[4][..7],
            ["0", namespace, "large", &main, "0", "3", wide],
            "{}",
            listed.output
        );
        assert_eq!(rows[5][..3], ["1", namespace, "larger"], "{}", listed.output);

        let why = queue.run(&["why", "larger"])?.output;
        for words in [
            ": Waiting\n",
            "asks for  4 nodes",
            "position  1 (2 wait)",
            "missing 2 nodes",
            "freed by  runs (2 nodes)",
        ] {
            assert!(why.contains(words), "{words}: {why}");
        }
        let why = queue.run(&["why", "runs"])?.output;
        assert!(why.contains(&format!("{main} granted 2 nodes at ")), "{why}");
        let report: Value = serde_json::from_str(&queue.run(&["queue", "-o", "json"])?.output)?;
        assert_eq!(report["pending"][0]["name"], "large");
        let missing = queue.run(&["queue", "mian"])?;
        assert!(missing.errors.contains("hint: did you mean \"main\"?"), "{}", missing.errors);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q33_a_job_can_be_checked_before_it_exists() -> Result<()> {
    with_queue(async |stage| {
        let asked = |size: u32| {
            let mut job = fluxjob("asked");
            job["spec"]["size"] = size.into();
            job.to_string()
        };
        let dry_run = ["why", "--dry-run", "-f", "-"];
        let small = stage.run_with_input(&dry_run, &asked(2))?;
        assert_eq!(small.code, Some(0), "{}{}", small.output, small.errors);
        assert!(small.output.contains(": Admissible\n"), "{}", small.output);
        let large = stage.run_with_input(&dry_run, &asked(3))?;
        assert_eq!(large.code, Some(1), "{}{}", large.output, large.errors);
        assert!(large.output.contains("missing 1 node"), "{}", large.output);
        assert_eq!(stage.api::<FluxJob>().get_opt("asked").await?, None);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q33_queues_and_jobs_are_stopped_and_resumed() -> Result<()> {
    with_queue(async |stage| {
        let policy =
            async || anyhow::Ok(stage.api::<FluxSetup>().get("main").await?.spec.stop_policy);
        for (words, expected, message) in [
            (&["stop", "main"][..], StopPolicy::Hold, " stopped: "),
            (&["stop", "main"], StopPolicy::Hold, " unchanged: "),
            (&["stop", "fs/main", "--drain"], StopPolicy::HoldAndDrain, " stopped: "),
            (&["resume", "main"], StopPolicy::None, " resumed"),
            (&["resume", "main"], StopPolicy::None, " unchanged: "),
        ] {
            let ran = stage.run(words)?;
            assert_eq!((ran.code, policy().await?), (Some(0), expected), "{}", ran.errors);
            assert!(ran.output.contains(message), "{words:?}: {}", ran.output);
        }
        let suspended =
            async || anyhow::Ok(stage.api::<FluxJob>().get("large").await?.spec.suspend);
        stage.run(&["stop", "large"])?;
        assert!(suspended().await?);
        let why = stage.run(&["why", "large"])?.output;
        assert!(why.contains("Suspended"), "{why}");
        stage.run(&["resume", "fj/large"])?;
        assert!(!suspended().await?);

        stage.create::<FluxJob>(fluxjob("main")).await?;
        let both = stage.run(&["stop", "main"])?;
        assert_eq!(both.code, Some(1));
        assert!(both.errors.contains("hint: write fs/main or fj/main"), "{}", both.errors);
        let unknown = stage.run(&["stop", "lage"])?;
        assert!(unknown.errors.contains("did you mean \"large\""), "{}", unknown.errors);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn q33_missing_permission_to_list_is_reported() -> Result<()> {
    with_queue(async |stage| {
        stage.grant("reader", &["get"]).await?;
        stage.grant("member", &["get", "list"]).await?;
        let reported = stage.as_user("reader").run(&["why", "fj/large"])?;
        assert_eq!(reported.code, Some(0), "{}", reported.errors);
        assert!(reported.output.contains("says the operator"), "{}", reported.output);
        assert!(reported.output.contains("note: you may not list"), "{}", reported.output);
        let listed = stage.as_user("member").run(&["queue"])?;
        assert_eq!(listed.code, Some(0), "{}", listed.errors);
        assert!(listed.errors.starts_with("note: "), "{}", listed.errors);
        assert!(listed.output.contains("2/4 nodes"), "{}", listed.output);
        let computed = stage.as_user("member").run(&["why", "fj/large"])?;
        assert!(computed.output.contains("missing 1 node"), "{}", computed.output);
        Ok(())
    })
    .await
}

/// A namespace with a queue of four nodes, a job that has two of them, and two larger jobs that
/// wait.
struct QueueNamespace {
    client: Client,
    namespace: String,
    folder: TempDir,
    user: Option<String>,
}

struct PluginOutput {
    code: Option<i32>,
    output: String,
    errors: String,
}

async fn with_queue(test: impl AsyncFnOnce(&QueueNamespace) -> Result<()>) -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    in_namespace(&client, async |namespace| {
        let folder = tempfile::tempdir()?;
        std::os::unix::fs::symlink(program()?, folder.path().join("kubectl-minicluster"))?;
        let (client, namespace) = (client.clone(), namespace.to_owned());
        let stage = QueueNamespace { client, namespace, folder, user: None };
        stage.prepare().await?;
        test(&stage).await
    })
    .await
}

impl QueueNamespace {
    async fn prepare(&self) -> Result<()> {
        self.create::<FluxSetup>(fluxsetup("main", 4)).await?;
        for (name, size) in [("runs", 2), ("large", 3), ("larger", 4)] {
            let mut job = fluxjob(name);
            // The order within one second is by uid, so the priority determines it.
            let spec = json!({ "size": size, "priority": if name == "larger" { -1 } else { 0 } });
            merge(&mut job, &json!({ "spec": spec }));
            self.create::<FluxJob>(job).await?;
        }
        self.patch_status("runs", json!({ "admission": {
            "queue": format!("{}/main", self.namespace), "size": 2, "time": "2026-01-01T00:00:00Z",
            "resources": { "nodes": "2", "pods": "2" },
        }}))
        .await?;
        let waits = json!({
            "type": "Admitted", "status": "False", "reason": "WaitingForQuota",
            "message": "says the operator", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        self.patch_status("large", json!({ "conditions": [waits] })).await
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create<K>(&self, object: Value) -> Result<()>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let object: K = serde_json::from_value(object)?;
        self.api::<K>().create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn patch_status(&self, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api::<FluxJob>().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Allows a user these verbs on jobs, queues and MiniClusters of the namespace.
    async fn grant(&self, user: &str, verbs: &[&str]) -> Result<()> {
        let group = "flux-framework.org";
        let resources = ["fluxjobs", "fluxsetups", "miniclusters"];
        self.create::<Role>(json!({
            "metadata": { "name": user },
            "rules": [{ "apiGroups": [group], "resources": resources, "verbs": verbs }],
        }))
        .await?;
        let rights = "rbac.authorization.k8s.io";
        self.create::<RoleBinding>(json!({
            "metadata": { "name": user },
            "roleRef": { "apiGroup": rights, "kind": "Role", "name": user },
            "subjects": [{ "apiGroup": rights, "kind": "User", "name": user }],
        }))
        .await
    }

    /// The same namespace, for a user with few permissions.
    fn as_user(&self, user: &str) -> QueueNamespace {
        let folder = tempfile::tempdir().expect("a directory can be created");
        let (from, to) = (self.folder.path(), folder.path().join("kubectl-minicluster"));
        std::fs::copy(from.join("kubectl-minicluster"), to).expect("the program can be copied");
        let (client, namespace) = (self.client.clone(), self.namespace.clone());
        QueueNamespace { client, namespace, folder, user: Some(user.to_owned()) }
    }

    fn run(&self, words: &[&str]) -> Result<PluginOutput> {
        self.run_with_input(words, "")
    }

    /// Runs the plugin with this standard input.
    fn run_with_input(&self, words: &[&str], input: &str) -> Result<PluginOutput> {
        let mut child = Command::new(self.folder.path().join("kubectl-minicluster"))
            .args(["--namespace", &self.namespace])
            .args(words)
            .env("KUBECONFIG", self.kubeconfig()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("no standard input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (code, errors) = (output.status.code(), text(&output.stderr));
        Ok(PluginOutput { code, output: text(&output.stdout), errors })
    }

    /// The kubeconfig of the cluster under test, which impersonates the user.
    fn kubeconfig(&self) -> Result<PathBuf> {
        let shown =
            kubectl()?.args(["config", "view", "--raw", "--flatten", "-o", "json"]).output()?;
        let mut config: Value = serde_json::from_slice(&shown.stdout)?;
        if let Some(user) = &self.user {
            config["users"][0]["user"]["as"] = user.as_str().into();
        }
        let file = self.folder.path().join("kubeconfig");
        std::fs::write(&file, config.to_string())?;
        Ok(file)
    }
}
