//! A fresh testbed for one operator under test, and the account it uses.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use flux_operator_testbed::{Layout, Level, Requirements, Testbed, TestbedName, down, link, up};
use flux_operator_testkit::images::AGENT_IMAGE;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Config, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::under_test::documents;

/// The namespace of what is measured.
pub(crate) const NAMESPACE: &str = "bench";
/// The namespace of the warm-up, which is not measured.
pub(crate) const WARM_UP: &str = "warm-up";
/// The operator's user in the audit log: like a pod, it uses a token.
pub(crate) const OPERATOR_USER: &str = "system:serviceaccount:bench:operator";

/// Longer than any measurement may take.
const TOKEN_SECONDS: i64 = 2 * 60 * 60;

/// Our own testbed. It is deleted when this is dropped.
pub(crate) struct BenchTestbed {
    layout: Layout,
    name: TestbedName,
    /// The testbed.
    pub(crate) testbed: Testbed,
    /// A client with all permissions, whose requests are not the operator's.
    pub(crate) client: Client,
    level: Level,
}

impl BenchTestbed {
    /// Starts a fresh testbed with these CRDs, two namespaces and an account.
    pub(crate) async fn up(
        operator: &str,
        wanted: Requirements,
        crds: &[Value],
    ) -> Result<BenchTestbed> {
        let layout = Layout::discover();
        let name: TestbedName = format!("bench-{operator}").parse()?;
        let program = std::env::current_exe().context("failed to find this program")?;
        // Remains of an earlier run are removed first.
        down(&layout, &name)?;
        if let Err(error) = up(&layout, &name, wanted, &program, &mut |_| ()) {
            down(&layout, &name)?;
            return Err(error.into());
        }
        let testbed = Testbed::find_in(&layout, &name).context("the testbed stopped")?;
        let client = client(&testbed.kubeconfig()).await?;
        let bed = BenchTestbed { layout, name, testbed, client, level: wanted.level };
        bed.prepare(crds).await.context("failed to prepare the testbed")?;
        Ok(bed)
    }

    async fn prepare(&self, crds: &[Value]) -> Result<()> {
        let all: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in crds {
            let crd: CustomResourceDefinition = serde_json::from_value(crd.clone())?;
            all.create(&PostParams::default(), &crd).await?;
            let name = crd.name_any();
            let served = await_condition(all.clone(), &name, conditions::is_crd_established());
            tokio::time::timeout(Duration::from_secs(30), served).await??;
        }
        for namespace in [NAMESPACE, WARM_UP] {
            self.create::<Namespace>(json!({ "metadata": { "name": namespace } })).await?;
        }
        let account = json!({ "metadata": { "name": "operator", "namespace": NAMESPACE } });
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        accounts.create(&PostParams::default(), &serde_json::from_value(account)?).await?;
        let binding = json!({
            "metadata": { "name": "bench-operator" },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
            },
            "subjects": [{ "kind": "ServiceAccount", "name": "operator", "namespace": NAMESPACE }],
        });
        self.create::<ClusterRoleBinding>(binding).await?;
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let issued =
            accounts.create_token_request("operator", &PostParams::default(), &request).await?;
        let token = issued.status.and_then(|status| status.token).context("no token was issued")?;
        let text = std::fs::read_to_string(self.testbed.kubeconfig())?;
        let mut kubeconfig =
            documents(&text)?.into_iter().next().context("the kubeconfig is empty")?;
        for user in kubeconfig["users"].as_array_mut().into_iter().flatten() {
            user["user"] = json!({ "token": token });
        }
        std::fs::write(self.operator_kubeconfig(), kubeconfig.to_string())?;
        std::fs::write(self.operator_token_file(), token)?;
        Ok(())
    }

    async fn create<K>(&self, object: Value) -> Result<()>
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let all: Api<K> = Api::all(self.client.clone());
        all.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    /// Connects its node with that of another testbed.
    pub(crate) fn link(&self, other: &BenchTestbed) -> Result<()> {
        link(&self.layout, &self.name, &other.name).context("failed to link the testbeds")?;
        Ok(())
    }

    /// A client with the operator's account.
    pub(crate) async fn operator_client(&self) -> Result<Client> {
        client(&self.operator_kubeconfig()).await
    }

    /// The environment of an operator's command.
    pub(crate) fn environment(&self) -> Result<Vec<(&'static str, String)>> {
        let address = match self.level {
            Level::ApiServer | Level::ControlPlane => "127.0.0.1".to_owned(),
            Level::Node => self.testbed.slot().host_address().to_string(),
        };
        // The kernel chose a free port. Another program is unlikely to take it before the operator
        // listens on it.
        let port = TcpListener::bind((address.as_str(), 0))?.local_addr()?.port();
        Ok(vec![
            ("KUBECONFIG", self.operator_kubeconfig().display().to_string()),
            ("BENCH_HOST_ADDRESS", address),
            ("BENCH_PORT", port.to_string()),
            ("BENCH_AGENT_IMAGE", AGENT_IMAGE.to_owned()),
        ])
    }

    /// The log file of an operator. It is kept when the testbed is deleted.
    pub(crate) fn log_of(&self, operator: &str) -> PathBuf {
        self.layout.bin().with_file_name(format!("bench-{operator}.log"))
    }

    /// A file with the operator's token.
    pub(crate) fn operator_token_file(&self) -> PathBuf {
        self.testbed.kubeconfig().with_file_name("operator.token")
    }

    fn operator_kubeconfig(&self) -> PathBuf {
        self.testbed.kubeconfig().with_file_name("operator.kubeconfig")
    }
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // A minute without events is usual for a watch here.
    config.read_timeout = Some(Duration::from_secs(600));
    Ok(Client::try_from(config)?)
}

impl Drop for BenchTestbed {
    fn drop(&mut self) {
        if let Err(error) = down(&self.layout, &self.name) {
            eprintln!("warning: failed to delete testbed {}: {error}", self.name);
        }
    }
}
