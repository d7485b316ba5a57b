//! The cluster's keys: where they must not appear, and what happens with invalid ones.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_tests_e2e::{TestNamespace, condition, with_operator};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{ListParams, LogParams, PostParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

#[tokio::test]
async fn the_keys_are_only_in_the_secret() -> Result<()> {
    with_operator(async |stage| {
        let spec = json!({
            "size": 2,
            "interactive": true,
            "flux": { "logLevel": 7 },
            "logging": { "zeromq": true },
        });
        stage.create("secret", spec).await?;
        stage.wait_for_status("secret", ConditionType::Ready, "True").await?;
        let keys = stage.keys("secret").await?.context("there are no keys")?;
        let data = keys.data.context("the Secret is empty")?;
        let certificate = String::from_utf8(data["curve.cert"].0.clone())?;
        let line = certificate.lines().find(|line| line.contains("secret-key"));
        let key = line.and_then(|line| line.split('"').nth(1)).context("there is no key")?;
        let report_key = String::from_utf8(data["report.key"].0.clone())?;

        let mut searched = all::<ConfigMap>(stage).await? + &all::<Job>(stage).await?;
        searched +=
            &(all::<Event>(stage).await? + &all::<k8s_openapi::api::core::v1::Pod>(stage).await?);
        searched += &serde_json::to_string(&stage.miniclusters().get("secret").await?)?;
        for pod in stage.pods("secret").await? {
            searched += &stage.pod_api().logs(&pod.name_any(), &LogParams::default()).await?;
        }
        let processes =
            "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; true";
        for index in 0..2 {
            searched += &stage.exec("secret", index, processes).await?;
        }
        assert!(searched.contains("flux-operator-agent"), "nothing was searched");
        assert!(!searched.contains(key), "the certificate's key was leaked");
        assert!(!searched.contains(&report_key), "the report key was leaked");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_user_provided_certificate_is_used() -> Result<()> {
    with_operator(async |stage| {
        // With the key pair from ZeroMQ's manual.
        let given = "metadata\n    name = \"mine\"\ncurve\n    \
            public-key = \"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID\"\n    \
            secret-key = \"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs\"\n";
        let spec = json!({
            "size": 2,
            "flux": { "curveCert": given },
            "containers": [{ "command": "hostname" }],
        });
        stage.create("given", spec).await?;
        let finished = stage.wait_until_finished("given").await?;
        assert_eq!(finished.status.context("there is no status")?.exit_code, Some(0));
        let keys = stage.keys("given").await?.context("there are no keys")?;
        let data = keys.data.context("the Secret is empty")?;
        let used = String::from_utf8(data["curve.cert"].0.clone())?;
        assert!(used.contains("D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"), "another key is used");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_invalid_certificate_is_reported_and_fails_the_cluster() -> Result<()> {
    with_operator(async |stage| {
        let secrets: Api<Secret> = Api::namespaced(stage.client.clone(), &stage.namespace);
        let secret: Secret = serde_json::from_value(json!({
            "metadata": { "name": "mine" },
            "stringData": { "curve.cert": "this is not a certificate" },
        }))?;
        secrets.create(&PostParams::default(), &secret).await?;
        let flux = json!({ "curveCertSecret": "mine" });
        let containers = json!([{ "command": "hostname" }]);
        stage.create("bad", json!({ "size": 2, "flux": flux, "containers": containers })).await?;
        let finished = stage.wait_until_finished("bad").await?;
        let succeeded = condition(&finished, ConditionType::Succeeded).context("no condition")?;
        assert_eq!(succeeded.reason, "BadCertificate", "{succeeded:?}");
        assert_eq!(finished.status.context("there is no status")?.exit_code, None);
        Ok(())
    })
    .await
}

/// All objects of a kind in the namespace, as text.
async fn all<K>(stage: &TestNamespace) -> Result<String>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(stage.client.clone(), &stage.namespace);
    Ok(serde_json::to_string(&api.list(&ListParams::default()).await?.items)?)
}
