//! How long a joiner took to join.

use std::time::Duration;

use flux_operator_api::condition::ConditionType;
use flux_operator_api::minicluster::LeaseState;
use flux_operator_api::{MiniCluster, MiniClusterStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::lender::LenderView;
use crate::verdict::find;

/// The time from the lease of its ranks until all their brokers were online, if `status` is the
/// first one that shows it. `None` when brokers come back that had joined before, for example after
/// a restart of the lead.
pub fn joined_after(
    before: &MiniCluster,
    status: &MiniClusterStatus,
    lender: &LenderView,
) -> Option<Duration> {
    let conditions = before.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let is_joined = |it: &&Condition| it.status == "True";
    let joined = find(&status.conditions, ConditionType::Joined).filter(is_joined)?;
    let until = joined.last_transition_time.0;
    let earlier = find(conditions, ConditionType::Joined);
    if earlier.as_ref().is_some_and(is_joined) {
        return None;
    }
    let leases = lender.minicluster.status.iter().flat_map(|status| &status.leases);
    let mut of_joiner = leases.filter(|lease| Some(&lease.holder) == before.uid().as_ref());
    let lease = of_joiner.find(|lease| lease.state == LeaseState::Active)?;
    let since = lease.since.parse().ok()?;
    // The condition became false after the lease was granted, so it was true in between.
    let was_joined = |it: &Condition| it.status == "False" && it.last_transition_time.0 > since;
    if earlier.is_some_and(was_joined) {
        return None;
    }
    until.duration_since(since).try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use flux_operator_testkit::{merge, smallest_minicluster};
    use serde_json::{Value, json};

    fn minicluster(name: &str, status: Value) -> MiniCluster {
        let mut minicluster = smallest_minicluster(name);
        merge(&mut minicluster, &json!({ "metadata": { "uid": name }, "status": status }));
        serde_json::from_value(minicluster).unwrap()
    }

    fn joined(status: &str, since: u32) -> Value {
        json!({ "conditions": [{ "type": "Joined", "status": status, "reason": "a", "message": "",
            "lastTransitionTime": format!("2026-01-01T00:00:{since:02}Z") }] })
    }

    #[test]
    fn only_the_first_join_of_a_lease_is_measured() {
        let lease = json!({ "ranks": "2", "holder": "joiner", "namespace": "", "name": "joiner",
            "table": "t", "since": "2026-01-01T00:00:10Z", "state": "Active" });
        let lender = LenderView {
            minicluster: Arc::new(minicluster("lender", json!({ "leases": [lease] }))),
            job: None,
            report: None,
        };
        let seconds = |before: Value, now: Value| {
            let status = serde_json::from_value(now).unwrap();
            joined_after(&minicluster("joiner", before), &status, &lender).map(|it| it.as_secs())
        };
        assert_eq!(seconds(json!({}), joined("True", 14)), Some(4));
        assert_eq!(seconds(joined("False", 5), joined("True", 14)), Some(4), "it has waited");
        assert_eq!(seconds(joined("True", 14), joined("True", 14)), None);
        assert_eq!(seconds(joined("False", 40), joined("True", 50)), None, "it has joined again");
        assert_eq!(seconds(joined("False", 5), joined("False", 5)), None);
    }
}
