//! A burst controller, in the test's process or as a program, with the rights with which it is installed,
//! for one namespace; and a target: an account of another cluster with rights for one namespace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use flux_operator_api::{Burst, BurstPolicy};
use flux_operator_burst_controller::{Options, Token};
use flux_operator_install::{BURST_CONTROLLER, InstallSettings, burst_objects};
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_testkit::cluster;
use flux_operator_testkit::images::AGENT_IMAGE;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::AuthInfo;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::access::{apply, settings};
use crate::{RunningOperator, TestNamespace};

/// The account that `examples/burst/target-account.yaml` creates at a target.
pub const TARGET_ACCOUNT_NAME: &str = "flux-burst";
const TARGET_ACCOUNT: &str = include_str!("../../../examples/burst/target-account.yaml");

/// A process of the burst controller. It is killed when this is dropped.
pub struct RunningController {
    child: Child,
    log: PathBuf,
    /// The token of its account.
    pub token: String,
}

impl RunningController {
    /// What it has logged.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }
}

impl Drop for RunningController {
    fn drop(&mut self) {
        // It may have exited already.
        let _killed = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// A burst controller with its own threads. It stops at once when it is dropped, as if it were killed.
pub struct BurstController {
    _threads: RunningOperator,
}

impl TestNamespace {
    /// Starts a burst controller that serves this namespace.
    pub async fn start_burst_controller(&self) -> Result<BurstController> {
        let (config, token) = self.burst_account().await?;
        self.start_burst_controller_with(Client::try_from(config)?, token).await
    }

    /// The configuration of a client with the controller's roles, and its token.
    pub async fn burst_account(&self) -> Result<(kube::Config, String)> {
        let settings = InstallSettings {
            watched_namespace: Some(self.namespace.clone()),
            burst_namespaces: vec![self.namespace.clone()],
            burst_clusters: self.burst_clusters,
            gke_image: self.gke_image.clone(),
            ..settings(&self.namespace)
        };
        let mut objects = burst_objects(&settings);
        objects.retain(|object| object["kind"] != "Deployment");
        apply(&self.client, &objects).await?;
        let token = self.token_of(BURST_CONTROLLER).await?;
        let mut config = cluster::config_of(&self.testbed).await?;
        config.auth_info = AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() };
        Ok((config, token))
    }

    /// Starts the program of the burst controller, with the roles with which it is installed. Its log is
    /// written to a file.
    pub async fn run_burst_controller(&self, folder: &Path) -> Result<RunningController> {
        let (_, token) = self.burst_account().await?;
        let admin = std::fs::read_to_string(self.testbed.kubeconfig())?;
        let mut kubeconfig: Value = serde_saphyr::from_str(&admin)?;
        kubeconfig["users"][0]["user"] = json!({ "token": token });
        let path = |name: &str| folder.join(name);
        std::fs::write(path("kubeconfig"), kubeconfig.to_string())?;
        std::fs::write(path("token"), &token)?;
        let log = std::fs::File::create(path("log"))?;
        let child = std::process::Command::new(cluster::program()?)
            .args(["burst-controller", "--bind", "127.0.0.1:0", "--agent-image", AGENT_IMAGE])
            .args(["--namespace", &self.namespace, "--serve", &self.namespace])
            .args(["--operator-url", &self.report_url()?])
            .args(self.burst_clusters.commands.then_some("--commands"))
            .arg("--token-file")
            .arg(path("token"))
            .env("KUBECONFIG", path("kubeconfig"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .context("failed to start the burst controller")?;
        Ok(RunningController { child, log: path("log"), token })
    }

    /// Starts a controller with a client that is used by nothing else.
    pub async fn start_burst_controller_with(
        &self,
        client: Client,
        token: String,
    ) -> Result<BurstController> {
        let options = Options {
            namespace: Some(self.namespace.clone()),
            served: BTreeSet::from([self.namespace.clone()]),
            operator_url: self.report_url()?,
            token: Token::Text(token),
            commands: self.burst_clusters.commands,
            gke_image: self.gke_image.clone(),
            settings: Settings {
                agent_image: AGENT_IMAGE.into(),
                cluster_domain: "cluster.local".into(),
                delivery: DeliveryMethod::Init,
                report_url: None,
            },
        };
        // Another test of this program may have started it.
        drop(tracing_subscriber::fmt().with_test_writer().try_init());
        let probes = TcpListener::bind("127.0.0.1:0").await?.into_std()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.spawn(async move {
            let probes = TcpListener::from_std(probes).expect("the listener is valid");
            flux_operator_burst_controller::run(client, probes, options).await
        });
        Ok(BurstController { _threads: RunningOperator(Some(runtime)) })
    }

    /// A token of an account of this namespace.
    pub async fn token_of(&self, account: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = self.api();
        let request = TokenRequest::default();
        let answer =
            accounts.create_token_request(account, &PostParams::default(), &request).await?;
        let token = answer.status.and_then(|status| status.token);
        token.context("the API server returned no token")
    }

    /// Creates a Secret here with a kubeconfig for the namespace of `away`, with the rights of
    /// `examples/burst/target-account.yaml`.
    pub async fn create_target_secret(&self, name: &str, away: &TestNamespace) -> Result<()> {
        self.set_target_secret(name, &away.target_kubeconfig().await?).await
    }

    /// Writes a kubeconfig into a Secret here.
    pub async fn set_target_secret(&self, name: &str, kubeconfig: &Value) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": name },
            "stringData": { "kubeconfig": kubeconfig.to_string() },
        });
        let parameters = PatchParams::apply("test").force();
        self.api::<Secret>().patch(name, &parameters, &Patch::Apply(&secret)).await?;
        Ok(())
    }

