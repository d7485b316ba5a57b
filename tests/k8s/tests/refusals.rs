//! The CRD refuses invalid manifests with a message that names the field, and the offline check
//! agrees with the API server.

use std::collections::BTreeSet;

use anyhow::Result;
use flux_operator_api::burst::BurstTarget;
use flux_operator_api::{MiniCluster, crd, validate};
use flux_operator_testkit::bad::{self, InvalidManifest};
use flux_operator_testkit::cluster::{client, in_namespace, install_crds, refusal};
use flux_operator_testkit::limits::{self, LimitViolation};
use flux_operator_testkit::{isolated_burst, merge, smallest_minicluster, targets_of_every_kind};
use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// The number of concurrent requests; enough to keep a small machine busy.
const CONCURRENCY: usize = 8;

#[tokio::test]
async fn server_and_offline_check_name_the_field_of_every_invalid_manifest() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    let cases = bad::refused_by_schema();
    assert!(cases.len() >= 60, "only {} bad manifests", cases.len());
    let mut wrong = Vec::new();
    for InvalidManifest { name, field, message, manifest } in cases {
        let offline: Vec<String> =
            validate::check_schema_and_rules(&manifest).iter().map(ToString::to_string).collect();
        let offline = offline.join("\n");
        let server = refusal(&client, &manifest).await?.unwrap_or_default();
        for (source, answer) in [("server", &server), ("offline", &offline)] {
            let expected = message.as_deref().unwrap_or_default();
            if !answer.contains(&field) || !answer.contains(expected) {
                wrong.push(format!("{name}: the {source} message is {answer:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[tokio::test]
async fn every_cel_rule_has_an_invalid_manifest() -> Result<()> {
    let mut messages = BTreeSet::new();
    crd::all().iter().for_each(|crd| collect_rules(&crd::schema(crd), &mut messages));
    let said: Vec<String> =
        bad::refused_by_schema().into_iter().filter_map(|bad| bad.message).collect();
    let untested: Vec<&String> =
        messages.iter().filter(|message| !said.iter().any(|says| message.contains(says))).collect();
    assert!(untested.is_empty(), "rules without an invalid manifest: {untested:#?}");
    assert!(messages.len() > 20, "only {} rules found", messages.len());
    Ok(())
}

#[tokio::test]
async fn the_lender_of_a_joiner_cannot_be_changed() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    in_namespace(&client, async |namespace| {
        let miniclusters: Api<MiniCluster> = Api::namespaced(client.clone(), namespace);
        let by_host = json!({ "bootServer": "a-0", "bootServerSize": 1 });
        let by_name = json!({ "connection": "a", "connectionSize": 1 });
        let ways = [json!({ "join": { "name": "a" } }), by_host, by_name, json!({})];
        for (index, flux) in ways.iter().enumerate() {
            let name = format!("joiner-{index}");
            let mut manifest = smallest_minicluster(&name);
            manifest["spec"]["flux"] = flux.clone();
            let minicluster = serde_json::from_value(manifest)?;
            miniclusters.create(&PostParams::default(), &minicluster).await?;
            let change = async |flux: Value| {
                let patch = Patch::Merge(json!({ "spec": { "size": 2, "flux": flux } }));
                miniclusters.patch(&name, &PatchParams::default(), &patch).await
            };
            change(json!({ "logLevel": 7 })).await?;
            let nothing = json!({ "join": null, "bootServer": null, "bootServerSize": null,
                "connection": null, "connectionSize": null });
            let others = [
                json!({ "join": { "name": "b" } }),
                json!({ "bootServer": "b-0", "bootServerSize": 1 }),
                json!({ "connection": "b", "connectionSize": 1 }),
                json!({}),
            ];
            for other in others.iter().filter(|other| *other != flux) {
                let mut changed = nothing.clone();
                merge(&mut changed, other);
                let refused = change(changed).await.map(|_| ()).unwrap_err().to_string();
                assert!(
                    refused.contains("it joins cannot be changed"),
                    "{flux} {other}: {refused}"
                );
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn only_the_number_of_ranks_to_keep_of_an_invitation_can_be_changed() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    in_namespace(&client, async |namespace| {
        let miniclusters: Api<MiniCluster> = Api::namespaced(client.clone(), namespace);
        let invited = json!({ "name": "a", "ranks": 2, "expires": "2026-01-01T00:00:00Z",
            "property": "spare" });
        let mut manifest = smallest_minicluster("lender");
        manifest["spec"]["flux"] =
            json!({ "bursting": { "expose": {}, "invitations": [invited] } });
        miniclusters.create(&PostParams::default(), &serde_json::from_value(manifest)?).await?;
        let change = async |changes: Value| {
            let mut invited = invited.clone();
            merge(&mut invited, &changes);
            let bursting = json!({ "bursting": { "invitations": [invited] } });
            let patch = Patch::Merge(json!({ "spec": { "flux": bursting } }));
            miniclusters.patch("lender", &PatchParams::default(), &patch).await
        };
        for keep in [json!(1), json!(0), json!(2), Value::Null] {
            change(json!({ "keep": keep })).await?;
        }
        for changes in [
            json!({ "ranks": 3 }),
            json!({ "expires": "2026-01-01T00:00:01Z" }),
            json!({ "property": "other" }),
            json!({ "property": null }),
        ] {
            let refused = change(changes.clone()).await.map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains("cannot be changed, except for keep"), "{changes}: {refused}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn server_and_offline_check_enforce_every_limit_of_the_schema() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    let of_kind = |crd: &CustomResourceDefinition| {
        limits::all_violations(&crd.spec.names.kind, &crd::schema(crd))
    };
    let cases: Vec<LimitViolation> = crd::all().iter().flat_map(of_kind).collect();
    assert!(cases.len() > 600, "only {} limits", cases.len());
    let verdicts: Vec<Result<Option<String>>> = stream::iter(&cases)
        .map(|case| async {
            let server = refusal(&client, &case.manifest).await?.unwrap_or_default();
            let offline = validate::check_schema_and_rules(&case.manifest);
            let named = server.contains(&case.path);
            let found = offline.iter().any(|problem| problem.path.starts_with(&case.path));
            let broken = format!("{} ({})", case.path, case.keyword);
            let report = || format!("{broken}: server {server:.300}, offline {offline:?}");
            Ok((!named || !found).then(report))
        })
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await;
    let verdicts: Vec<Option<String>> = verdicts.into_iter().collect::<Result<_>>()?;
    let wrong: Vec<String> = verdicts.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    Ok(())
}

#[tokio::test]
async fn a_job_runs_in_an_instance_of_its_own_at_every_target_elsewhere() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    for target in targets_of_every_kind() {
        let decoded: BurstTarget = serde_json::from_value(target.clone())?;
        let server = refusal(&client, &isolated_burst(target.clone())).await?;
        assert_eq!(server.is_none(), decoded.is_elsewhere(), "{target}: {server:?}");
    }
    Ok(())
}

#[tokio::test]
async fn manifests_that_only_the_operator_can_refuse_are_accepted_by_the_server() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    for InvalidManifest { name, manifest, .. } in bad::refused_beyond_schema() {
        let server = refusal(&client, &manifest).await?;
        assert_eq!(server, None, "{name}: the CRD refuses it: move it to bad.yaml");
    }
    Ok(())
}

#[tokio::test]
async fn empty_values_mean_unset() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    let mut manifest = smallest_minicluster("empty");
    fill_with_empty_values(
        &crd::schema(&crd::minicluster())["properties"]["spec"],
        &mut manifest["spec"],
    );
    assert_eq!(refusal(&client, &manifest).await?, None);
    assert_eq!(validate::check_schema_and_rules(&manifest), Vec::new());
    let read: MiniCluster = validate::read_minicluster(&manifest)?;
    let plain: MiniCluster = validate::read_minicluster(&smallest_minicluster("empty"))?;
    assert_eq!(read.spec, plain.spec);
    Ok(())
}

/// Writes `""` and `false` into every optional top-level field of these types, as generated clients
/// do.
fn fill_with_empty_values(schema: &Value, object: &mut Value) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        match field["type"].as_str() {
            Some("string") => object[name] = "".into(),
            Some("boolean") => object[name] = false.into(),
            _ => {}
        }
    }
}

fn is_about_changes(rule: &Value) -> bool {
    let text = rule["rule"].as_str().unwrap_or_default();
    text.contains("oldSelf") && rule["optionalOldSelf"] != true
}

fn collect_rules(schema: &Value, messages: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            let rules = object.get("x-kubernetes-validations").and_then(Value::as_array);
            // A rule about changes only has no invalid manifest.
            let rules = rules.into_iter().flatten().filter(|rule| !is_about_changes(rule));
            for rule in rules {
                messages
                    .insert(rule["message"].as_str().expect("every rule has a message").to_owned());
            }
            object.values().for_each(|inner| collect_rules(inner, messages));
        }
        Value::Array(array) => array.iter().for_each(|inner| collect_rules(inner, messages)),
        _ => {}
    }
}
