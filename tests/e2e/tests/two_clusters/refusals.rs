//! What the gateway and the lender refuse, and that nothing is disturbed by it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_api::minicluster::Lease;
use flux_operator_plan::InvitationFile;
use flux_operator_testkit::cluster::{TIMEOUT, with_timeout};
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use k8s_openapi::ByteString;
use serde_json::json;

use super::joiner::{
    FLUX, JOINER, LATE, apply, file, hosts, lender, set_invitations, start_lender, wait_for_joined,
    wait_for_lease, wait_until_joined,
};

/// Two lenders use one gateway. The invitation of the first is used, and then misused in every way,
/// while a job runs on all of its hosts.
#[tokio::test]
async fn b10_two_lenders_share_a_gateway_and_misuse_disturbs_nothing() -> Result<()> {
    with_two_clusters(async |home, away| {
        start_lender(home, "one").await?;
        home.create("two", lender()).await?;
        home.wait_for_status("two", ConditionType::Ready, "True").await?;
        set_invitations(home, "one", &[("cloud", 2, LATE)]).await?;
        set_invitations(home, "two", &[("cloud", 1, LATE)]).await?;
        let first = wait_for_lease(home, "one", "cloud").await?;
        let second = wait_for_lease(home, "two", "cloud").await?;
        ensure!(gateway_port(&first) != gateway_port(&second), "{first:?} {second:?}");

        apply(away, file(home, "one", "cloud").await?).await?;
        wait_until_joined(away).await?;
        apply(away, renamed(file(home, "two", "cloud").await?, "other")).await?;
        away.wait_for_reason("other", ConditionType::Joined, "Joined").await?;
        wait_for_joined(home, "two", 1).await?;
        ensure!(hosts(home, "two", 3).await?.len() == 3, "the second lender has no joiner");

        let job = home.exec("one", 0, &format!("{FLUX} submit -N4 sleep 3600")).await?;
        let job = job.trim();
        home.exec("one", 0, &format!("{FLUX} job wait-event -t 60 {job} start")).await?;

        // Unoptimized, the futures of all steps together are too large for a test's stack.
        let sends_garbage = async { garbage(home, &first) };
        Box::pin(expect_refusal(home, "one", "Garbage", sends_garbage)).await?;
        home.wait_for_event_with("GatewayRefused", "1 Garbage").await?;
        Box::pin(third_broker(home, away, &first)).await?;
        Box::pin(applied_twice(home, away)).await?;
        Box::pin(wrong_key(home, away)).await?;
        Box::pin(wrong_version(home, away)).await?;

        let one = home.miniclusters().get("one").await?.status.context("no status")?;
        ensure!(one.joined == 2, "brokers were lost: {one:?}");
        let state = home.exec("one", 0, &format!("{FLUX} jobs -no '{{state}}' {job}")).await?;
        ensure!(state.trim() == "RUN", "the job was disturbed: {state}");
        Ok(())
    })
    .await
}

fn gateway_port(lease: &Lease) -> Option<i32> {
    lease.invitation.as_ref().map(|it| it.gateway_port)
}

/// Bytes that are no broker's: the connection is closed.
fn garbage(home: &TestNamespace, lease: &Lease) -> Result<()> {
    let port = lease.invitation.as_ref().map(|it| it.port).unwrap_or_default();
    let address = SocketAddr::new(home.testbed.slot().node_address().into(), u16::try_from(port)?);
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"\x16\x03\x01 this is not a broker")?;
    let mut answer = Vec::new();
    // It is closed, or reset because of what was not read.
    let closed = stream.read_to_end(&mut answer);
    ensure!(
        answer.is_empty() && closed.map_err(|it| it.kind()) != Err(std::io::ErrorKind::WouldBlock)
    );
    Ok(())
}

/// A broker that has the certificate, but asks for no permission, and has the name of a live one.
async fn third_broker(home: &TestNamespace, away: &TestNamespace, lease: &Lease) -> Result<()> {
    let rank = lease.rank_list().nth(0).context("the lease has no ranks")?;
    let start = format!(
        "mkdir -p /tmp/third && cd /tmp/third && timeout 20 flux broker \
         --config-path=/mnt/flux/config/etc/flux/config -Shostname=one-{rank} \
         -Srundir=/tmp/third -Sstatedir=/tmp/third -Stbon.topo=kary:0 -Stbon.connect_timeout=2s \
         >/tmp/third/log 2>&1; true"
    );
    let with_path = format!(". /mnt/flux/flux-view.sh; {start}");
    // It keeps trying until it is stopped, which need not be awaited.
    let tries = async { away.exec(JOINER, 0, &with_path).await.map(drop) };
    expect_refusal(home, "one", "TooMany", tries).await
}

