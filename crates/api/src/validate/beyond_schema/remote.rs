//! Checks of MiniClusters that join an instance in another Kubernetes cluster. Whether the instance
//! that they describe is consistent is checked where its ranks are computed, in `plan`.

use k8s_openapi::jiff::Timestamp;

use super::exposure::not_a_time;
use crate::MiniCluster;
use crate::validate::Problem;

/// Everything that is wrong with how a MiniCluster joins an instance elsewhere.
pub(super) fn check(minicluster: &MiniCluster, problems: &mut Vec<Problem>) {
    let Some(lead) = minicluster.spec.remote_lead() else { return };
    let flux = minicluster.spec.flux.clone().unwrap_or_default();
    let other = [
        ("join", flux.join.is_some()),
        ("connection", !flux.connection.is_empty()),
        ("bootServer", !flux.boot_server.is_empty()),
    ];
    for (field, _) in other.into_iter().filter(|(_, is_set)| *is_set) {
        let message = "names a MiniCluster of this Kubernetes cluster, and \
            flux.bursting.leadBroker one of another: keep one";
        problems.push(Problem::new(format!("spec.flux.{field}"), message));
    }
    let Some(instance) = &lead.instance else { return };
    if instance.expires.parse::<Timestamp>().is_err() {
        let path = "spec.flux.bursting.leadBroker.instance.expires";
        problems.push(Problem::new(path, not_a_time(&instance.expires)));
    }
    if flux.curve_cert_secret.is_empty() {
        let message = "is missing: an invitation has a Secret with its key and the certificate";
        problems.push(Problem::new("spec.flux.curveCertSecret", message));
    }
    if !flux.broker_config.is_empty() {
        let message = "cannot be used with an invitation, which has the lender's configuration: \
            remove it";
        problems.push(Problem::new("spec.flux.brokerConfig", message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn problems(flux: Value) -> Vec<String> {
        let mut flux = flux;
        let lead = json!({ "address": "10.0.0.1", "name": "a", "size": 2 });
        flux["bursting"]["leadBroker"] = lead;
        let spec = json!({ "containers": [{}], "flux": flux });
        let minicluster = MiniCluster::new("fs", serde_json::from_value(spec).unwrap());
        let mut problems = Vec::new();
        check(&minicluster, &mut problems);
        problems.into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn a_joiner_has_one_lender() {
        let found = problems(json!({ "curveCertSecret": "a", "join": { "name": "b" } }));
        assert_eq!(found, ["spec.flux.join"]);
    }
}
