//! The Service of an exposed MiniCluster where there is no operator, to show it.

use flux_operator_api::MiniCluster;
use k8s_openapi::api::core::v1::Service;

use super::expose;
use crate::cluster::Cluster;
use crate::kubernetes::{Rendering, Settings, exposed_service};
use crate::valid::Valid;

/// The Service by which others reach a new MiniCluster, before ranks are leased to an invitation;
/// `None` if it has none.
pub fn new_exposed_service(minicluster: &MiniCluster, settings: &Settings) -> Option<Service> {
    let expose = expose(minicluster)?;
    let valid = Valid::check(minicluster.clone()).ok()?;
    let cluster = Cluster::of(&valid).ok()?;
    let rendering = Rendering { minicluster: &valid, cluster: &cluster, settings };
    exposed_service(&rendering, expose, &[])
}
