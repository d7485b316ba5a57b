//! The position of a job, over HTTP: visible only to users who may read it.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::with_timeout;
use flux_operator_tests_e2e::access::apply;
use flux_operator_tests_e2e::queue::LONG_COMMAND;
use flux_operator_tests_e2e::{TestNamespace, with_operator};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn q7_positions_and_reasons_are_visible_to_users_who_may_read_them() -> Result<()> {
    with_operator(async |stage| {
        stage.create_setup("default", json!({ "quota": { "nodes": "1" } })).await?;
        stage.submit("a", LONG_COMMAND, json!({})).await?;
        stage.wait_for_job_phase("a", "Running").await?;
        stage.submit("b", LONG_COMMAND, json!({})).await?;
        stage.submit("c", LONG_COMMAND, json!({ "priority": 5 })).await?;
        for name in ["b", "c"] {
            stage.wait_for_job_phase(name, "Waiting").await?;
        }
        let (reader, stranger) = (create_account(stage, "reader").await?, create_account(stage, "stranger").await?);
        let namespace = &stage.namespace;
        let rule = json!({ "apiGroups": ["flux-framework.org"],
            "resources": ["fluxsetups", "fluxjobs"], "verbs": ["get"] });
        let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "reader", "namespace": namespace }, "rules": [rule] });
        let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "reader", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
            "subjects": [{ "kind": "ServiceAccount", "name": "reader", "namespace": namespace }] });
        apply(&stage.client, &[role, binding]).await?;

        let pending = format!("/v1/queues/{namespace}/default/pending");
        let (status, body) = get(stage, &pending, Some(&reader)).await?;
        assert_eq!((status, &body["total"]), (200, &json!(2)), "{body}");
        let order: Vec<&Value> = body["items"].as_array().into_iter().flatten().collect();
        assert_eq!((&order[0]["name"], &order[0]["position"]), (&json!("c"), &json!(0)));
        assert_eq!((&order[1]["name"], &order[1]["position"]), (&json!("b"), &json!(1)));
        let (_, part) = get(stage, &format!("{pending}?limit=1&offset=1"), Some(&reader)).await?;
        assert_eq!(part["items"].as_array().map(Vec::len), Some(1), "{part}");
        assert_eq!(part["items"][0]["name"], "b");

        let why = format!("/v1/namespaces/{namespace}/fluxjobs/b");
        let (status, reported) = get(stage, &why, Some(&reader)).await?;
        assert_eq!((status, &reported["reason"]), (200, &json!("WaitingForQuota")), "{reported}");
        let (status, reported) = get(stage, "/v1/queues", Some(&reader)).await?;
        assert_eq!((status, &reported["items"][0]["pending"]), (200, &json!(2)), "{reported}");

        for path in [pending.as_str(), &why, "/v1/queues"] {
            assert_eq!(get(stage, path, None).await?.0, 401, "{path}");
            assert_eq!(get(stage, path, Some("nonsense")).await?.0, 401, "{path}");
        }
        assert_eq!(get(stage, &pending, Some(&stranger)).await?.0, 403);
        assert_eq!(get(stage, &why, Some(&stranger)).await?.0, 403);
        let (status, none) = get(stage, "/v1/queues", Some(&stranger)).await?;
        assert_eq!((status, &none["items"]), (200, &json!([])));
        let missing = format!("/v1/queues/{namespace}/gone/pending");
        assert_eq!(get(stage, &missing, Some(&reader)).await?.0, 404);

        let (_, metrics) = get_text(stage, "/metrics", None).await?;
        for line in [
            format!(r#"flux_operator_pending_workloads{{cluster_queue="{namespace}/default",status="active"}} 2"#),
            format!(r#"flux_operator_admitted_workloads_total{{cluster_queue="{namespace}/default"}} 1"#),
            format!(r#"flux_operator_cluster_queue_resource_usage{{cluster_queue="{namespace}/default",resource="nodes"}} 1.0"#),
            format!(r#"flux_operator_cluster_queue_nominal_quota{{cluster_queue="{namespace}/default",resource="nodes"}} 1.0"#),
        ] {
            assert!(metrics.lines().any(|each| each == line), "{line} is not in\n{metrics}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_cluster_is_shown_with_its_ranks_and_the_jobs_that_wait_in_it() -> Result<()> {
    with_operator(async |stage| {
        let flux = json!({ "bursting": { "clusters": [{ "name": "cloud", "size": 2 }] } });
        stage.create("mc", json!({ "size": 1, "interactive": true, "flux": flux })).await?;
        stage.wait_for_status("mc", ConditionType::Ready, "True").await?;
        let reader = create_account(stage, "watcher").await?;
        let namespace = &stage.namespace;
        let rule = json!({ "apiGroups": ["flux-framework.org"],
            "resources": ["miniclusters"], "verbs": ["get"] });
        let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "watcher", "namespace": namespace }, "rules": [rule] });
        let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "watcher", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "watcher" },
            "subjects": [{ "kind": "ServiceAccount", "name": "watcher", "namespace": namespace }] });
        apply(&stage.client, &[role, binding]).await?;

        let path = format!("/v1/namespaces/{namespace}/miniclusters/mc");
        let shown = poll_until(stage, &path, &reader, |it| it["slots"][0]["online"] == "0").await?;
        let slots = |index: usize, field: &str| shown["slots"][index][field].clone();
        assert_eq!((slots(0, "owner"), slots(0, "ranks")), (json!("Job"), json!("0")), "{shown}");
        assert_eq!((slots(1, "pool"), slots(1, "ranks")), (json!("cloud"), json!("1-2")), "{shown}");
        assert_eq!(slots(1, "hosts"), "cloud-[0-1]");

        let flux = ". /mnt/flux/flux-view.sh && flux proxy $fluxsocket flux";
        stage.exec("mc", 0, &format!("{flux} submit -N2 hostname")).await?;
        let jobs = format!("{path}/jobs");
        let listed = poll_until(stage, &jobs, &reader, |it| it["items"][0]["nodes"] == 2).await?;
        assert_eq!(listed["listed"], true, "{listed}");
        assert_eq!(get(stage, &jobs, None).await?.0, 401);
        let deleted = format!("/v1/namespaces/{namespace}/miniclusters/gone");
        assert_eq!(get(stage, &deleted, Some(&reader)).await?.0, 404);
        Ok(())
    })
    .await
}

