//! `kubectl minicluster invite` on a real API server. The test plays the operator: it writes the
//! Secrets, and leases ranks to the invitations.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use flux_operator_api::minicluster::Invitation;
use flux_operator_api::{MiniCluster, manifest, validate};
use flux_operator_plan::kubernetes::secret_name;
use flux_operator_plan::{Cluster, Valid, shown_expiry};
use flux_operator_testkit::cluster::{
    client, in_namespace, install_crds, kubectl, program, refusal, with_timeout,
};
use flux_operator_testkit::{merge, smallest_minicluster};
use futures::TryStreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;

const CERTIFICATE: &[u8] = b"#   certificate\nsecret-key = \"certificate-text\"\n";
const REPORT_KEY: &str = "0f0e0d0c0b0a09080706050403020100ffeeddccbbaa99887766554433221100";

/// Text that versions of YAML before 1.2, which kubectl reads, take for something else.
const AMBIGUOUS: [&str; 20] = [
    "no",
    "Yes",
    "on",
    "~",
    "null",
    "0777",
    "0x1f",
    "1:30",
    "1e3",
    ".inf",
    "2026-01-01",
    "=",
    "<<",
    "",
    " a # b",
    "a: b\n\n  c\n\n",
    "\ta\t",
    "'\"\\\u{e9}\u{1f600}",
    "{a}",
    LONG,
];

/// Longer than a line, with spaces that folding must keep.
const LONG: &str = " a  b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3 4 5 6 7 8 9  and   \
    more  words  that do not fit  into one line of text ";

