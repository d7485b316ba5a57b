//! Operators crash, each after the first write that changes something, while an invitation is made,
//! used, revoked or expires. The next operator takes over: the end is the same as without a crash,
//! and nothing is left behind.

use anyhow::{Context, Result, bail, ensure};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::TIMEOUT;
use flux_operator_tests_e2e::proxy::{Fault, Proxy};
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use flux_operator_tests_e2e::{TestNamespace, condition};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::ListParams;

use super::guest::{
    GUEST, LATE, apply, file, lease, lender, set_invitations, wait_for_joined, wait_for_lease,
    wait_until_joined,
};

/// The name of the invitation.
const INVITATION: &str = "cloud";

/// The largest number of crashes in one run: a change takes some ten writes in each cluster.
const MAX_CRASHES: usize = 60;

/// How soon an invitation expires: enough for its lease to be granted before.
const EXPIRES_AFTER: SignedDuration = SignedDuration::from_secs(15);

/// What happens while operators crash.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Invite,
    Join,
    Revoke,
    Expire,
}

/// The state in the end.
#[derive(Debug, PartialEq)]
struct EndState {
    /// Ranks and state of each lease, and whether a cluster uses it.
    leases: Vec<String>,
    exposed: Option<String>,
    /// Names and ports of the Services and endpoints of the lender.
    network: Vec<String>,
    joined: i32,
    /// The reason of the guest's condition `Joined`.
    guest: Option<String>,
    /// Kind and name of the guest's objects.
    objects: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_is_made() -> Result<()> {
    assert_survives_crashes(Change::Invite).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_is_used() -> Result<()> {
    assert_survives_crashes(Change::Join).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_is_revoked() -> Result<()> {
    assert_survives_crashes(Change::Revoke).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_expires() -> Result<()> {
    assert_survives_crashes(Change::Expire).await
}

async fn assert_survives_crashes(change: Change) -> Result<()> {
    let (undisturbed, disturbed) =
        tokio::try_join!(Box::pin(run(change, false)), Box::pin(run(change, true)))?;
    ensure!(disturbed.1 >= 2, "{change:?}: only {} operators crashed", disturbed.1);
    ensure!(
        undisturbed.0 == disturbed.0,
        "{change:?}: the end differs: {:#?}, expected {:#?}",
        disturbed.0,
        undisturbed.0
    );
    Ok(())
}

/// Makes the change, and returns the end and the number of crashes.
async fn run(change: Change, crashes: bool) -> Result<(EndState, usize)> {
    with_two_clusters(async |home, away| {
        home.start_gateway().await?;
        let mut proxies = [restart(home, Fault::None).await?, restart(away, Fault::None).await?];
        let expires = prepare(home, change).await?;
        if change != Change::Invite {
            wait_for_lease(home, "lender", INVITATION).await?;
        }
        if change == Change::Revoke {
            apply(away, file(home, "lender", INVITATION).await?).await?;
            wait_until_joined(away).await?;
            wait_for_joined(home, "lender", 1).await?;
        }
        let fault = || if crashes { Fault::CutAfterChange } else { Fault::None };
        for proxy in &proxies {
            proxy.wait_until_idle().await?;
            proxy.inject(fault());
        }
        match change {
            Change::Invite => set_invitations(home, "lender", &[(INVITATION, 1, &expires)]).await?,
            Change::Join => apply(away, file(home, "lender", INVITATION).await?).await?,
            Change::Revoke => set_invitations(home, "lender", &[]).await?,
            Change::Expire => {}
        }
        let mut count = 0;
        let end = loop {
            let [at_home, elsewhere] = &proxies;
            let cut = tokio::select! {
                biased;
                () = at_home.wait_until_cut() => 0,
                () = elsewhere.wait_until_cut() => 1,
                end = Box::pin(wait_for_end(home, away, &proxies, change)) => break end?,
            };
            count += 1;
            ensure!(count <= MAX_CRASHES, "they never finish: {:?}", proxies[cut].requests());
            let stage = if cut == 0 { &mut *home } else { &mut *away };
            proxies[cut] = restart(stage, fault()).await?;
        };
        Ok((end, count))
    })
    .await
}

/// Starts the next operator of a cluster.
async fn restart(stage: &mut TestNamespace, fault: Fault) -> Result<Proxy> {
    stage.stop_operator();
    let proxy = Proxy::start(stage.client.clone()).await?;
    proxy.inject(fault);
    stage.start_operator_with(proxy.client()?).await?;
    Ok(proxy)
}

/// Starts a lender, with an invitation unless that is the change. Returns when the invitation ends.
async fn prepare(home: &TestNamespace, change: Change) -> Result<String> {
    home.create("lender", lender()).await?;
    home.wait_for_status("lender", ConditionType::Ready, "True").await?;
    let expires = match change {
        Change::Expire => {
            let expires = Timestamp::now() + EXPIRES_AFTER;
            expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
        }
        _ => LATE.to_owned(),
    };
    if change != Change::Invite {
        set_invitations(home, "lender", &[(INVITATION, 1, &expires)]).await?;
    }
    Ok(expires)
}

/// Waits until the change is complete and both operators are idle.
async fn wait_for_end(
    home: &TestNamespace,
    away: &TestNamespace,
    proxies: &[Proxy; 2],
    change: Change,
) -> Result<EndState> {
    for proxy in proxies {
        proxy.wait_until_watched().await?;
    }
    match change {
        Change::Invite => drop(wait_for_lease(home, "lender", INVITATION).await?),
        Change::Join => {
            wait_until_joined(away).await?;
            wait_for_joined(home, "lender", 1).await?;
        }
        Change::Revoke | Change::Expire => {
            let is_gone = |it: &MiniCluster| lease(it, INVITATION).is_none();
            home.wait_for_object("lender", is_gone).await?;
            wait_for_joined(home, "lender", 0).await?;
        }
    }
    let since = std::time::Instant::now();
    loop {
        for proxy in proxies {
            proxy.wait_until_idle().await?;
        }
        let end = end_state(home, away).await?;
        if is_settled(change, &end) {
            return Ok(end);
        }
        if since.elapsed() > TIMEOUT {
            bail!("{change:?} has not settled: {end:#?}");
        }
    }
}

fn is_settled(change: Change, end: &EndState) -> bool {
    match change {
        Change::Invite => end.leases == ["9 Active unused"] && end.network.len() == 2,
        Change::Join => end.leases == ["9 Active used"] && end.joined == 1,
        Change::Revoke => {
            end.leases.is_empty()
                && end.joined == 0
                && end.network.len() == 1
                && end.guest.as_deref() == Some("LenderUnreachable")
        }
        Change::Expire => end.leases.is_empty() && end.network.len() == 1,
    }
}

async fn end_state(home: &TestNamespace, away: &TestNamespace) -> Result<EndState> {
    let lender = home.miniclusters().get("lender").await?;
    let exposed = condition(&lender, ConditionType::Exposed).map(|it| it.reason.clone());
    let status = lender.status.context("no status")?;
    let leases = status.leases.iter().map(|it| {
        let user = it.invitation.as_ref().and_then(|it| it.user.as_ref());
        let used = if user.is_some() { "used" } else { "unused" };
        format!("{} {:?} {used}", it.ranks, it.state)
    });
    let guest = away.miniclusters().get_opt(GUEST).await?;
    let guest = guest.and_then(|it| Some(condition(&it, ConditionType::Joined)?.reason.clone()));
    let mut objects = away.names::<Job>(GUEST).await?;
    objects.extend(away.names::<ConfigMap>(GUEST).await?);
    objects.extend(away.names::<Secret>(GUEST).await?);
    Ok(EndState {
        leases: leases.collect(),
        exposed,
        network: network(home).await?,
        joined: status.joined,
        guest,
        objects,
    })
}

/// The Service for others, and its endpoints.
async fn network(home: &TestNamespace) -> Result<Vec<String>> {
    let services = home.api::<Service>().list(&ListParams::default()).await?;
    let services = services.iter().filter(|it| it.name_any() == "lender-external").map(|it| {
        let ports = it.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let ports: Vec<String> = ports
            .map(|it| format!("{} {}", it.name.clone().unwrap_or_default(), it.port))
            .collect();
        format!("Service {}", ports.join(","))
    });
    let slices = home.api::<EndpointSlice>().list(&ListParams::default()).await?;
    let of_lender = slices.iter().filter(|it| it.name_any().starts_with("lender-external"));
    let slices = of_lender.map(|it| {
        let ports = it.ports.iter().flatten().filter_map(|it| it.name.clone());
        format!("EndpointSlice {}", ports.collect::<Vec<_>>().join(","))
    });
    Ok(services.chain(slices).collect())
}
