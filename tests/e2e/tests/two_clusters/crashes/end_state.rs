//! The state after a change: what was expected, and what is there.

use anyhow::{Context, Result};
use flux_operator_api::condition::ConditionType;
use flux_operator_tests_e2e::{TestNamespace, condition};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::ListParams;

use super::Change;
use crate::joiner::JOINER;

/// The state after a change.
#[derive(Debug, PartialEq)]
pub(super) struct EndState {
    /// Ranks and state of each lease, and whether a cluster uses it.
    leases: Vec<String>,
    /// The reason of the lender's condition `Exposed`.
    exposed: String,
    /// Names and ports of the Service and endpoints of the lender.
    network: Vec<String>,
    /// How many brokers of others are online.
    joined: i32,
    /// The reason of the joiner's condition `Joined`.
    joiner: Option<String>,
    /// Kind and name of the joiner's objects.
    objects: Vec<String>,
}

impl EndState {
    /// The expected state, with that of the joiner or without.
    pub(super) fn of(change: Change, with_joiner: bool) -> EndState {
        let (leases, network): (&[&str], &[&str]) = match change {
            Change::Invite => (&["9 Active unused"], &OPEN),
            Change::Join => (&["9 Active used"], &OPEN),
            Change::Revoke | Change::Expire => (&[], &CLOSED),
        };
        let (joiner, objects): (_, &[&str]) = match change {
            Change::Invite => (None, &[]),
            Change::Join => (Some("Joined"), &OBJECTS),
            Change::Revoke => (Some("LenderUnreachable"), &OBJECTS),
            // Without its Job and its pod.
            Change::Expire => (Some("InvitationExpired"), &OBJECTS[2..]),
        };
        let owned = |all: &[&str]| all.iter().map(|&it| it.to_owned()).collect();
        EndState {
            leases: owned(leases),
            exposed: "Exposed".to_owned(),
            network: owned(network),
            joined: i32::from(change == Change::Join),
            joiner: joiner.filter(|_| with_joiner).map(str::to_owned),
            objects: owned(objects),
        }
    }
}

/// A Service always has a port.
const CLOSED: [&str; 1] = ["Service closed 8050"];
const OPEN: [&str; 2] = ["Service cloud 8050", "EndpointSlice cloud"];
const OBJECTS: [&str; 4] =
    ["Job joiner", "Pod joiner", "ConfigMap joiner-entrypoint", "Secret joiner-flux"];

/// The state now.
pub(super) async fn end_state(
    home: &TestNamespace,
    away: &TestNamespace,
    with_joiner: bool,
) -> Result<EndState> {
    let lender = home.miniclusters().get("lender").await?;
    let exposed = condition(&lender, ConditionType::Exposed).context("it is not exposed")?;
    let exposed = exposed.reason.clone();
    let status = lender.status.context("no status")?;
    let leases = status.leases.iter().map(|it| {
        let user = it.invitation.as_ref().and_then(|it| it.user.as_ref());
        let used = if user.is_some() { "used" } else { "unused" };
        format!("{} {:?} {used}", it.ranks, it.state)
    });
    let joiner = away.miniclusters().get_opt(JOINER).await?.filter(|_| with_joiner);
    let joiner = joiner.and_then(|it| Some(condition(&it, ConditionType::Joined)?.reason.clone()));
    let mut objects = away.names::<Job>(JOINER).await?;
    // Their names have a part that is random.
    objects.extend(away.names::<Pod>(JOINER).await?.iter().map(|_| format!("Pod {JOINER}")));
    objects.extend(away.names::<ConfigMap>(JOINER).await?);
    objects.extend(away.names::<Secret>(JOINER).await?);
    Ok(EndState {
        leases: leases.collect(),
        exposed,
        network: network(home).await?,
        joined: status.joined,
        joiner,
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