    /// A value of a Secret.
    pub async fn secret_value(&self, name: &str, key: &str) -> Result<String> {
        let secret = self.api::<Secret>().get(name).await?;
        let value = secret.data.and_then(|mut data| data.remove(key));
        Ok(String::from_utf8(value.context("the Secret has no such key")?.0)?)
    }

    /// A kubeconfig for this namespace, with the rights of a target's account.
    pub async fn target_kubeconfig(&self) -> Result<Value> {
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(TARGET_ACCOUNT)?;
        for object in &mut objects {
            object["metadata"]["namespace"] = self.namespace.clone().into();
            if let Some(subjects) = object.get_mut("subjects").and_then(Value::as_array_mut) {
                subjects.iter_mut().for_each(|it| it["namespace"] = self.namespace.clone().into());
            }
        }
        apply(&self.client, &objects).await?;
        let token = self.token_of(TARGET_ACCOUNT_NAME).await?;
        let admin = std::fs::read_to_string(self.testbed.kubeconfig())?;
        let admin: Value = serde_saphyr::from_str(&admin)?;
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "target",
            "clusters": [{ "name": "target", "cluster": admin["clusters"][0]["cluster"] }],
            "users": [{ "name": "target", "user": { "token": token } }],
            "contexts": [{ "name": "target", "context": {
                "cluster": "target", "user": "target", "namespace": self.namespace } }],
        }))
    }

    /// Creates a policy that serves all MiniClusters.
    pub async fn create_policy(&self, name: &str, spec: Value) -> Result<BurstPolicy> {
        let mut policy = json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "BurstPolicy",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": {
                "selector": {},
                "when": { "stabilizationSeconds": 0 },
                "limits": { "nodes": 4 },
                "giveBack": { "idleSeconds": 5 },
            },
        });
        flux_operator_testkit::merge(&mut policy, &json!({ "spec": spec }));
        let policy = serde_json::from_value(policy)?;
        Ok(self.api::<BurstPolicy>().create(&PostParams::default(), &policy).await?)
    }

    /// Creates a Burst as a user would.
    pub async fn create_burst(&self, name: &str, spec: Value) -> Result<Burst> {
        let burst = json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "Burst",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": spec,
        });
        let burst = serde_json::from_value(burst)?;
        Ok(self.api::<Burst>().create(&PostParams::default(), &burst).await?)
    }
}