/// Requests a path until the response satisfies `wanted`.
async fn poll_until(
    stage: &TestNamespace,
    path: &str,
    token: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let mut last = Value::Null;
    let answers = async {
        loop {
            last = get(stage, path, Some(token)).await?.1;
            if wanted(&last) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    with_timeout(answers)
        .await
        .and_then(|it| it)
        .with_context(|| format!("{path} never returned what was expected"))?;
    Ok(last)
}

/// A token of a new ServiceAccount.
async fn create_account(stage: &TestNamespace, name: &str) -> Result<String> {
    let accounts = stage.api::<ServiceAccount>();
    let account = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    accounts.create(&PostParams::default(), &account).await?;
    let request = TokenRequest::default();
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    answer.status.and_then(|status| status.token).context("the API server returned no token")
}

async fn get(stage: &TestNamespace, path: &str, token: Option<&str>) -> Result<(u16, Value)> {
    let (status, body) = get_text(stage, path, token).await?;
    let body = serde_json::from_str(&body).with_context(|| format!("{path} returned {body:?}"))?;
    Ok((status, body))
}

/// Sends one plain request to the operator, and reads until the connection is closed.
async fn get_text(stage: &TestNamespace, path: &str, token: Option<&str>) -> Result<(u16, String)> {
    let url = stage.report_url()?;
    let address = url.strip_prefix("http://").context("the URL is not HTTP")?;
    let mut connection = TcpStream::connect(address).await?;
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.0\r\nHost: operator\r\n{token}\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no response")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}
