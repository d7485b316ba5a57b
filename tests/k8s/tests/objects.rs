//! A real API server accepts the rendered objects.

use anyhow::{Context, Result};
use flux_operator_api::{MiniCluster, manifest};
use flux_operator_plan::kubernetes::{self, Rendering, Settings};
use flux_operator_plan::{Cluster, RefusalReason, Valid};
use flux_operator_testkit::cluster::{client, in_namespace, install_crds, with_timeout};
use flux_operator_testkit::{corpus, merge, smallest_minicluster};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde_json::{Value, json};

#[tokio::test]
async fn rendered_objects_are_accepted_by_strict_decoding() -> Result<()> {
    let client = client().await?;
    let mut manifests = vec![wide()];
    for example in corpus::manifests() {
        let documents = manifest::read(example.text.as_bytes())?.documents;
        manifests.extend(documents.into_iter().map(|document| document.value));
    }
    for manifest in manifests {
        let minicluster = flux_operator_api::validate::read_minicluster(&manifest)?;
        if is_not_rendered(&minicluster) {
            continue;
        }
        let (job, services, pod) = render(minicluster, |rendering| {
            let mut services = kubernetes::sidecar_services(rendering);
            services.push(kubernetes::cluster_service(rendering));
            (kubernetes::job(rendering), services, kubernetes::services_pod(rendering))
        })?;
        let context = || format!("of {manifest}");
        assert_accepted(&client, &job).await.with_context(context)?;
        for service in &services {
            assert_accepted(&client, service).await.with_context(context)?;
        }
        if let Some(pod) = &pod {
            assert_accepted(&client, pod).await.with_context(context)?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_shared_service_is_deleted_with_the_last_of_its_clusters() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    in_namespace(&client, async |namespace| {
        let miniclusters: Api<MiniCluster> = Api::namespaced(client.clone(), namespace);
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        for name in ["one", "two"] {
            let mut manifest = smallest_minicluster(name);
            merge(&mut manifest, &json!({ "spec": { "network": { "headlessName": "shared" } } }));
            let minicluster: MiniCluster = serde_json::from_value(manifest)?;
            let created = miniclusters.create(&PostParams::default(), &minicluster).await?;
            let service = render(created, kubernetes::cluster_service)?;
            // Not forced: the two clusters' fields must not conflict.
            services.patch("shared", &PatchParams::apply(name), &Patch::Apply(&service)).await?;
        }
        let owners =
            |service: &Service| service.metadata.owner_references.clone().unwrap_or_default();
        assert_eq!(owners(&services.get("shared").await?).len(), 2);
        miniclusters.delete("one", &DeleteParams::background()).await?;
        let has_one_owner = |service: Option<&Service>| {
            service.is_some_and(|service| owners(service).iter().all(|owner| owner.name == "two"))
        };
        with_timeout(await_condition(services.clone(), "shared", has_one_owner)).await??;
        let shared = services.get("shared").await?;
        assert!(shared.metadata.deletion_timestamp.is_none(), "it was deleted with the first");
        miniclusters.delete("two", &DeleteParams::background()).await?;
        let uid = shared.metadata.uid.context("it has no uid")?;
        with_timeout(await_condition(services.clone(), "shared", conditions::is_deleted(&uid)))
            .await??;
        Ok(())
    })
    .await
}

/// A MiniCluster with all features that are not in the corpus.
fn wide() -> Value {
    let mut manifest = smallest_minicluster("wide");
    let containers = json!([
        { "runFlux": true, "command": "hostname", "lifeCycle": { "preStopExec": "date" } },
        { "name": "web", "image": "nginx", "ports": [80, 443] },
    ]);
    let spec = json!({
        "containers": containers,
        "services": [{ "name": "store", "image": "registry", "command": "serve", "args": ["$$"] }],
        "jobLabels": { "kueue.x-k8s.io/queue-name": "team" },
        "serviceName": "shared",
        "flux": { "minimalService": true },
        "pod": {
            "nodeAffinity": { "zone": ["a"] },
            "tolerations": [{ "key": "hpc", "operator": "Exists" }],
            "hostNetwork": true,
        },
    });
    merge(&mut manifest, &json!({ "spec": spec }));
    manifest
}

/// Whether the manifest fits the schema, but nothing is rendered for it: it is not supported yet, or
/// joins an instance elsewhere without naming hosts for its pods.
fn is_not_rendered(minicluster: &MiniCluster) -> bool {
    let is_remote = minicluster.spec.remote_lead().is_some();
    let refusal = Valid::check(minicluster.clone()).err();
    refusal.is_some_and(|it| it.reason == RefusalReason::NotYetSupported || is_remote)
}

fn render<T>(minicluster: MiniCluster, with: impl FnOnce(&Rendering<'_>) -> T) -> Result<T> {
    let valid = Valid::check(minicluster).map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
    let cluster = Cluster::of(&valid)?;
    let settings = Settings {
        agent_image: "example.org/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        delivery: flux_operator_plan::kubernetes::DeliveryMethod::ImageVolume,
        report_url: None,
    };
    Ok(with(&Rendering { minicluster: &valid, cluster: &cluster, settings: &settings }))
}

/// Asks the API server to create an object, without storing it.
async fn assert_accepted<K>(client: &Client, object: &K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let path = K::url_path(&(), Some("default"));
    let request = http::Request::post(format!("{path}?dryRun=All&fieldValidation=Strict"))
        .header("Content-Type", "application/json")
        .body(serde_json::to_vec(object)?)?;
    client.request::<Value>(request).await.with_context(|| K::kind(&()).into_owned())?;
    Ok(())
}