#[tokio::test(flavor = "multi_thread")]
async fn the_file_can_be_applied_and_has_the_exact_keys() -> Result<()> {
    with_lender(json!({ "expose": { "type": "NodePort" } }), async |stage| {
        let operator = stage.play_operator();
        let ran = stage.run(&["invite", "fs", "--ranks", "2", "--ttl", "30m"]).await?;
        operator.abort();
        assert_eq!(ran.code, Some(0), "{}", ran.errors);
        let invited = stage.invitations().await?.remove(0);
        assert!(invited.name.starts_with("invite-") && invited.ranks == 2, "{invited:?}");
        let expected = format!(
            "invitation {:?} for 2 ranks (2-3) of fs was written: use it in the other cluster with \
             `kubectl apply -f join.yaml`\n\
             warning: whoever can read this file has full access to the Flux instance of fs, until \
             {}\n",
            invited.name,
            shown_expiry(&invited.expires)
        );
        assert_ne!(shown_expiry(&invited.expires), invited.expires, "it has random digits");
        assert_eq!(ran.errors, expected);

        let documents = manifest::read(ran.output.as_bytes())?.documents;
        let [secret, minicluster] = &documents[..] else { panic!("{}", ran.output) };
        let joiner = format!("fs-{}", invited.name);
        assert_eq!(minicluster.value["metadata"], json!({ "name": joiner }));
        assert_eq!(secret.value["metadata"], json!({ "name": format!("{joiner}-invitation") }));
        let problems = validate::check_document(minicluster);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(refusal(&stage.client, &minicluster.value).await?, None);

        let applied = stage.apply(&ran.output)?;
        let secret: Secret = serde_json::from_value(applied[0].clone())?;
        let data = secret.data.context("it has no data")?;
        assert_eq!(data["munge.key"], munge_key());
        assert_eq!(data["curve.cert"], ByteString(CERTIFICATE.to_vec()));
        assert_eq!((data["invitation.key"].0.len(), data.len()), (64, 3));
        assert_ne!(data["invitation.key"].0, REPORT_KEY.as_bytes());
        assert_eq!(applied[1]["spec"]["containers"][0]["environment"], environment());
        let lead = &applied[1]["spec"]["flux"]["bursting"]["leadBroker"];
        assert_eq!(lead["addresses"], json!(["[2001:db8::1]:31002"]));
        assert_eq!((&lead["address"], &lead["port"]), (&json!("192.0.2.1"), &json!(31002)));
        assert_eq!(lead["instance"]["expires"], json!(invited.expires));
        let key = String::from_utf8(data["invitation.key"].0.clone())?;
        for text in ["certificate-text", REPORT_KEY, &key] {
            assert!(!ran.errors.contains(text), "{}", ran.errors);
        }
        assert!(!ran.output.contains(REPORT_KEY), "{}", ran.output);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_is_written_again_listed_and_revoked() -> Result<()> {
    with_lender(json!({ "expose": {} }), async |stage| {
        let operator = stage.play_operator();
        let words = ["invite", "fs", "--ranks", "1", "--invitation", "a", "--as", "far"];
        let first = stage.run(&words).await?;
        assert_eq!(first.code, Some(0), "{}", first.errors);
        let again = stage.run(&words).await?;
        assert_eq!((again.code, &again.output), (Some(0), &first.output), "{}", again.errors);
        assert_eq!(stage.invitations().await?.len(), 1);
        stage.run(&["invite", "fs", "--ranks", "2", "--invitation", "b"]).await?;
        let listed = stage.run(&["invite", "list", "fs"]).await?.output;
        let rows: Vec<Vec<&str>> =
            listed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1][..6], ["fs", "a", "1", "Active", "-", "192.0.2.1:31002"], "{listed}");
        assert_eq!(rows[2][..4], ["fs", "b", "2", "Active"], "{listed}");

        let revoked = stage.run(&["invite", "revoke", "fs", "a"]).await?;
        let expected = "invitation \"a\" was revoked: its connections are closed and its ranks are \
            free\n";
        assert_eq!((revoked.code, revoked.output.as_str()), (Some(0), expected));
        let gone = stage.run(&["invite", "revoke", "fs", "a"]).await?;
        let expected = "error: \"fs\" has no invitation \"a\"\nhint: it has \"b\"\n";
        assert_eq!((gone.code, gone.errors.as_str()), (Some(1), expected));
        // The file of the revoked invitation is not that of another one with the same name.
        let another = stage.run(&words).await?;
        assert_eq!(another.code, Some(0), "{}", another.errors);
        assert_ne!(another.output, first.output);
        stage.run(&["invite", "revoke", "fs", "a"]).await?;
        operator.abort();

        let no_wait = stage.run(&["invite", "revoke", "fs", "--all", "--no-wait"]).await?;
        assert_eq!(no_wait.output, "invitation \"b\" was revoked\n", "{}", no_wait.errors);
        let leaving = stage.run(&["invite", "list"]).await?.output;
        assert!(leaving.contains("Leaving"), "{leaving}");
        let twice = stage.run(&["invite", "revoke", "fs", "b"]).await?;
        assert!(twice.errors.contains("hint: it was revoked already"), "{}", twice.errors);
        assert_eq!(stage.lender().await?.spec.flux.unwrap().bursting.unwrap().invitations, []);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_that_takes_too_long_is_an_error() -> Result<()> {
    with_lender(json!({ "expose": {} }), async |stage| {
        let operator = stage.play_operator();
        stage.run(&["invite", "fs", "--ranks", "1", "--invitation", "a"]).await?;
        operator.abort();
        let ran = stage.run(&["invite", "revoke", "fs", "a", "--timeout", "1s"]).await?;
        assert_eq!((ran.code, ran.output.as_str()), (Some(1), "invitation \"a\" was revoked\n"));
        assert!(
            ran.errors.starts_with("error: the ranks are not free after 1s: "),
            "{}",
            ran.errors
        );
        assert!(ran.errors.contains("\nhint: "), "{}", ran.errors);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_in_time_is_removed_again() -> Result<()> {
    with_lender(json!({}), async |stage| {
        let words = ["invite", "fs", "--ranks", "2", "--invitation", "a", "--expose", "ClusterIP"];
        let ran = stage.run(&[&words[..], &["--timeout", "3s"]].concat()).await?;
        let expected = "waiting up to 3s for ranks and an address of fs\n\
            invitation \"a\" and flux.bursting.expose were removed again\n\
            error: invitation \"a\" cannot be used after 3s: the operator has not processed the \
            change\nhint: ";
        assert!(ran.errors.starts_with(expected), "{}", ran.errors);
        assert_eq!((ran.code, ran.output.as_str()), (Some(1), ""));
        let bursting = stage.lender().await?.spec.flux.unwrap().bursting.unwrap();
        assert_eq!((bursting.invitations.len(), bursting.expose), (0, None));

        let mut child = stage.start(&words)?;
        let added = async {
            while stage.invitations().await?.is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        with_timeout(added).await??;
        let interrupted =
            Command::new("kill").args(["-INT", &child.id().to_string()]).status()?.success();
        ensure!(interrupted, "the plugin is not running: {:?}", child.wait()?);
        let ran = PluginOutput::of(child.wait_with_output()?);
        assert_eq!((ran.code, ran.output.as_str()), (Some(130), ""), "{}", ran.errors);
        let expected = "invitation \"a\" and flux.bursting.expose were removed again\n";
        assert!(ran.errors.ends_with(expected), "{}", ran.errors);
        assert_eq!(stage.invitations().await?, []);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn invitations_that_are_made_at_the_same_time_are_all_kept() -> Result<()> {
    with_lender(json!({ "expose": {}, "spareRanks": 6 }), async |stage| {
        let operator = stage.play_operator();
        let children: Vec<Child> = (0..6)
            .map(|_| stage.start(&["invite", "fs", "--ranks", "1"]))
            .collect::<Result<_>>()?;
        for child in children {
            let ran = tokio::task::spawn_blocking(|| child.wait_with_output()).await??;
            let ran = PluginOutput::of(ran);
            assert_eq!(ran.code, Some(0), "{}", ran.errors);
        }
        operator.abort();
        assert_eq!(stage.invitations().await?.len(), 6);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_permission_changes_nothing() -> Result<()> {
    with_lender(json!({ "expose": {} }), async |stage| {
        let clusters = json!({ "apiGroups": ["flux-framework.org"], "resources": ["miniclusters"],
            "verbs": ["get", "list", "watch", "patch"] });
        let mut readable = clusters.clone();
        readable["verbs"] = json!(["get", "list", "watch"]);
        let jobs = json!({ "apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"] });
        let secrets = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] });
        stage.grant("keyless", json!([clusters, jobs])).await?;
        stage.grant("reader", json!([readable, jobs, secrets])).await?;
        let secret = stage.secret().await?;
        for (user, expected) in [
            ("keyless", format!("failed to get the Secret {secret:?} with the keys of \"fs\": ")),
            ("reader", "failed to change \"fs\": ".to_owned()),
        ] {
            let ran = stage.as_user(user)?.run(&["invite", "fs", "--ranks", "1"]).await?;
            assert_eq!((ran.code, ran.output.as_str()), (Some(1), ""));
            assert!(ran.errors.starts_with(&format!("error: {expected}")), "{}", ran.errors);
            let hint = "\nhint: ask an administrator for the permission";
            assert!(ran.errors.contains(hint), "{}", ran.errors);
            assert_eq!(stage.invitations().await?, []);
        }
        Ok(())
    })
    .await
}

/// A namespace with a MiniCluster of two brokers that can invite.
struct Stage {
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

impl PluginOutput {
    fn of(ran: Output) -> PluginOutput {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (output, errors) = (text(&ran.stdout), text(&ran.stderr));
        PluginOutput { code: ran.status.code(), output, errors }
    }
}

/// Runs a test with a MiniCluster that has this `flux.bursting`.
async fn with_lender(bursting: Value, test: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    in_namespace(&client, async |namespace| {
        let stage = Stage::new(client.clone(), namespace, None)?;
        stage.prepare(bursting).await?;
        test(&stage).await
    })
    .await
}

fn environment() -> Value {
    AMBIGUOUS.iter().enumerate().map(|(number, text)| (format!("V{number}"), json!(text))).collect()
}

/// Every byte, several times.
fn munge_key() -> ByteString {
    ByteString((0..=255).cycle().take(1024).collect())
}

impl Stage {
    fn new(client: Client, namespace: &str, user: Option<&str>) -> Result<Stage> {
        let folder = tempfile::tempdir()?;
        std::os::unix::fs::symlink(program()?, folder.path().join("kubectl-minicluster"))?;
        let (namespace, user) = (namespace.to_owned(), user.map(ToOwned::to_owned));
        Ok(Stage { client, namespace, folder, user })
    }

    /// The same namespace, for a user with few permissions.
    fn as_user(&self, user: &str) -> Result<Stage> {
        Stage::new(self.client.clone(), &self.namespace, Some(user))
    }

    async fn prepare(&self, bursting: Value) -> Result<()> {
        let mut manifest = smallest_minicluster("fs");
        let flux = json!({ "mungeSecret": "munge", "bursting": { "spareRanks": 4 } });
        let container = json!({ "image": "busybox", "environment": environment() });
        let spec = json!({ "size": 2, "containers": [container], "flux": flux });
        merge(&mut manifest, &json!({ "spec": spec }));
        merge(&mut manifest["spec"]["flux"]["bursting"], &bursting);
        let spare = manifest["spec"]["flux"]["bursting"]["spareRanks"].clone();
        self.create::<MiniCluster>(manifest).await?;
        let lender = self.lender().await?;
        let owner = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
            "name": "fs", "uid": lender.uid() });
        let containers = json!([{ "name": "a", "image": "busybox" }]);
        self.create::<Job>(json!({
            "metadata": { "name": "fs", "ownerReferences": [owner], "annotations": {
                "flux-framework.org/ranks": "2",
                "flux-framework.org/table": json!({ "spareRanks": spare }).to_string() } },
            "spec": {
                "suspend": true, "completionMode": "Indexed", "completions": 2, "parallelism": 2,
                "template": { "spec": { "restartPolicy": "Never", "containers": containers } },
            },
        }))
        .await?;
        let bytes = |bytes: &[u8]| ByteString(bytes.to_vec());
        let keys =
            json!({ "curve.cert": bytes(CERTIFICATE), "report.key": bytes(REPORT_KEY.as_bytes()) });
        let name = self.secret().await?;
        self.create::<Secret>(json!({ "metadata": { "name": name }, "data": keys })).await?;
        let munge = json!({ "munge.key": munge_key() });
        self.create::<Secret>(json!({ "metadata": { "name": "munge" }, "data": munge })).await
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create<K>(&self, object: Value) -> Result<()>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let object: K = serde_json::from_value(object)?;
        self.api::<K>().create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn lender(&self) -> Result<MiniCluster> {
        Ok(self.api().get("fs").await?)
    }

    /// Name of the Secret with the keys.
    async fn secret(&self) -> Result<String> {
        Ok(secret_name(&self.lender().await?, None))
    }

    async fn invitations(&self) -> Result<Vec<Invitation>> {
        let flux = self.lender().await?.spec.flux.unwrap_or_default();
        Ok(flux.bursting.unwrap_or_default().invitations)
    }

    /// Leases ranks to the invitations until it is aborted.
    fn play_operator(&self) -> tokio::task::JoinHandle<()> {
        let api: Api<MiniCluster> = self.api();
        tokio::spawn(async move {
            let objects = watcher(api.clone(), watcher::Config::default()).applied_objects();
            let lent = objects.map_err(anyhow::Error::from).try_for_each(|lender| {
                let api = api.clone();
                async move { lend(&api, &lender).await }
            });
            lent.await.expect("the watch works");
        })
    }

    /// Allows a user what these rules say.
    async fn grant(&self, user: &str, rules: Value) -> Result<()> {
        self.create::<Role>(json!({ "metadata": { "name": user }, "rules": rules })).await?;
        let group = "rbac.authorization.k8s.io";
        self.create::<RoleBinding>(json!({
            "metadata": { "name": user },
            "roleRef": { "apiGroup": group, "kind": "Role", "name": user },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": user }],
        }))
        .await
    }

    /// Applies a file with kubectl, without storing its objects. Returns them.
    fn apply(&self, text: &str) -> Result<Vec<Value>> {
        let file = self.folder.path().join("join.yaml");
        std::fs::write(&file, text)?;
        let mut command = kubectl()?;
        command.args(["apply", "--dry-run=server", "-o", "json", "-n", &self.namespace, "-f"]);
        let ran = command.arg(&file).output()?;
        ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let list: Value = serde_json::from_slice(&ran.stdout)?;
        Ok(list["items"].as_array().context("it is not a list")?.clone())
    }

    async fn run(&self, words: &[&str]) -> Result<PluginOutput> {
        let child = self.start(words)?;
        let ran = tokio::task::spawn_blocking(|| child.wait_with_output()).await??;
        Ok(PluginOutput::of(ran))
    }

    /// Starts the plugin, as kubectl does.
    fn start(&self, words: &[&str]) -> Result<Child> {
        let mut command = Command::new(self.folder.path().join("kubectl-minicluster"));
        command.args(["--namespace", &self.namespace]).args(words);
        command.env("KUBECONFIG", self.kubeconfig()?);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("failed to run the plugin")
    }

    /// The kubeconfig of the cluster under test, which impersonates the user.
    fn kubeconfig(&self) -> Result<PathBuf> {
        let file = self.folder.path().join("kubeconfig");
        if !file.exists() {
            let shown =
                kubectl()?.args(["config", "view", "--raw", "--flatten", "-o", "json"]).output()?;
            let mut config: Value = serde_json::from_slice(&shown.stdout)?;
            if let Some(user) = &self.user {
                config["users"][0]["user"]["as"] = user.as_str().into();
            }
            std::fs::write(&file, config.to_string())?;
        }
        Ok(file)
    }
}

/// Leases ranks to the invitations of a MiniCluster, one after the other, as an operator would.
async fn lend(api: &Api<MiniCluster>, lender: &MiniCluster) -> Result<()> {
    let valid = Valid::check(lender.clone()).map_err(|refusal| anyhow!("{refusal}"))?;
    let table = Cluster::of(&valid)?.ranks.hash();
    let bursting = lender.spec.flux.clone().unwrap_or_default().bursting.unwrap_or_default();
    let mut first = 2;
    let mut leases = Vec::new();
    for Invitation { name, ranks, expires, .. } in &bursting.invitations {
        let leased = match ranks {
            1 => first.to_string(),
            _ => format!("{first}-{}", first + ranks - 1),
        };
        let invitation = json!({ "expires": expires, "port": 31_000 + first });
        leases.push(json!({ "ranks": leased, "holder": format!("invitation:{name}:{expires}"),
            "namespace": lender.namespace(), "name": name, "table": table, "state": "Active",
            "since": "2026-01-01T00:00:00Z", "invitation": invitation }));
        first += ranks;
    }
    let lead = json!({ "version": "0.80.0", "user": 1000, "cores": 4 });
    let external = json!({ "addresses": ["192.0.2.1", "2001:db8::1"], "lead": lead });
    let status = json!({ "leases": leases, "external": external });
    let patch = Patch::Merge(json!({ "status": status }));
    api.patch_status("fs", &PatchParams::default(), &patch).await?;
    Ok(())
}
