//! A Burst of a namespace that the controller does not serve. What it has at a target stays as it is, and
//! nothing is done before the Burst is changed, or an administrator lists the namespace.

use flux_operator_api::{Burst, BurstStatus, MiniCluster, Reason};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::isolated::HomeAnswer;
use super::life::after_failure;
use super::observed::{BurstObserved, ObservedMiniCluster, TargetFailure};

/// The status of such a Burst. `None` if it has it already.
pub fn unserved_status(
    burst: &Burst,
    cluster: Option<&MiniCluster>,
    now: Timestamp,
) -> Option<BurstStatus> {
    let before = burst.status.clone().unwrap_or_default();
    let reason = Reason::NamespaceNotListed;
    let mut conditions = before.conditions.iter();
    if !burst.is_changed() && conditions.any(|it| it.reason == reason.as_str()) {
        return None;
    }
    let namespace = burst.namespace().unwrap_or_default();
    let message = format!(
        "the burst controller does not serve namespace {namespace:?}: an administrator has to list it \
         (flux-operator manifests --burst-namespace {namespace})"
    );
    let observed = BurstObserved {
        cluster: cluster.map_or(ObservedMiniCluster::Missing, ObservedMiniCluster::Readable),
        others: &[],
        target: None,
        running: None,
        home: HomeAnswer::NotAsked,
        now,
    };
    let said = after_failure(burst, &observed, TargetFailure::new(reason, message));
    Some(BurstStatus {
        phase: said.phase,
        ready: said.ready,
        conditions: said.conditions,
        observed_generation: said.observed_generation,
        // Once the namespace is listed, the target is asked at once.
        failures: 0,
        retry_at: String::new(),
        ..before
    })
}
