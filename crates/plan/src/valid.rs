//! Proof that a MiniCluster can be carried out.

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{Flux, StorageVolume};
use flux_operator_api::validate::{Problem, check_beyond_schema};

use crate::kubernetes::is_for_kueue;

/// A MiniCluster that can be carried out. Made by [`Valid::check`] alone, so a
/// function that takes one needs no checks of its own.
#[derive(Clone, Debug)]
pub struct Valid<T>(T);

/// Why a MiniCluster cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The condition's reason.
    pub reason: RefusalReason,
    /// Every problem, each with its field.
    pub problems: Vec<Problem>,
}

/// The reason of the condition `Accepted=False`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The manifest is wrong.
    Invalid,
    /// The manifest is right, but this version cannot do it.
    NotYetSupported,
    /// It names a queue of ours and one of Kueue's.
    TwoQueues,
}

impl RefusalReason {
    /// The word, as it stands in the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusalReason::Invalid => "Invalid",
            RefusalReason::NotYetSupported => "NotYetSupported",
            RefusalReason::TwoQueues => "TwoQueues",
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let problems: Vec<String> = self.problems.iter().map(Problem::to_string).collect();
        f.write_str(&problems.join("; "))
    }
}

impl Valid<MiniCluster> {
    /// Checks what the API server could not. An object that it stored has passed
    /// the schema and its rules.
    pub fn check(minicluster: MiniCluster) -> Result<Self, Refusal> {
        let problems = check_beyond_schema(&minicluster);
        if !problems.is_empty() {
            return Err(Refusal { reason: RefusalReason::Invalid, problems });
        }
        let problems = not_yet_supported(&minicluster);
        if !problems.is_empty() {
            return Err(Refusal { reason: RefusalReason::NotYetSupported, problems });
        }
        let spec = &minicluster.spec;
        if !spec.queue.is_empty() && is_for_kueue(&spec.job_labels) {
            let message = "cannot go with Kueue's queue name in spec.jobLabels: a cluster waits in one \
                queue, so keep one of them";
            let problem = Problem { path: "spec.queue".into(), message: message.into() };
            return Err(Refusal { reason: RefusalReason::TwoQueues, problems: vec![problem] });
        }
        Ok(Valid(minicluster))
    }
}

impl<T> Valid<T> {
    /// The same with a change that keeps it valid.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut T)) -> Self {
        change(&mut self.0);
        self
    }
}

impl<T> std::ops::Deref for Valid<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Fields that mean something this version cannot do. Silence would be worse.
fn not_yet_supported(minicluster: &MiniCluster) -> Vec<Problem> {
    let spec = &minicluster.spec;
    let autoscale = spec.autoscale.iter().map(|_| unsupported("spec.autoscale"));
    let joining = spec.flux.iter().flat_map(joining);
    autoscale.chain(joining).chain(spec.volumes.iter().filter_map(storage)).collect()
}

/// Being part of another Flux instance, and munge.
fn joining(flux: &Flux) -> Vec<Problem> {
    let lead_broker = flux.bursting.as_ref().and_then(|bursting| bursting.lead_broker.as_ref());
    let fields = [
        ("bootServer", !flux.boot_server.is_empty()),
        ("connection", !flux.connection.is_empty()),
        ("mungeSecret", !flux.munge_secret.is_empty()),
        ("bursting.leadBroker", lead_broker.is_some_and(|lead| !lead.address.is_empty())),
    ];
    let used = fields.into_iter().filter(|(_, used)| *used);
    used.map(|(field, _)| unsupported(&format!("spec.flux.{field}"))).collect()
}

fn unsupported(path: &str) -> Problem {
    Problem { path: path.to_owned(), message: "is not supported yet".to_owned() }
}

/// Storage that is more than a directory of the node. Whether a claim for it may be
/// made, and who deletes it, is better decided by the user than by us.
fn storage((name, storage): (&String, &StorageVolume)) -> Option<Problem> {
    let class = storage.storage_class.as_str();
    (!matches!(class, "" | "hostpath")).then(|| Problem {
        path: format!("spec.volumes.{name}.storageClass"),
        message: format!(
            "{class:?} is not made by the operator: make a PersistentVolumeClaim of that class, and \
             name it by claimName in the volumes of each container that mounts {name:?}"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_testkit::{merge, smallest};
    use serde_json::json;

    fn check(patch: serde_json::Value) -> Result<Valid<MiniCluster>, Refusal> {
        let mut manifest = smallest("fs");
        merge(&mut manifest, &patch);
        Valid::check(flux_operator_api::validate::minicluster(&manifest).unwrap())
    }

    #[test]
    fn the_smallest_minicluster_is_valid() {
        assert!(check(json!({})).is_ok());
    }

    #[test]
    fn what_cannot_be_done_yet_names_its_field() {
        let flux = json!({ "bootServer": "a-0", "bootServerSize": 2, "mungeSecret": "m" });
        let refusal = check(json!({ "spec": { "flux": flux } })).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::NotYetSupported);
        let text = refusal.to_string();
        assert!(text.contains("spec.flux.bootServer: is not"), "{text}");
        assert!(text.contains("spec.flux.mungeSecret: is not"), "{text}");
    }

    #[test]
    fn a_cluster_waits_in_one_queue() {
        let kueue = json!({ "kueue.x-k8s.io/queue-name": "batch" });
        let refusal = check(json!({ "spec": { "queue": "a", "jobLabels": kueue } })).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::TwoQueues);
        assert!(refusal.to_string().starts_with("spec.queue: cannot go"), "{refusal}");
        assert!(check(json!({ "spec": { "queue": "a" } })).is_ok());
        assert!(check(json!({ "spec": { "jobLabels": kueue } })).is_ok());
    }

    #[test]
    fn storage_of_a_class_asks_for_a_claim() {
        let storage = json!({ "path": "/data", "storageClass": "nfs", "secret": "s" });
        let refusal = check(json!({ "spec": { "volumes": { "data": storage } } })).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::NotYetSupported);
        let text = refusal.to_string();
        assert!(text.starts_with("spec.volumes.data.storageClass: \"nfs\" is not"), "{text}");
        assert!(text.contains("claimName"), "{text}");
        let hostpath = json!({ "path": "/data", "storageClass": "hostpath" });
        assert!(check(json!({ "spec": { "volumes": { "data": hostpath } } })).is_ok());
    }

    #[test]
    fn what_is_wrong_names_its_field() {
        let patch = json!({ "spec": { "flux": { "bursting": { "hostlist": "a[" } } } });
        let refusal = check(patch).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::Invalid);
        assert!(refusal.to_string().starts_with("spec.flux.bursting.hostlist: "), "{refusal}");
    }
}
