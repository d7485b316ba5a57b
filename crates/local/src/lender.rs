//! A cluster on this machine whose ranks others lease.

use flux_operator_api::MiniCluster;
use flux_operator_plan::{Cluster, OfflineJoinError, OfflineLease, OfflineLender, Valid};

use crate::connected::valid;
use crate::home::{Home, HomeError};
use crate::instance::Instance;
use crate::request::RunRequest;

/// A lender, and what it has lent.
pub(crate) struct Lender {
    instance: Instance,
    offline: OfflineLender,
}

impl Lender {
    /// A lender that is not running yet.
    pub(crate) fn new(instance: Instance, minicluster: Valid) -> Lender {
        let lead = format!("ipc://{}", instance.lead_socket().display());
        Lender { instance, offline: OfflineLender { minicluster, lead, leases: Vec::new() } }
    }

    /// The lender with this instance; `None` if it is not running, or still starting. Its joiners
    /// are then running too, so that all leases are known.
    pub(crate) fn running(home: &Home, instance: Instance) -> Result<Option<Lender>, HomeError> {
        let is_ready = instance.record().is_ok_and(|record| record.ready);
        let manifest = std::fs::read(instance.manifest_file()).ok().filter(|_| is_ready);
        let minicluster = manifest.and_then(|text| {
            let minicluster: MiniCluster = serde_json::from_slice(&text).ok()?;
            valid(minicluster).ok()
        });
        let Some(minicluster) = minicluster else { return Ok(None) };
        let mut lender = Lender::new(instance, minicluster);
        for joiner in home.joiners_of(lender.instance.name())? {
            let joins = joiner.record().ok().and_then(|record| record.joins);
            let holder = joiner.name().to_owned();
            let lease = joins.map(|joins| OfflineLease { holder, ranks: joins.ranks });
            lender.offline.leases.extend(lease);
        }
        Ok(Some(lender))
    }

    /// The MiniCluster.
    pub(crate) fn minicluster(&self) -> &MiniCluster {
        &self.offline.minicluster
    }

    /// How many ranks its instance has.
    pub(crate) fn rank_count(&self) -> u32 {
        let count = Cluster::of(&self.offline.minicluster).map(|it| it.ranks.hosts.len());
        count.ok().and_then(|count| u32::try_from(count).ok()).unwrap_or(u32::MAX)
    }

    /// The joiner that has leased a rank.
    pub(crate) fn holder(&self, rank: u32) -> Option<&str> {
        let leases = &mut self.offline.leases.iter();
        let lease = leases.find(|lease| lease.ranks.iter().any(|it| it == rank));
        lease.map(|lease| lease.holder.as_str())
    }

    /// Leases ranks to a joiner.
    pub(crate) fn lease(&mut self, joiner: Valid) -> Result<RunRequest, OfflineJoinError> {
        let cluster = self.offline.lease(&joiner)?;
        let untrue = self.offline.warnings(&joiner);
        let mut request = RunRequest::with_cluster(joiner, cluster, Some(self.instance.clone()));
        request.warnings.extend(untrue.iter().map(ToString::to_string));
        Ok(request)
    }
}
