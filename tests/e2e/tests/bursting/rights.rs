//! What the controller may do, what it does, and what it shows.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use flux_operator_api::{Burst, BurstPolicy};
use flux_operator_install::BURST_CONTROLLER;
use flux_operator_testbed::Testbed;
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::bursting::TARGET_ACCOUNT_NAME;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde::Deserialize;
use serde_json::json;

use super::steps::{
    FLUX, expect_no_secrets, other_cluster, output, start_primary, submit, wait_for_burst,
    wait_for_condition, wait_for_no_bursts, wait_until_nothing_is_left, with_target,
};

/// Rights without a request of their own: the API server checks the first when an owner is set, and an Event
/// is patched only if it repeats the last one.
const NOT_REQUESTED: [&str; 2] = ["update burstpolicies/finalizers", "patch events"];

/// What the controller requested of both API servers is what its roles allow; and its credentials and
/// those of the target are nowhere but in their Secrets.
#[tokio::test]
async fn b36_rights_are_those_that_are_used_and_credentials_are_shown_nowhere() -> Result<()> {
    with_target(async |home, away| {
        let mut scaled = other_cluster();
        scaled["scaling"] = json!({ "minNodes": 1, "maxNodes": 2 });
        home.create_policy("elsewhere", json!({ "targets": [scaled] })).await?;
        let folder = tempfile::tempdir()?;
        let controller = home.run_burst_controller(folder.path()).await?;
        start_primary(home, "primary").await?;
        // It grows, shrinks and is given back: every right at the target is used.
        let long = submit(home, "primary", "-N3 --setattr=burstable sleep inf").await?;
        let name = wait_for_burst(home).await?.name_any();
        wait_for_condition(home, &name, "Ready", "True", "").await?;
        let job = submit(home, "primary", "-N1 --setattr=burstable hostname").await?;
        output(home, "primary", &job).await?;
        home.wait_for_object(&name, |it: &Burst| it.spec.nodes == 1).await?;
        let target = away.target_kubeconfig().await?["users"][0]["user"]["token"].clone();
        let kubeconfig = home.secret_value("away", "kubeconfig").await?;
        let secrets = [
            controller.token.clone(),
            target.as_str().context("the kubeconfig has no token")?.to_owned(),
            token_of(&kubeconfig)?,
        ];
        ensure!(secrets.iter().all(|it| it.len() > 100), "a token is missing");
        expect_no_secrets(home, away, &secrets).await?;
        home.exec("primary", 0, &format!("{FLUX} cancel {long}")).await?;
        wait_for_no_bursts(home).await?;
        wait_until_nothing_is_left(away).await?;
        home.api::<BurstPolicy>().delete("elsewhere", &DeleteParams::default()).await?;

        // An isolated run uses the rest.
        let whole = json!({ "isolated": true, "targets": [other_cluster()] });
        home.create_policy("whole", whole).await?;
        submit(home, "primary", "-N3 --setattr=burstable --cwd=/tmp hostname").await?;
        let name = wait_for_burst(home).await?.name_any();
        let is_over = |it: &Burst| it.is_record() && it.finalizers().is_empty();
        home.wait_for_object(&name, is_over).await?;
        // Its record is deleted with it.
        home.api::<BurstPolicy>().delete("whole", &DeleteParams::default()).await?;
        home.wait_until_deleted::<Burst>(&name).await?;
        wait_until_nothing_is_left(away).await?;

        let here = json!({ "name": "here", "maxNodes": 1, "startupSeconds": 1, "cluster": {} });
        home.create_policy("here", json!({ "targets": [here] })).await?;
        let job = submit(home, "primary", "-N3 --setattr=burstable hostname").await?;
        ensure!(output(home, "primary", &job).await?.len() == 3);
        wait_for_no_bursts(home).await?;
        let log = controller.log()?;
        ensure!(log.contains("a policy creates a Burst"), "{log}");
        ensure!(!secrets.iter().any(|it| log.contains(it)), "the log has a token");

        let account =
            |namespace: &str, name: &str| format!("system:serviceaccount:{namespace}:{name}");
        let used = requests(&home.testbed, &account(&home.namespace, BURST_CONTROLLER))?;
        expect_same(&used, &allowed(home, "burst").await?, &NOT_REQUESTED).context("at home")?;
        let used = requests(&away.testbed, &account(&away.namespace, TARGET_ACCOUNT_NAME))?;
        expect_same(&used, &allowed(away, TARGET_ACCOUNT_NAME).await?, &[]).context("at the target")
    })
    .await
}

fn expect_same(used: &BTreeSet<String>, allowed: &BTreeSet<String>, unused: &[&str]) -> Result<()> {
    let mut needed = used.clone();
    needed.extend(unused.iter().map(|it| (*it).to_owned()));
    let missing: Vec<_> = needed.difference(allowed).collect();
    let unnecessary: Vec<_> = allowed.difference(&needed).collect();
    ensure!(missing.is_empty(), "{missing:?} are requested, and not allowed");
    ensure!(unnecessary.is_empty(), "{unnecessary:?} are allowed, and not requested");
    Ok(())
}

/// A request in the audit log of an API server.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
    verb: String,
    user: AuditUser,
    #[serde(default)]
    object_ref: Option<AuditObject>,
}

#[derive(Deserialize)]
struct AuditUser {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AuditObject {
    resource: String,
    subresource: String,
}

/// What a user has requested, such as `create jobs`.
fn requests(testbed: &Testbed, user: &str) -> Result<BTreeSet<String>> {
    let log = testbed.log("audit");
    let text = std::fs::read_to_string(&log).with_context(|| {
        format!("there is no {}: start the testbed with --audit", log.display())
    })?;
    let events = text.lines().filter_map(|line| serde_json::from_str::<AuditEvent>(line).ok());
    let of_user = events.filter(|event| event.user.username == user);
    Ok(of_user
        .filter_map(|event| {
            let AuditObject { resource, subresource } = event.object_ref?;
            let slash = if subresource.is_empty() { "" } else { "/" };
            Some(format!("{} {resource}{slash}{subresource}", event.verb))
        })
        .collect())
}

/// What the roles of a namespace with this in their name allow.
async fn allowed(namespace: &TestNamespace, name: &str) -> Result<BTreeSet<String>> {
    let roles = namespace.api::<Role>().list(&ListParams::default()).await?;
    let roles = roles.into_iter().filter(|role| role.name_any().contains(name));
    Ok(roles.flat_map(|role| role.rules.unwrap_or_default()).flat_map(words_of).collect())
}

fn words_of(rule: PolicyRule) -> Vec<String> {
    let (verbs, resources) = (rule.verbs, rule.resources.unwrap_or_default());
    let pairs =
        verbs.iter().flat_map(|verb| resources.iter().map(move |it| format!("{verb} {it}")));
    pairs.collect()
}

fn token_of(kubeconfig: &str) -> Result<String> {
    let value: serde_json::Value = serde_json::from_str(kubeconfig)?;
    let token = value["users"][0]["user"]["token"].as_str();
    Ok(token.context("the kubeconfig has no token")?.to_owned())
}
