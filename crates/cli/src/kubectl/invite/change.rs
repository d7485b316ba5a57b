//! Changes the list of invitations of a MiniCluster.

use anyhow::{Result, anyhow};
use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{Expose, ExposeType, Invitation};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::invitation::{bursting, invitations};
use crate::kubectl::session::Session;

/// How often a change is tried. The operator writes the status of a busy MiniCluster several times
/// a second, and each write between our read and our patch is a conflict.
const MAX_TRIES: usize = 20;

/// A merge patch of `spec.flux.bursting`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BurstingPatch(Map<String, Value>);

impl BurstingPatch {
    /// Also replaces the list of invitations.
    pub(super) fn invitations(self, invitations: &[Invitation]) -> BurstingPatch {
        self.set(
            "invitations",
            match invitations.is_empty() {
                // Without the field, as it was before the first.
                true => Value::Null,
                false => json!(invitations),
            },
        )
    }

    /// Also exposes the MiniCluster, with the type even if that is the default: a reader of the
    /// manifest need not know it.
    pub(super) fn expose(self, kind: ExposeType) -> BurstingPatch {
        self.set("expose", json!({ "type": kind }))
    }

    /// Also ends the exposure.
    fn without_expose(self) -> BurstingPatch {
        self.set("expose", Value::Null)
    }

    fn set(mut self, field: &str, value: Value) -> BurstingPatch {
        self.0.insert(field.to_owned(), value);
        self
    }

    /// As a patch of the whole MiniCluster, for this state of it only.
    fn of_version(self, current: &MiniCluster) -> Value {
        json!({
            "metadata": { "resourceVersion": current.resource_version() },
            "spec": { "flux": { "bursting": self.0 } },
        })
    }

    /// The fields that it changes.
    #[cfg(test)]
    pub(super) fn fields(self) -> Value {
        Value::Object(self.0)
    }
}

/// Applies the patch that `decide` returns for the current state, if any. The patch contains
/// the whole list, so it is applied only to the state that it was decided for; if that has changed
/// meanwhile, `decide` is called again. Returns the MiniCluster afterwards, and what was decided.
pub(super) async fn change<T>(
    session: &Session,
    current: MiniCluster,
    mut decide: impl FnMut(&MiniCluster) -> Result<(Option<BurstingPatch>, T)>,
) -> Result<(MiniCluster, T)> {
    let name = current.name_any();
    let mut current = current;
    for _ in 0..MAX_TRIES {
        let (patch, decided) = decide(&current)?;
        let Some(patch) = patch else { return Ok((current, decided)) };
        let patch = Patch::Merge(patch.of_version(&current));
        match session.miniclusters().patch(&name, &PatchParams::default(), &patch).await {
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

/// The patch that undoes the addition of an invitation, and of `expose` if that was added with
/// it and no other invitation needs it. `None` if the invitation does not exist any more.
pub(super) fn undo(
    lender: &MiniCluster,
    invitation: &Invitation,
    added_expose: Option<&Expose>,
) -> Option<BurstingPatch> {
    let all = invitations(lender);
    let left: Vec<Invitation> = all.iter().filter(|it| *it != invitation).cloned().collect();
    if left.len() == all.len() {
        return None;
    }
    let patch = BurstingPatch::default().invitations(&left);
    let expose = bursting(lender).and_then(|it| it.expose.as_ref());
    let is_unneeded = left.is_empty() && added_expose.is_some() && expose == added_expose;
    Some(if is_unneeded { patch.without_expose() } else { patch })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bursting_mut, invitation, lender};
    use super::*;

    #[test]
    fn a_patch_changes_flux_bursting_of_the_state_that_was_read() {
        let patch = BurstingPatch::default().invitations(&[]).expose(ExposeType::NodePort);
        let bursting = json!({ "invitations": null, "expose": { "type": "NodePort" } });
        let expected = json!({ "metadata": { "resourceVersion": "7" },
            "spec": { "flux": { "bursting": bursting } } });
        assert_eq!(patch.of_version(&lender()), expected);
    }

    #[test]
    fn an_undone_addition_leaves_nothing_over() {
        let lender = lender();
        let added = invitations(&lender)[0].clone();
        let undone =
            |expose: Option<&Expose>| undo(&lender, &added, expose).map(BurstingPatch::fields);
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
        bursting_mut(&mut lender).invitations.push(other.clone());
        let patch = undo(&lender, &added, Some(&Expose::default())).unwrap();
        assert_eq!(patch.fields(), json!({ "invitations": [other] }));
    }

    #[test]
    fn a_later_invitation_of_the_same_name_is_another_one() {
        let later = invitation("a", 2, "2026-01-01T02:00:00Z");
        assert_eq!(undo(&lender(), &later, Some(&Expose::default())), None);
    }
}
