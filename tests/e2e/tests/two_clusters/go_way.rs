//! Brokers that join in the Go operator's way: the manifest in the other cluster names the lead, and
//! lists its hosts.

use anyhow::{Context, Result, ensure};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use flux_operator_tests_e2e::{TestNamespace, condition};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{ObjectMeta, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::joiner::{certificate, hosts, wait_for_joined};

/// The pool of the lender, and the name of the cluster that uses it.
const POOL: &str = "burst-0";

/// A lender whose lead others reach without the gateway.
fn lender() -> Value {
    let bursting = json!({ "clusters": [{ "name": POOL, "size": 1 }],
        "expose": { "type": "NodePort", "direct": true } });
    json!({ "interactive": true, "flux": { "bursting": bursting } })
}

/// Waits until the lender can be reached, and returns `leadBroker` for it.
async fn lead_broker(home: &TestNamespace) -> Result<Value> {
    let reason = "ExposedDirectly";
    let exposed = home.wait_for_reason("lender", ConditionType::Exposed, reason).await?;
    ensure!(exposed.message.contains("new certificate"), "{}", exposed.message);
    home.wait_for_status("lender", ConditionType::Ready, "True").await?;
    let found = home.miniclusters().get("lender").await?;
    let external = found.status.and_then(|status| status.external).context("not exposed")?;
    let address = external.addresses.first().context("no address")?;
    Ok(json!({ "address": address, "port": external.port, "name": "lender", "size": 1 }))
}

/// Creates a Secret.
async fn secret(stage: &TestNamespace, name: &str, key: &str, value: ByteString) -> Result<()> {
    let secret = Secret {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(key.to_owned(), value)])),
        ..Secret::default()
    };
    stage.api::<Secret>().create(&PostParams::default(), &secret).await?;
    Ok(())
}

/// The certificate that the operator has generated for the lender.
async fn generated_certificate(home: &TestNamespace) -> Result<ByteString> {
    let keys = home.keys("lender").await?.context("there are no keys")?;
    certificate(home, &keys.name_any()).await
}

/// Starts the brokers in the other cluster, and runs a job over both.
async fn join(home: &TestNamespace, away: &TestNamespace, flux: Value) -> Result<()> {
    away.create(POOL, json!({ "size": 1, "flux": flux })).await?;
    let joined = away.wait_for_reason(POOL, ConditionType::Joined, "Joined").await;
    joined.with_context(|| "it never joined")?;
    wait_for_joined(home, "lender", 1).await?;
    ensure!(hosts(home, "lender", 2).await?.len() == 2, "the job did not run on both hosts");
    Ok(())
}

/// The certificate as text, and a munge key with every byte there is.
#[tokio::test]
async fn b4_b5_a_certificate_as_text_and_a_munge_key_are_used() -> Result<()> {
    with_two_clusters(async |home, away| {
        home.start_operator().await?;
        home.create("lender", lender()).await?;
        let lead = lead_broker(home).await?;
        let text = String::from_utf8(generated_certificate(home).await?.0)?;
        let munge: Vec<u8> = (0..=255).collect();
        secret(away, "munge", "munge.key", ByteString(munge)).await?;
        let bursting = json!({ "leadBroker": lead, "clusters": [{ "name": POOL, "size": 1 }] });
        let flux = json!({ "bursting": bursting, "curveCert": text, "mungeSecret": "munge" });
        join(home, away, flux).await?;
        let show = "od -An -v -tu1 /etc/munge/munge.key | tr -s ' \\n' ' '; \
            stat -Lc %a /etc/munge/munge.key";
        let shown = away.exec(POOL, 0, show).await?;
        let mut expected: Vec<String> = (0..=255).map(|byte| byte.to_string()).collect();
        expected.push("400".into());
        ensure!(shown.split_whitespace().eq(expected.iter().map(String::as_str)), "{shown:?}");
        Ok(())
    })
    .await
}

/// Both sides have the user's own certificate in a Secret, and the hosts are listed in full, with the
/// lead's address in place of its name.
#[tokio::test]
async fn b3_b4_a_secret_of_the_user_and_a_host_list_are_used() -> Result<()> {
    with_two_clusters(async |home, away| {
        // With the key pair from ZeroMQ's manual.
        let given = "metadata\n    name = \"mine\"\ncurve\n    \
            public-key = \"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID\"\n    \
            secret-key = \"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs\"\n";
        for stage in [&*home, &*away] {
            secret(stage, "mine", "curve.cert", ByteString(given.into())).await?;
        }
        home.start_operator().await?;
        let mut spec = lender();
        spec["flux"]["curveCertSecret"] = json!("mine");
        home.create("lender", spec).await?;
        let lead = lead_broker(home).await?;
        let hostlist = format!("{},{POOL}-0", lead["address"].as_str().context("no address")?);
        let bursting = json!({ "leadBroker": lead, "hostlist": hostlist });
        join(home, away, json!({ "bursting": bursting, "curveCertSecret": "mine" })).await
    })
    .await
}

/// A configuration of the user's own is used unchanged, if its hosts have the lender's ranks.
#[tokio::test]
async fn b3_a_broker_configuration_of_the_user_is_used() -> Result<()> {
    with_two_clusters(async |home, away| {
        home.start_operator().await?;
        home.create("lender", lender()).await?;
        let lead = lead_broker(home).await?;
        secret(away, "cert", "curve.cert", generated_certificate(home).await?).await?;
        let (address, port) = (lead["address"].as_str().context("no address")?, &lead["port"]);
        let config = |hosts: &str| {
            format!(
                "[bootstrap]\ncurve_cert = \"/mnt/flux/config/curve/curve.cert\"\n\
                 default_port = 8050\ndefault_bind = \"tcp://*:%p\"\n\
                 hosts = [{{ host = \"lender-0\", connect = \"tcp://{address}:{port}\" }}, \
                 {{ host = \"{hosts}\" }}]\n[resource]\nnoverify = true\n"
            )
        };
        let flux = |config: String| {
            let clusters = json!([{ "name": POOL, "size": 1 }]);
            json!({ "bursting": { "leadBroker": lead, "clusters": clusters },
                "curveCertSecret": "cert", "brokerConfig": config })
        };
        // A host in between would have the rank of the pool.
        let wrong = flux(config(&format!("lender-0,other,{POOL}-0")));
        away.create(POOL, json!({ "size": 1, "flux": wrong })).await?;
        let refused = away.wait_for_status(POOL, ConditionType::Accepted, "False").await?;
        let refused = condition(&refused, ConditionType::Accepted).context("no condition")?;
        ensure!(refused.message.contains("gives it rank 1"), "{}", refused.message);
        away.delete_and_wait::<MiniCluster>(POOL).await?;
        join(home, away, flux(config(&format!("lender-0,{POOL}-0")))).await
    })
    .await
}
