//! The cluster's keys: where they must not appear, and what happens with invalid ones.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_tests_e2e::{Stage, condition, on_stage};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{ListParams, LogParams, PostParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

#[tokio::test]
async fn the_keys_are_in_the_secret_and_nowhere_else() -> Result<()> {
    on_stage(async |stage| {
        let spec = json!({
            "size": 2,
            "interactive": true,
            "flux": { "logLevel": 7 },
            "logging": { "zeromq": true },
        });
        stage.create("secret", spec).await?;
        stage.wait("secret", ConditionType::Ready, "True").await?;
        let secrets: Api<Secret> = Api::namespaced(stage.client.clone(), &stage.namespace);
        let data = secrets.get("secret-flux").await?.data.context("the Secret is empty")?;
        let certificate = String::from_utf8(data["curve.cert"].0.clone())?;
        let line = certificate.lines().find(|line| line.contains("secret-key"));
        let key = line.and_then(|line| line.split('"').nth(1)).context("there is no key")?;
        let report_key = String::from_utf8(data["report.key"].0.clone())?;

        let mut seen = all::<ConfigMap>(stage).await? + &all::<Job>(stage).await?;
        seen +=
            &(all::<Event>(stage).await? + &all::<k8s_openapi::api::core::v1::Pod>(stage).await?);
        seen += &serde_json::to_string(&stage.miniclusters().get("secret").await?)?;
        for pod in stage.pods("secret").await? {
            seen += &stage.pod_api().logs(&pod.name_any(), &LogParams::default()).await?;
        }
        let processes =
            "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; true";
        for index in 0..2 {
            seen += &stage.exec("secret", index, processes).await?;
        }
        assert!(seen.contains("flux-operator-agent"), "nothing was searched");
        assert!(!seen.contains(key), "the certificate's key was leaked");
        assert!(!seen.contains(&report_key), "the report key was leaked");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_certificate_of_the_users_is_the_clusters() -> Result<()> {
    on_stage(async |stage| {
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
        let ended = stage.wait_for_end("given").await?;
        assert_eq!(ended.status.context("there is no status")?.exit_code, Some(0));
        let secrets: Api<Secret> = Api::namespaced(stage.client.clone(), &stage.namespace);
        let data = secrets.get("given-flux").await?.data.context("the Secret is empty")?;
        let used = String::from_utf8(data["curve.cert"].0.clone())?;
        assert!(used.contains("D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"), "another key is used");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_bad_certificate_is_told_and_not_waited_for() -> Result<()> {
    on_stage(async |stage| {
        let secrets: Api<Secret> = Api::namespaced(stage.client.clone(), &stage.namespace);
        let secret: Secret = serde_json::from_value(json!({
            "metadata": { "name": "mine" },
            "stringData": { "curve.cert": "this is not a certificate" },
        }))?;
        secrets.create(&PostParams::default(), &secret).await?;
        let flux = json!({ "curveCertSecret": "mine" });
        let containers = json!([{ "command": "hostname" }]);
        stage.create("bad", json!({ "size": 2, "flux": flux, "containers": containers })).await?;
        let ended = stage.wait_for_end("bad").await?;
        let succeeded = condition(&ended, ConditionType::Succeeded).context("no condition")?;
        assert_eq!(succeeded.reason, "BadCertificate", "{succeeded:?}");
        assert_eq!(ended.status.context("there is no status")?.exit_code, None);
        Ok(())
    })
    .await
}

/// All objects of a kind in the namespace, as text.
async fn all<K>(stage: &Stage) -> Result<String>
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
