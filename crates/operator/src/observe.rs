//! Takes together what is known of a MiniCluster now.

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_wire::Report;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use crate::reports::Reports;
use crate::stores::Stores;

/// What was seen, held for the length of a pass.
pub(crate) struct Seen {
    pub(crate) job: Option<Arc<Job>>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) report: Option<Report>,
}

/// Looks at the stores; asks nobody.
pub(crate) fn observe(minicluster: &MiniCluster, stores: &Stores, reports: &Reports) -> Seen {
    let job = stores.job(minicluster);
    let pods = stores.pods(minicluster).iter().map(|pod| Pod::clone(pod)).collect();
    let report = reports.last(minicluster.metadata.uid.as_deref().unwrap_or_default());
    Seen { job, pods, report }
}
