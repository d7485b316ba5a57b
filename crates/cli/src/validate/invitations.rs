//! Invitations that nobody can use, by the clock and by the ranks that there are.

use flux_operator_api::MiniCluster;
use flux_operator_api::manifest::Document;
use flux_operator_api::minicluster::{Bursting, Invitation};
use flux_operator_api::validate::{self, Problem, Validate};
use flux_operator_plan::{lendable_ranks, shown_expiry};
use jiff::Timestamp;

/// Which invitations of a MiniCluster get no ranks, and whether the one that it uses has expired.
pub(super) fn invitation_warnings(document: &Document, now: Timestamp) -> Vec<Problem> {
    let is_minicluster = document.kind() == Some(MiniCluster::KIND);
    let minicluster =
        is_minicluster.then(|| validate::read_minicluster(&document.value).ok()).flatten();
    minicluster.map(|it| warnings(&it, now)).unwrap_or_default()
}

fn warnings(minicluster: &MiniCluster, now: Timestamp) -> Vec<Problem> {
    let bursting = minicluster.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    let Some(Bursting { lead_broker, invitations, .. }) = bursting else { return Vec::new() };
    let used = lead_broker.as_ref().and_then(|lead| lead.instance.as_ref());
    let used = used.filter(|instance| is_over(&instance.expires, now)).map(|instance| {
        let end = shown_expiry(&instance.expires);
        let message = format!("the invitation has expired at {end}: ask for another");
        Problem::new("spec.flux.bursting.leadBroker.instance.expires", message)
    });
    let lendable = lendable_ranks(minicluster, None);
    let of_invitation = |(index, invitation): (usize, &Invitation)| {
        let path = format!("spec.flux.bursting.invitations[{index}]");
        if is_over(&invitation.expires, now) {
            let end = shown_expiry(&invitation.expires);
            let message = format!("the invitation has expired at {end}: remove it");
            return Some(Problem::new(format!("{path}.expires"), message));
        }
        let most = lendable.and_then(|most| i32::try_from(most).ok());
        let most = most.filter(|most| invitation.ranks > *most)?;
        let message = format!(
            "is {}, and the cluster can lend {most} at most, so it gets none: lower it, or raise \
             spec.maxSize or spec.flux.bursting.spareRanks before the cluster is started",
            invitation.ranks
        );
        Some(Problem::new(format!("{path}.ranks"), message))
    };
    let of_invitations = invitations.iter().enumerate().filter_map(of_invitation);
    used.into_iter().chain(of_invitations).collect()
}

/// Whether a time is over. One that cannot be parsed is an error already, and not also "expired".
fn is_over(expires: &str, now: Timestamp) -> bool {
    expires.parse::<Timestamp>().is_ok_and(|expires| now >= expires)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn warned(spec: Value) -> Vec<String> {
        let object = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
            "metadata": { "name": "fs" }, "spec": spec });
        let document = Document { number: 1, value: object };
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        invitation_warnings(&document, now).iter().map(ToString::to_string).collect()
    }

    fn lender(ranks: i32, expires: &str) -> Vec<String> {
        let invitation = json!({ "name": "a", "ranks": ranks, "expires": expires });
        let bursting = json!({ "expose": {}, "spareRanks": 1, "invitations": [invitation] });
        warned(
            json!({ "size": 2, "maxSize": 4, "containers": [{}], "flux": { "bursting": bursting } }),
        )
    }

    #[test]
    fn an_invitation_for_more_ranks_than_can_be_lent_gets_a_warning() {
        let message =
            "spec.flux.bursting.invitations[0].ranks: is 4, and the cluster can lend 3 at most";
        let found = lender(4, "2026-01-02T00:00:00Z");
        assert!(found.len() == 1 && found[0].starts_with(message), "{found:?}");
        assert_eq!(lender(3, "2026-01-02T00:00:00Z"), [""; 0]);
    }

    #[test]
    fn an_invitation_that_has_expired_gets_a_warning() {
        let expected = "spec.flux.bursting.invitations[0].expires: the invitation has expired at \
            2025-12-31T23:59:59Z: remove it";
        assert_eq!(lender(1, "2025-12-31T23:59:59.999999Z"), [expected]);
        assert_eq!(lender(1, "2026-01-01T00:00:00.000001Z"), [""; 0]);
    }

    #[test]
    fn a_time_that_cannot_be_parsed_has_not_expired() {
        assert_eq!(lender(1, "2020-13-01T00:00:00Z"), [""; 0]);
        assert!(!is_over("tomorrow", Timestamp::MAX));
    }
}
