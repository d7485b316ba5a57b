//! The objects that run brokers of an instance outside Kubernetes, at a target.

use std::collections::BTreeMap;

use flux_operator_api::burst::BurstTarget;
use flux_operator_api::minicluster::{Bursting, Container, Flux, FluxContainer};
use flux_operator_api::{Burst, MiniCluster, MiniClusterSpec};
use flux_operator_flux::Certificate;
use flux_operator_wire::BrokerFacts;
use flux_operator_wire::names::file;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{PodSecurityContext, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::instance::StandaloneInstance;
use super::lender::leased;
use crate::bursting::claim::expires;
use crate::bursting::names::{object_name, remote_secret_name};
use crate::bursting::remote_pool::{Joiner, PoolPods, RemotePool, RemotePoolError, render};
use crate::joining::broker_spec;
use crate::kubernetes::Settings;

/// The objects for the brokers of a Burst. `template` is a MiniCluster whose image, environment and hooks
/// they have; without one the target's image has Flux.
pub fn standalone_pool(
    instance: &StandaloneInstance,
    burst: &Burst,
    template: Option<&MiniCluster>,
    pods: &PoolPods<'_>,
    certificate: &Certificate,
    settings: &Settings,
) -> Result<RemotePool, RemotePoolError> {
    let name = object_name(burst);
    let ranks = leased(burst);
    let mut spec = match template {
        Some(template) => broker_spec(template, pods.nodes).0,
        None => spec_of_image(pods.target),
    };
    let lead = instance.lead_broker(&name, &ranks, expires(burst).to_string());
    let secret_name = remote_secret_name(&name);
    let flux = spec.flux.get_or_insert_default();
    flux.curve_cert_secret.clone_from(&secret_name);
    flux.bursting = Some(Bursting { lead_broker: Some(lead), ..Bursting::default() });
    let mut minicluster = MiniCluster::new(&name, spec);
    minicluster.metadata.name = Some(name);
    let text = certificate.to_secret_text();
    let secret = Secret {
        metadata: ObjectMeta { name: Some(secret_name), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(
            file::CERTIFICATE.to_owned(),
            ByteString(text.as_bytes().to_vec()),
        )])),
        type_: Some("Opaque".into()),
        ..Secret::default()
    };
    let cores = ranks.nth(0).and_then(|rank| instance.table.slot(rank)?.resources.cores);
    let lead = BrokerFacts { cores: cores.unwrap_or_default(), ..instance.lead.clone() };
    let uid = i64::from(lead.uid);
    let joiner = Joiner { minicluster, secret, standalone_lead: Some(lead) };
    let mut pool = render(joiner, pods, settings)?;
    let pod = pool.job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut());
    if let Some(pod) = pod.filter(|_| uid > 0) {
        // Flux runs jobs of one user: the lead's.
        let context = pod.security_context.get_or_insert_default();
        let PodSecurityContext { run_as_user, run_as_group, .. } = context;
        run_as_user.get_or_insert(uid);
        run_as_group.get_or_insert(uid);
    }
    Ok(pool)
}

/// Brokers in the target's image, which has Flux.
fn spec_of_image(target: &BurstTarget) -> MiniClusterSpec {
    let image = target.pods.as_ref().map(|pods| pods.image.clone()).unwrap_or_default();
    let in_image = FluxContainer { disable: true, ..FluxContainer::default() };
    MiniClusterSpec {
        size: 1,
        containers: vec![Container { image, ..Container::default() }],
        flux: Some(Flux { container: Some(in_image), ..Flux::default() }),
        ..MiniClusterSpec::default()
    }
}
