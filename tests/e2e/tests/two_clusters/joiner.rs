//! A lender, its invitations, and the MiniCluster of another Kubernetes cluster that uses one.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_api::minicluster::Lease;
use flux_operator_plan::kubernetes::secret_name;
use flux_operator_plan::{InvitationFile, InvitationSecrets, invitation_file};
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::plugin::Plugin;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use serde_json::{Value, json};

/// Runs `flux` in the instance of a pod.
pub const FLUX: &str = ". /mnt/flux/flux-view.sh && flux proxy $fluxsocket flux";

/// The name of the MiniCluster that uses an invitation.
pub const JOINER: &str = "joiner";

/// An end that no test reaches.
pub const LATE: &str = "2099-01-01T00:00:00Z";

/// Seed 001's shape: two brokers, and eight hosts that may be down.
pub fn lender() -> Value {
    json!({ "size": 2, "maxSize": 10, "interactive": true,
        "flux": { "bursting": { "expose": { "type": "NodePort" } } } })
}

/// Starts a gateway and an operator, and a lender that is ready.
pub async fn start_lender(home: &mut TestNamespace, name: &str) -> Result<()> {
    home.start_gateway().await?;
    home.start_operator().await?;
    home.create(name, lender()).await?;
    home.wait_for_status(name, ConditionType::Ready, "True").await?;
    Ok(())
}

/// Sets the invitations of a lender, each with its number of ranks and its end.
pub async fn set_invitations(
    home: &TestNamespace,
    lender: &str,
    invitations: &[(&str, i32, &str)],
) -> Result<()> {
    let invitations: Vec<Value> = invitations
        .iter()
        .map(|(name, ranks, expires)| json!({ "name": name, "ranks": ranks, "expires": expires }))
        .collect();
    home.patch(lender, json!({ "flux": { "bursting": { "invitations": invitations } } })).await
}

/// Waits until an invitation has a lease that others can reach.
pub async fn wait_for_lease(home: &TestNamespace, lender: &str, name: &str) -> Result<Lease> {
    let is_reachable = |it: &MiniCluster| {
        let external = it.status.as_ref().and_then(|status| status.external.as_ref());
        let has_port = lease(it, name).and_then(|it| it.invitation.as_ref()).map(|it| it.port > 0);
        let is_direct = external.is_some_and(|it| it.port > 0);
        (has_port == Some(true) || is_direct)
            && lease(it, name).is_some()
            && external.is_some_and(|it| it.lead.is_some() && !it.addresses.is_empty())
    };
    let found = home.wait_for_object(lender, is_reachable).await?;
    lease(&found, name).cloned().context("the lease is gone")
}

/// The lease of an invitation.
pub fn lease<'a>(lender: &'a MiniCluster, name: &str) -> Option<&'a Lease> {
    let mut leases = lender.status.iter().flat_map(|status| &status.leases);
    leases.find(|it| it.invitation.is_some() && it.name == name)
}

/// The file of an invitation.
pub async fn file(home: &TestNamespace, lender: &str, name: &str) -> Result<InvitationFile> {
    let minicluster = home.miniclusters().get(lender).await?;
    let job = home.api::<Job>().get(lender).await?;
    let keys = secret_name(&minicluster, Some(&job));
    let mut data = home.api::<Secret>().get(&keys).await?.data.context("there are no keys")?;
    let key = data.remove("report.key").context("there is no key for reports")?;
    let own = minicluster.spec.flux.as_ref().map(|flux| flux.curve_cert_secret.clone());
    let certificate = match own.filter(|name| !name.is_empty()) {
        Some(name) => certificate(home, &name).await?,
        None => data.remove("curve.cert").context("there is no certificate")?,
    };
    let report_key = SealKey::parse(std::str::from_utf8(&key.0)?)?;
    let secrets = InvitationSecrets { certificate, report_key, munge: None };
    Ok(invitation_file(&minicluster, Some(&job), name, JOINER, secrets)?)
}

/// The certificate in a Secret.
pub async fn certificate(home: &TestNamespace, secret: &str) -> Result<ByteString> {
    let data = home.api::<Secret>().get(secret).await?.data.unwrap_or_default();
    data.get("curve.cert").cloned().context("there is no certificate")
}

/// Invites, and applies the file in the other cluster, with the two commands that a user types.
pub async fn invite(
    home: &TestNamespace,
    away: &TestNamespace,
    lender: &str,
    name: &str,
    ranks: i32,
) -> Result<()> {
    let ranks = ranks.to_string();
    let words = ["invite", lender, "--ranks", &ranks, "--invitation", name, "--as", JOINER];
    let invited = Plugin::new(home)?.run(&words).await?;
    ensure!(invited.code == Some(0), "{}", invited.errors);
    let mut kubectl = away.testbed.kubectl();
    kubectl.args(["apply", "--namespace", &away.namespace, "--filename", "-"]);
    let mut kubectl = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    kubectl.stdin.take().context("no input")?.write_all(invited.output.as_bytes())?;
    ensure!(kubectl.wait()?.success(), "kubectl apply failed");
    Ok(())
}

/// Revokes invitations with the command that a user types.
pub async fn revoke(home: &TestNamespace, lender: &str, name: &str) -> Result<()> {
    let revoked = Plugin::new(home)?.run(&["invite", "revoke", lender, name]).await?;
    ensure!(revoked.code == Some(0), "{}", revoked.errors);
    Ok(())
}

/// Applies the file of an invitation.
pub async fn apply(away: &TestNamespace, file: InvitationFile) -> Result<()> {
    away.api::<Secret>().create(&PostParams::default(), &file.secret).await?;
    away.miniclusters().create(&PostParams::default(), &file.minicluster).await?;
    Ok(())
}

/// Waits until all brokers of the joiner are part of the instance.
pub async fn wait_until_joined(away: &TestNamespace) -> Result<()> {
    away.wait_for_reason(JOINER, ConditionType::Joined, "Joined").await?;
    Ok(())
}

/// Waits until as many brokers of others are online as the lead reports.
pub async fn wait_for_joined(home: &TestNamespace, lender: &str, number: i32) -> Result<()> {
    let has = |it: &MiniCluster| it.status.as_ref().is_some_and(|it| it.joined == number);
    home.wait_for_object(lender, has).await?;
    Ok(())
}

/// The hosts that a job over this many nodes prints.
pub async fn hosts(home: &TestNamespace, lender: &str, nodes: usize) -> Result<Vec<String>> {
    let output = home.exec(lender, 0, &format!("{FLUX} run -N{nodes} hostname")).await?;
    let mut hosts: Vec<String> = output.lines().map(str::to_owned).collect();
    hosts.sort();
    hosts.dedup();
    Ok(hosts)
}
