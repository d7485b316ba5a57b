//! The account in the new cluster: the rights of `examples/burst/target-account.yaml`, and a token.

use flux_operator_wire::GkeFailure;
use google_cloud_container_v1::model::Cluster;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::google::Google;
use crate::pace::{Pace, until_done};
use crate::settings::Settings;
use crate::trouble::{Failure, Trouble, chain};

/// The name of the account, its role and its binding.
const ACCOUNT: &str = "flux-burst";

/// For how long the token is asked for: longer than most Bursts. A server that allows less gives less.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

/// How often a refusal is taken as one that passes: a new server learns rights one after the other.
const REFUSALS: u32 = 5;

/// A kubeconfig for the new cluster, whose account has the rights that brokers need there.
pub(crate) async fn kubeconfig(
    google: &Google,
    cluster: &Cluster,
    settings: &Settings,
    pace: Pace,
) -> Result<String, Failure> {
    let place = Place::of(cluster)?;
    let mut refusals = 0;
    let attempt = async || match account(google, &place, settings).await {
        Err(Trouble::Final(failure))
            if failure.kind == GkeFailure::Permission && refusals < REFUSALS =>
        {
            refusals += 1;
            Err(Trouble::Passing(failure.to_string()))
        }
        other => other.map(Some),
    };
    let token = until_done(pace, attempt).await?;
    Ok(place.kubeconfig(&token, settings.inner_namespace()))
}

/// Creates the account, and returns a token of it. What exists already is as it should be: only this
/// program writes it, and nothing in it depends on the Burst.
async fn account(google: &Google, place: &Place, settings: &Settings) -> Result<String, Trouble> {
    let namespace = settings.inner_namespace();
    let client = place.client(&google.tokens.access_token().await?).await?;
    if namespace != "default" {
        let wanted = object::<Namespace>(json!({ "metadata": { "name": namespace } }))?;
        created(Api::all(client.clone()).create(&PostParams::default(), &wanted).await)?;
    }
    create::<ServiceAccount>(&client, namespace, json!({})).await?;
    create::<Role>(&client, namespace, json!({ "rules": rules() })).await?;
    let subject = json!({ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT });
    let binding = json!({ "roleRef": role, "subjects": [subject] });
    create::<RoleBinding>(&client, namespace, binding).await?;
    let spec =
        TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
    let answer = answer.map_err(|error| Trouble::of_kubernetes("get a token inside", &error))?;
    let status = answer.status.unwrap_or_default();
    let token = status.token.ok_or_else(|| Trouble::Passing("there is no token".to_owned()))?;
    // A server may allow less than it was asked for.
    let until = status.expiration_timestamp.map(|it| it.0.to_string());
    tracing::info!(until, "the account of the new cluster has a token");
    Ok(token)
}

/// The rights of a target's account.
fn rules() -> Value {
    json!([
        { "apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create", "patch", "delete"] },
        { "apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["create", "delete"] },
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] },
        { "apiGroups": [""], "resources": ["services"], "verbs": ["create", "delete"] },
        { "apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"] },
    ])
}

async fn create<K>(client: &Client, namespace: &str, content: Value) -> Result<(), Trouble>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let mut content = content;
    content["metadata"] = json!({ "name": ACCOUNT });
    let wanted = object::<K>(content)?;
    let objects: Api<K> = Api::namespaced(client.clone(), namespace);
    created(objects.create(&PostParams::default(), &wanted).await)
}

fn object<K: DeserializeOwned>(content: Value) -> Result<K, Trouble> {
    serde_json::from_value(content)
        .map_err(|error| Trouble::fail(GkeFailure::Broken, error.to_string()))
}

fn created<K>(answer: Result<K, kube::Error>) -> Result<(), Trouble> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(Trouble::of_kubernetes("create the account of brokers", &error)),
    }
}

/// Where the API server of the new cluster is, and how it is known.
struct Place {
    server: String,
    /// Certificates as PEM, in base64.
    authority: String,
}

impl Place {
    fn of(cluster: &Cluster) -> Result<Place, Failure> {
        let authority = cluster.master_auth.as_ref().map(|it| it.cluster_ca_certificate.clone());
        if cluster.endpoint.is_empty() {
            let message = format!("cluster {} has no endpoint", cluster.name);
            return Err(Failure::new(GkeFailure::Broken, message));
        }
        // Google gives an address; the server of a test may say more.
        let server = match cluster.endpoint.contains("://") {
            true => cluster.endpoint.clone(),
            false => format!("https://{}", cluster.endpoint),
        };
        Ok(Place { server, authority: authority.unwrap_or_default() })
    }

    /// As text, with a token, so that nothing is run or read to use it.
    fn kubeconfig(&self, token: &str, namespace: &str) -> String {
        let mut cluster = json!({ "server": self.server });
        if !self.authority.is_empty() {
            cluster["certificate-authority-data"] = json!(self.authority);
        }
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "burst",
            "clusters": [{ "name": "burst", "cluster": cluster }],
            "users": [{ "name": "burst", "user": { "token": token } }],
            "contexts": [{ "name": "burst", "context": {
                "cluster": "burst", "user": "burst", "namespace": namespace } }],
        })
        .to_string()
    }

    async fn client(&self, token: &str) -> Result<Client, Trouble> {
        let fail = |text: String| Trouble::fail(GkeFailure::Broken, text);
        let text = self.kubeconfig(token, "default");
        // The parser's message may contain a part of the text.
        let kubeconfig = Kubeconfig::from_yaml(&text)
            .map_err(|_error| fail("the kubeconfig cannot be parsed".to_owned()))?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let config = config.map_err(|error| fail(chain(&error)))?;
        Client::try_from(config).map_err(|error| fail(chain(&error)))
    }
}