/// The same file a second time: the first cluster keeps the ranks.
async fn applied_twice(home: &TestNamespace, away: &TestNamespace) -> Result<()> {
    apply(away, renamed(file(home, "one", "cloud").await?, "twice")).await?;
    let refused = away.wait_for_reason("twice", ConditionType::Joined, "InvitationUsed").await?;
    let user = format!("{}/joiner", away.namespace);
    ensure!(refused.message.contains(&user), "{}", refused.message);
    away.delete_and_wait::<MiniCluster>("twice").await
}

/// The key of another invitation.
async fn wrong_key(home: &TestNamespace, away: &TestNamespace) -> Result<()> {
    let mut forged = renamed(file(home, "one", "cloud").await?, "forged");
    let data = forged.secret.data.get_or_insert_default();
    data.insert("invitation.key".into(), ByteString("0".repeat(64).into_bytes()));
    apply(away, forged).await?;
    away.wait_for_reason("forged", ConditionType::Joined, "WrongKey").await?;
    away.delete_and_wait::<MiniCluster>("forged").await
}

/// A lender of another release, as far as the file says.
async fn wrong_version(home: &TestNamespace, away: &TestNamespace) -> Result<()> {
    let mut other = renamed(file(home, "one", "cloud").await?, "newer");
    let bursting = other.minicluster.spec.flux.as_mut().and_then(|flux| flux.bursting.as_mut());
    let lead = bursting.and_then(|it| it.lead_broker.as_mut()).context("no lead")?;
    let instance = lead.instance.as_mut().context("no instance")?;
    instance.lead.version = "99.1.0".into();
    apply(away, other).await?;
    let refused = away.wait_for_reason("newer", ConditionType::Joined, "VersionMismatch").await?;
    ensure!(refused.message.contains("99.1.0"), "{}", refused.message);
    away.delete_and_wait::<MiniCluster>("newer").await
}

/// The file for a MiniCluster of another name.
fn renamed(mut file: InvitationFile, name: &str) -> InvitationFile {
    let secret = format!("{name}-invitation");
    file.minicluster.metadata.name = Some(name.into());
    file.secret.metadata.name = Some(secret.clone());
    file.minicluster.spec.flux.get_or_insert_default().curve_cert_secret = secret;
    file
}

/// The gateway refuses a connection for this reason because of what `client` does. That is not
/// completed if the connection is refused before.
async fn expect_refusal(
    home: &TestNamespace,
    lender: &str,
    reason: &str,
    client: impl Future<Output = Result<()>>,
) -> Result<()> {
    let before = refused(home, lender, reason).await?;
    let is_counted = async {
        while refused(home, lender, reason).await? <= before {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    };
    let is_counted = with_timeout(is_counted);
    tokio::pin!(is_counted);
    let counted = tokio::select! {
        counted = &mut is_counted => counted,
        failed = async { client.await.err() } => match failed {
            Some(error) => return Err(error),
            None => is_counted.await,
        },
    };
    counted.with_context(|| format!("{reason} was never counted"))?
}

/// How many connections to the invitation of a lender the gateway has refused for a reason.
async fn refused(home: &TestNamespace, lender: &str, reason: &str) -> Result<u64> {
    let metrics = home.gateway_metrics().await?;
    let labels = [format!("cluster=\"{lender}\""), format!("reason=\"{reason}\"")];
    let counted = metrics.lines().find(|line| {
        line.starts_with("flux_operator_gateway_refused_total")
            && labels.iter().all(|label| line.contains(label))
    });
    let number = counted.and_then(|line| line.rsplit_once(' ')).map(|(_, number)| number);
    Ok(number.with_context(|| format!("{reason} is not counted: {metrics}"))?.parse()?)
}

/// B38: only connections from the networks of `sourceRanges` are accepted.
#[tokio::test]
async fn b38_connections_from_other_networks_are_refused() -> Result<()> {
    with_two_clusters(async |home, away| {
        start_lender(home, "lender").await?;
        let ranges = |range: &str| {
            json!({ "flux": { "bursting": { "expose": { "sourceRanges": [range] } } } })
        };
        home.patch("lender", ranges("203.0.113.0/24")).await?;
        set_invitations(home, "lender", &[("cloud", 1, LATE)]).await?;
        wait_for_lease(home, "lender", "cloud").await?;
        let file = file(home, "lender", "cloud").await?;
        expect_refusal(home, "lender", "Source", apply(away, file)).await?;
        away.wait_for_reason(JOINER, ConditionType::Joined, "LenderUnreachable").await?;
        home.wait_for_event_with("GatewayRefused", " Source;").await?;
        home.patch("lender", ranges(&format!("{}/32", away.testbed.slot().node_address()))).await?;
        wait_until_joined(away).await?;
        wait_for_joined(home, "lender", 1).await?;
        ensure!(hosts(home, "lender", 3).await?.len() == 3, "the job did not run on all hosts");
        Ok(())
    })
    .await
}
