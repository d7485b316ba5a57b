//! What a Burst writes into its MiniCluster: a finalizer, and an invitation. Server-side apply with a
//! field manager of the Burst's own keeps both apart from what users and other Bursts write: the
//! finalizer is removed with the last Burst.

use flux_operator_api::minicluster::Invitation;
use flux_operator_api::{Burst, GROUP, MiniCluster, VERSION};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::names::{BURST_FINALIZER, field_manager, object_name};
use crate::time::seconds_after;

/// How long an invitation outlives its Burst, in seconds: for the time in which it is given back
/// although the target does not respond.
const INVITATION_MARGIN: i64 = 600;

/// The invitation of a Burst whose brokers are in another Kubernetes cluster, with this many ranks to
/// keep; `None` if they are in the same one.
pub(super) fn invitation(burst: &Burst, keep: Option<i32>) -> Option<Invitation> {
    if !burst.spec.target.is_elsewhere() {
        return None;
    }
    Some(Invitation {
        name: object_name(burst),
        ranks: burst.spec.leased_ranks(),
        expires: expires(burst).to_string(),
        keep,
        property: burst.spec.target.ranks.clone(),
    })
}

/// When the lifetime of a Burst is over.
pub(super) fn lifetime_end(burst: &Burst) -> Timestamp {
    seconds_after(burst.created(), burst.spec.lifetime_seconds())
}

pub(super) fn expires(burst: &Burst) -> Timestamp {
    let grace = i64::from(burst.spec.grace_seconds());
    seconds_after(lifetime_end(burst), grace.saturating_add(INVITATION_MARGIN))
}

/// How long the pods of a Burst may exist, in seconds: they end by themselves if no controller ever
/// comes back for them.
pub fn deadline_seconds(burst: &Burst) -> i64 {
    expires(burst).duration_since(burst.created()).as_secs()
}

/// Whether a MiniCluster has what a Burst writes into it.
pub(super) fn is_claimed(
    burst: &Burst,
    cluster: &MiniCluster,
    wanted: Option<&Invitation>,
) -> bool {
    let has_finalizer = cluster.finalizers().iter().any(|it| it == BURST_FINALIZER);
    let bursting = cluster.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    let invitations = bursting.map(|it| it.invitations.as_slice()).unwrap_or_default();
    let found = invitations.iter().find(|it| it.name == object_name(burst));
    has_claim(burst, cluster) && has_finalizer && found == wanted
}

/// Whether a MiniCluster has any field that a Burst has applied.
pub fn has_claim(burst: &Burst, cluster: &MiniCluster) -> bool {
    let manager = field_manager(burst);
    let mut managers = cluster.metadata.managed_fields.iter().flatten();
    managers.any(|it| it.manager.as_deref() == Some(&manager))
}

/// What is applied to the MiniCluster of a Burst.
pub(super) fn claim(cluster: &MiniCluster, invitation: Option<&Invitation>) -> Value {
    let invitations: Vec<&Invitation> = invitation.into_iter().collect();
    let metadata = json!({ "finalizers": [BURST_FINALIZER] });
    let bursting = json!({ "flux": { "bursting": { "invitations": invitations } } });
    match invitations.is_empty() {
        true => fields(cluster, metadata, None),
        false => fields(cluster, metadata, Some(bursting)),
    }
}

/// What is applied to the MiniCluster of a Burst that has been given back: nothing, so that the fields
/// which it had applied are removed. An empty list would be a field too.
pub fn release(cluster: &MiniCluster) -> Value {
    fields(cluster, json!({}), None)
}

/// Fields of a MiniCluster. Its uid is among them, so that a MiniCluster which was deleted is not
/// created again.
fn fields(cluster: &MiniCluster, metadata: Value, spec: Option<Value>) -> Value {
    let own = json!({
        "name": cluster.name_any(),
        "namespace": cluster.namespace(),
        "uid": cluster.uid(),
    });
    let parts = [own, metadata].into_iter().filter_map(|part| match part {
        Value::Object(fields) => Some(fields),
        _ => None,
    });
    let mut object = serde_json::Map::from_iter([
        ("apiVersion".to_owned(), format!("{GROUP}/{VERSION}").into()),
        ("kind".to_owned(), "MiniCluster".into()),
        ("metadata".to_owned(), Value::Object(parts.flatten().collect())),
    ]);
    object.extend(spec.map(|spec| ("spec".to_owned(), spec)));
    Value::Object(object)
}
