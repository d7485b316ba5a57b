//! Changes the list of invitations of a MiniCluster.

use anyhow::{Result, anyhow};
use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{Expose, Invitation};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::invitation::{bursting, invitations};
use crate::kubectl::session::Session;

/// How often a change is tried. The operator writes the status of a busy MiniCluster several times
/// a second, and each write between our read and our patch is a conflict.
const MAX_TRIES: usize = 20;

/// Applies the merge patch that `decide` returns for the current state, if any. The patch contains
/// the whole list, so it is applied only to the state that it was decided for; if that has changed
/// meanwhile, `decide` is called again. Returns the MiniCluster afterwards, and what was decided.
pub(super) async fn change<T>(
    session: &Session,
    current: MiniCluster,
    mut decide: impl FnMut(&MiniCluster) -> Result<(Option<Value>, T)>,
) -> Result<(MiniCluster, T)> {
    let name = current.name_any();
    let mut current = current;
    for _ in 0..MAX_TRIES {
        let (patch, decided) = decide(&current)?;
        let Some(mut patch) = patch else { return Ok((current, decided)) };
        patch["metadata"] = json!({ "resourceVersion": current.resource_version() });
        let (api, parameters) = (session.miniclusters(), PatchParams::default());
        match api.patch(&name, &parameters, &Patch::Merge(patch)).await {
            Ok(changed) => return Ok((changed, decided)),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                current = session.minicluster(&name).await?;
            }
            Err(error) => {
                return Err(session.explain(error, &format!("failed to change {name:?}")).await);
            }
        }
    }
    Err(anyhow!(
        "failed to change {name:?}: it was changed by others {MAX_TRIES} times meanwhile\n\
         hint: try again"
    ))
}

/// The merge patch that replaces the list of invitations.
pub(super) fn replace_list(invitations: &[Invitation]) -> Value {
    let list = match invitations.is_empty() {
        // Without the field, as it was before the first.
        true => Value::Null,
        false => json!(invitations),
    };
    json!({ "spec": { "flux": { "bursting": { "invitations": list } } } })
}

/// The merge patch that undoes the addition of an invitation, and of `expose` if that was added with
/// it and no other invitation needs it. `None` if the invitation does not exist any more.
pub(super) fn undo(
    lender: &MiniCluster,
    invitation: &Invitation,
    added_expose: Option<&Expose>,
) -> Option<Value> {
    let all = invitations(lender);
    let left: Vec<Invitation> = all.iter().filter(|it| *it != invitation).cloned().collect();
    if left.len() == all.len() {
        return None;
    }
    let mut patch = replace_list(&left);
    let expose = bursting(lender).and_then(|it| it.expose.as_ref());
    if left.is_empty() && added_expose.is_some() && expose == added_expose {
        patch["spec"]["flux"]["bursting"]["expose"] = Value::Null;
    }
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{invitation, lender};
    use super::*;

    fn bursting_patch(patch: Option<Value>) -> Option<Value> {
        patch.map(|patch| patch["spec"]["flux"]["bursting"].clone())
    }

    #[test]
    fn an_undone_addition_leaves_nothing_over() {
        let lender = lender();
        let added = invitations(&lender)[0].clone();
        let undone = |expose: Option<&Expose>| bursting_patch(undo(&lender, &added, expose));
        assert_eq!(undone(None), Some(json!({ "invitations": null })));
        let both = json!({ "invitations": null, "expose": null });
        assert_eq!(undone(Some(&Expose::default())), Some(both));
        let changed_since = Expose { port: 9000, ..Expose::default() };
        assert_eq!(undone(Some(&changed_since)), Some(json!({ "invitations": null })));
    }

    #[test]
    fn others_keep_their_invitations_and_what_they_need() {
        let mut lender = lender();
        let added = invitations(&lender)[0].clone();
        let other = invitation("b", 1, "2026-01-01T02:00:00Z");
        let flux = lender.spec.flux.as_mut().unwrap();
        flux.bursting.as_mut().unwrap().invitations.push(other.clone());
        let patch = bursting_patch(undo(&lender, &added, Some(&Expose::default())));
        assert_eq!(patch, Some(json!({ "invitations": [other] })));
    }

    #[test]
    fn a_later_invitation_of_the_same_name_is_another_one() {
        let later = invitation("a", 2, "2026-01-01T02:00:00Z");
        assert_eq!(undo(&lender(), &later, Some(&Expose::default())), None);
    }
}
