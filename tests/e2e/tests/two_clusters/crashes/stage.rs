//! Two Kubernetes clusters whose operators can crash.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_testkit::cluster::TIMEOUT;
use flux_operator_tests_e2e::TestNamespace;
use flux_operator_tests_e2e::object_counter::ObjectCounter;
use flux_operator_tests_e2e::proxy::{Fault, Proxy};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;

use super::Change;
use super::crash::{Cluster, Crash, Crashes, PerCluster};
use super::end_state::{EndState, end_state};
use crate::joiner::{
    JOINER, apply, file, lease, lender, set_invitations, wait_for_joined, wait_for_lease,
    wait_until_joined,
};

/// The name of the invitation.
pub(super) const INVITATION: &str = "cloud";

/// The largest number of crashes in a cluster during one change, which takes some ten writes.
const MAX_CRASHES: usize = 60;

/// A lender and the cluster that joins it, each with an operator behind a proxy.
pub(super) struct Stage<'a> {
    home: &'a mut TestNamespace,
    away: &'a mut TestNamespace,
    proxies: PerCluster<Proxy>,
}

impl<'a> Stage<'a> {
    /// Starts a gateway, the operators and a lender.
    pub(super) async fn start(
        home: &'a mut TestNamespace,
        away: &'a mut TestNamespace,
    ) -> Result<Stage<'a>> {
        home.start_gateway().await?;
        let proxies = [restart(home, Fault::None).await?, restart(away, Fault::None).await?];
        home.create("lender", lender()).await?;
        home.wait_for_status("lender", ConditionType::Ready, "True").await?;
        home.wait_for_status("lender", ConditionType::Exposed, "True").await?;
        let stage = Stage { home, away, proxies };
        stage.wait_until_idle(&Cluster::ALL).await?;
        Ok(stage)
    }

    /// The ranks of the lender's leases.
    pub(super) async fn leases(&self) -> Result<Vec<String>> {
        let status = self.home.miniclusters().get("lender").await?.status;
        let leases = status.map(|status| status.leases).unwrap_or_default();
        Ok(leases.into_iter().map(|it| it.ranks).collect())
    }

    /// Makes a change, and has operators crash meanwhile. The end has to be that of the change.
    pub(super) async fn make(
        &mut self,
        change: Change,
        crash: Crash,
        crashes: &Crashes,
        expires: &str,
    ) -> Result<()> {
        let counter = ObjectCounter::start(self.away, JOINER);
        let crashed = self.make_with(change, crash, expires).await;
        let crashed = crashed.with_context(|| format!("{change:?}, {crash:?}"))?;
        let jobs = counter.counts().get("Job").copied().unwrap_or_default();
        ensure!(jobs <= 1, "{change:?}, {crash:?}: {jobs} Jobs were created for the joiner");
        if crash == Crash::AfterEveryWrite {
            ensure!(crashed.iter().sum::<usize>() >= 2, "{change:?}: crashes: {crashed:?}");
        }
        crashes.record(change, crash, crashed);
        Ok(())
    }

    /// The same; returns how many operators of each cluster crashed.
    async fn make_with(
        &mut self,
        change: Change,
        crash: Crash,
        expires: &str,
    ) -> Result<PerCluster<usize>> {
        for (proxy, cluster) in self.proxies.iter().zip(Cluster::ALL) {
            let write = match crash {
                Crash::Once(writes) => writes[cluster as usize],
                Crash::AfterEveryWrite => None,
            };
            proxy.inject(write.map_or(successors_fault(crash), Fault::CutAfter));
        }
        match change {
            Change::Invite => self.invite(expires).await?,
            Change::Join => apply(self.away, file(self.home, "lender", INVITATION).await?).await?,
            Change::Revoke => set_invitations(self.home, "lender", &[]).await?,
            Change::Expire => {}
        }
        let mut crashed = [0, 0];
        loop {
            let [at_home, elsewhere] = &self.proxies;
            let cut = tokio::select! {
                biased;
                () = at_home.wait_until_cut() => Cluster::Home,
                () = elsewhere.wait_until_cut() => Cluster::Away,
                end = Box::pin(self.wait_for_end(change, crash)) => break end?,
            };
            let (crashed, proxy) = (&mut crashed[cut as usize], &mut self.proxies[cut as usize]);
            *crashed += 1;
            ensure!(*crashed <= MAX_CRASHES, "they never finish: {:?}", proxy.requests());
            let stage = match cut {
                Cluster::Home => &mut *self.home,
                Cluster::Away => &mut *self.away,
            };
            *proxy = restart(stage, successors_fault(crash)).await?;
        }
        for proxy in &self.proxies {
            proxy.inject(Fault::None);
        }
        Ok(crashed)
    }

    async fn invite(&self, expires: &str) -> Result<()> {
        set_invitations(self.home, "lender", &[(INVITATION, 1, expires)]).await
    }

    /// Waits until the change is complete, and both operators are idle.
    async fn wait_for_end(&self, change: Change, crash: Crash) -> Result<()> {
        let (home, away) = (&*self.home, &*self.away);
        for proxy in &self.proxies {
            proxy.wait_until_watched().await?;
        }
        // The agents notice a revocation only when they have lost their connection for a while, so
        // it is not awaited each time.
        let with_joiner = change != Change::Revoke || crash.is_in(Cluster::Away);
        let clusters = if with_joiner { &Cluster::ALL[..] } else { &[Cluster::Home] };
        match change {
            Change::Invite => drop(wait_for_lease(home, "lender", INVITATION).await?),
            Change::Join => {
                wait_until_joined(away).await?;
                wait_for_joined(home, "lender", 1).await?;
            }
            Change::Revoke | Change::Expire => {
                let is_free = |it: &MiniCluster| lease(it, INVITATION).is_none();
                home.wait_for_object("lender", is_free).await?;
                wait_for_joined(home, "lender", 0).await?;
            }
        }
        if with_joiner && change == Change::Revoke {
            away.wait_for_reason(JOINER, ConditionType::Joined, "LenderUnreachable").await?;
        }
        let (since, expected) = (Instant::now(), EndState::of(change, with_joiner));
        loop {
            self.wait_until_idle(clusters).await?;
            let end = end_state(home, away, with_joiner).await?;
            if end == expected {
                return Ok(());
            }
            // Kubernetes may still be deleting pods.
            if since.elapsed() > TIMEOUT {
                bail!("the end differs: {end:#?}, expected {expected:#?}");
            }
        }
    }

    async fn wait_until_idle(&self, clusters: &[Cluster]) -> Result<()> {
        let proxies = clusters.iter().map(|cluster| &self.proxies[*cluster as usize]);
        try_join_all(proxies.map(Proxy::wait_until_idle)).await?;
        Ok(())
    }

    /// Invites and joins without a crash. Whether that was done before the invitation expired.
    pub(super) async fn is_joined_before(&self, expires: &str) -> Result<bool> {
        let joins = async {
            self.invite(expires).await?;
            wait_for_lease(self.home, "lender", INVITATION).await?;
            apply(self.away, file(self.home, "lender", INVITATION).await?).await?;
            wait_until_joined(self.away).await?;
            wait_for_joined(self.home, "lender", 1).await?;
            self.wait_until_idle(&Cluster::ALL).await
        };
        let left = expires.parse::<Timestamp>()?.duration_since(Timestamp::now());
        match tokio::time::timeout(left.try_into().unwrap_or_default(), joins).await {
            Ok(joined) => joined.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Removes the invitation and deletes the joiner, as far as they are there. Nothing may be left of
    /// either.
    pub(super) async fn clean_up(&self) -> Result<()> {
        set_invitations(self.home, "lender", &[]).await?;
        let background = DeleteParams::background();
        let joiner = self.away.miniclusters().delete(JOINER, &background).await;
        unless_missing(joiner)?;
        let secrets = self.away.api::<Secret>();
        unless_missing(secrets.delete(&format!("{JOINER}-invitation"), &background).await)?;
        self.away.wait_until_deleted::<MiniCluster>(JOINER).await?;
        self.away.wait_until_nothing_is_left(JOINER).await?;
        let is_free = |it: &MiniCluster| lease(it, INVITATION).is_none();
        self.home.wait_for_object("lender", is_free).await?;
        self.wait_until_idle(&Cluster::ALL).await
    }
}

fn unless_missing<T>(deleted: kube::Result<T>) -> Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// The fault of the next operator of a cluster.
fn successors_fault(crash: Crash) -> Fault {
    match crash {
        Crash::Once(_) => Fault::None,
        Crash::AfterEveryWrite => Fault::CutAfterChange,
    }
}

/// Starts the next operator of a cluster.
async fn restart(stage: &mut TestNamespace, fault: Fault) -> Result<Proxy> {
    stage.stop_operator();
    let proxy = Proxy::start(stage.client.clone()).await?;
    proxy.inject(fault);
    stage.start_operator_with(proxy.client()?).await?;
    Ok(proxy)
}
